// How answers are made, and what to do with the conversation. Beside the chat on a wide screen, over it on a narrow
// one.
import { useEffect, useRef, useState } from 'preact/hooks';
import { IconButton } from '../shell/icons';
import type { Conversation } from './conversation';
import { exportFile, importFile } from './conversation_file';
import { type NumberField, type Settings, kDefaults, kNumberFields, readNumber } from './settings';

interface Props {
  settings: Settings;
  onChange: (settings: Settings) => void;
  conversation: Conversation;
  onImport: (conversation: Conversation) => void;
  onClose: () => void;
}

const kKeys: [string, string][] = [
  ['Enter', 'send'],
  ['Shift Enter', 'new line'],
  ['Esc', 'stop the answer, close'],
  ['↑', 'edit the last message (in an empty field)'],
  ['/', 'to the message field'],
];

function NumberInput({
  field,
  value,
  onChange,
}: {
  field: NumberField;
  value?: number;
  onChange: (value?: number) => void;
}) {
  const [typed, setTyped] = useState(value === undefined ? '' : String(value));
  useEffect(() => {
    // changed from elsewhere: "Defaults"
    if (readNumber(field, typed) !== value && typeof readNumber(field, typed) !== 'string')
      setTyped(value === undefined ? '' : String(value));
  }, [value]);
  const read = readNumber(field, typed);
  const wrong = typeof read === 'string' ? read : '';
  const input = (text: string) => {
    setTyped(text);
    const next = readNumber(field, text);
    onChange(typeof next === 'string' ? undefined : next);
  };
  const id = `setting-${field.name}`;
  return (
    <div class="field number">
      <label for={id}>{field.label}</label>
      <input
        id={id}
        type="text"
        inputMode="decimal"
        autocomplete="off"
        placeholder="default"
        value={typed}
        aria-invalid={wrong !== ''}
        aria-describedby={`${id}-hint`}
        onInput={event => input(event.currentTarget.value)}
      />
      <span id={`${id}-hint`} class={wrong ? 'hint wrong' : 'hint'}>
        {wrong ? `${wrong}; not sent` : field.hint}
      </span>
    </div>
  );
}

function ConversationTools({
  conversation,
  onImport,
}: {
  conversation: Conversation;
  onImport: (conversation: Conversation) => void;
}) {
  const [problem, setProblem] = useState('');
  const picked = async (input: HTMLInputElement) => {
    const file = input.files?.[0];
    if (!file) return;
    const imported = await importFile(file);
    setProblem(imported ? '' : `${file.name} is not an exported conversation.`);
    if (imported) onImport(imported);
    input.value = '';
  };
  return (
    <section aria-labelledby="conversation-title">
      <h3 id="conversation-title">Conversation</h3>
      <div class="row-buttons">
        <button
          type="button"
          class="button"
          disabled={conversation.turns.length === 0}
          onClick={() => exportFile(conversation)}
        >
          Export
        </button>
        <label class="button file">
          Import
          <input
            class="for-ears"
            type="file"
            accept="application/json,.json"
            onChange={event => void picked(event.currentTarget)}
          />
        </label>
      </div>
      {problem && (
        <p class="hint wrong" role="alert">
          {problem}
        </p>
      )}
      <p class="hint">It is kept in this browser only; token probabilities are in the exported file only.</p>
    </section>
  );
}

export function SettingsPanel({ settings, onChange, conversation, onImport, onClose }: Props) {
  const panel = useRef<HTMLElement>(null);
  useEffect(() => panel.current!.querySelector('textarea')!.focus({ preventScroll: true }), []);
  return (
    <aside class="panel" id="settings" aria-label="Settings" ref={panel}>
      <div class="panel-head">
        <h2>Settings</h2>
        <IconButton icon="close" label="Close the settings" onClick={onClose} />
      </div>
      <label class="field" for="setting-system">
        <span>System prompt</span>
        <textarea
          id="setting-system"
          rows={3}
          placeholder="none"
          value={settings.system}
          onInput={event => onChange({ ...settings, system: event.currentTarget.value })}
        />
      </label>
      <label class="check">
        <input
          type="checkbox"
          checked={settings.probabilities}
          onChange={event => onChange({ ...settings, probabilities: event.currentTarget.checked })}
        />
        <span>
          Token probabilities<span class="hint"> of the next answers</span>
        </span>
      </label>
      <section aria-labelledby="sampling-title">
        <div class="section-head">
          <h3 id="sampling-title">Sampling</h3>
          <button
            type="button"
            class="link-button"
            onClick={() => onChange({ ...settings, numbers: kDefaults.numbers })}
          >
            Defaults
          </button>
        </div>
        {kNumberFields.map(field => (
          <NumberInput
            key={field.name}
            field={field}
            value={settings.numbers[field.name]}
            onChange={value => onChange({ ...settings, numbers: { ...settings.numbers, [field.name]: value } })}
          />
        ))}
      </section>
      <ConversationTools conversation={conversation} onImport={onImport} />
      <section aria-labelledby="keys-title">
        <h3 id="keys-title">Keys</h3>
        <dl class="keys">
          {kKeys.map(([key, what]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </section>
    </aside>
  );
}
