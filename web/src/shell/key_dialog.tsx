// Asks for the API key when the server answers 401. The browser's own <dialog> keeps the focus inside and closes on
// Escape.
import { useEffect, useRef, useState } from 'preact/hooks';
import { hasKey, setKey } from '../api/http';

interface Props {
  open: boolean;
  onClose: () => void;
  onSaved: () => void;
}

export function KeyDialog({ open, onClose, onSaved }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [value, setValue] = useState('');
  const [keep, setKeep] = useState(false);
  const refused = hasKey();

  useEffect(() => {
    if (open && !dialog.current!.open) dialog.current!.showModal();
    if (!open && dialog.current!.open) dialog.current!.close();
  }, [open]);

  const save = (event: Event) => {
    event.preventDefault();
    setKey(value, keep);
    setValue('');
    onSaved();
  };

  // Not onClose: that comes later, also after a close of our own, when the dialog may have been opened again.
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="key-title" onCancel={onClose}>
      <form onSubmit={save}>
        <h2 id="key-title">API key</h2>
        <p>
          {refused
            ? 'The server does not know the key that was sent. Enter another one.'
            : 'This server answers only with an API key.'}
        </p>
        <label class="field" for="key">
          <span>Key</span>
          <input
            id="key"
            type="password"
            autocomplete="off"
            spellcheck={false}
            required
            value={value}
            onInput={event => setValue(event.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input type="checkbox" checked={keep} onChange={event => setKeep(event.currentTarget.checked)} />
          <span>Keep it in this browser (otherwise until the tab is closed)</span>
        </label>
        <div class="dialog-buttons">
          <button type="button" class="button" onClick={onClose}>
            Not now
          </button>
          <button type="submit" class="button main">
            Use this key
          </button>
        </div>
      </form>
    </dialog>
  );
}
