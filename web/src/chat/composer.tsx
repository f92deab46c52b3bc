// The field a question is written in. Enter sends, Shift+Enter makes a new line, ↑ in an empty field edits the last
// question.
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import { Icon } from '../shell/icons';

interface Props {
  inputRef: RefObject<HTMLTextAreaElement | null>;
  busy: boolean;
  ready: boolean; // the model is known
  onSend: (text: string) => void;
  onStop: () => void;
  onEditLast: () => void;
}

// As high as its text, up to the limit of the style sheet.
export function fitHeight(area: HTMLTextAreaElement) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + 2}px`;
}

export function Composer({ inputRef, busy, ready, onSend, onStop, onEditLast }: Props) {
  const [text, setText] = useState('');
  useLayoutEffect(() => fitHeight(inputRef.current!), [text]);
  // A touch keyboard that jumps up by itself is a nuisance.
  useEffect(() => {
    if (matchMedia('(hover: hover)').matches) inputRef.current?.focus();
  }, []);

  const canSend = ready && !busy && text.trim() !== '';
  const send = () => {
    if (!canSend) return;
    setText('');
    onSend(text.trim());
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      send();
    } else if (event.key === 'ArrowUp' && text === '') {
      event.preventDefault();
      onEditLast();
    }
  };

  return (
    <form
      class="composer"
      onSubmit={event => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={inputRef}
        rows={1}
        value={text}
        aria-label="Message"
        placeholder="Message"
        enterkeyhint="send"
        onInput={event => setText(event.currentTarget.value)}
        onKeyDown={pressed}
      />
      {busy ? (
        <button key="stop" type="button" class="round stop" aria-label="Stop" title="Stop (Esc)" onClick={onStop}>
          <Icon name="stop" />
        </button>
      ) : (
        <button key="send" type="submit" class="round" aria-label="Send" title="Send (Enter)" disabled={!canSend}>
          <Icon name="send" />
        </button>
      )}
    </form>
  );
}
