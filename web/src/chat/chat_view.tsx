// The chat: the conversation, the field to write in, and the settings beside it. Keys: see kKeys in settings_panel.tsx.
import { useEffect, useRef, useState } from 'preact/hooks';
import { IconButton } from '../shell/icons';
import { Composer } from './composer';
import { type Conversation, empty } from './conversation';
import { loadSettings, saveSettings } from './settings';
import { SettingsPanel } from './settings_panel';
import { TurnView } from './turn_view';
import { useChat } from './use_chat';
import { useStickToEnd } from './use_stick_to_end';

interface Props {
  hidden: boolean;
  model: string;
  onLost: () => void; // an answer failed because nobody was there
  onKey: () => void; // asks for the API key
}

// Keys that work wherever the focus is.
function usePageKeys(active: boolean, keys: Record<string, () => boolean>) {
  useEffect(() => {
    if (!active) return;
    const pressed = (event: KeyboardEvent) => {
      const typing = event.target instanceof Element && event.target.closest('input, textarea, select');
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || (typing && event.key !== 'Escape'))
        return;
      if (document.querySelector('dialog[open]')) return;
      if (keys[event.key]?.()) event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  });
}

const isWide = () => matchMedia('(min-width: 60rem)').matches;

export function ChatView({ hidden, model, onLost, onKey }: Props) {
  const [settings, setSettings] = useState(loadSettings);
  const [panel, setPanel] = useState(false);
  const [editing, setEditing] = useState(0); // the id of a turn; 0: none
  const input = useRef<HTMLTextAreaElement>(null);
  const chat = useChat(model, settings);
  const { turns } = chat.conversation;
  const stick = useStickToEnd(chat.conversation, hidden);
  const failure = turns.at(-1)?.answers.at(-1)?.failure;

  useEffect(() => saveSettings(settings), [settings]);
  useEffect(() => {
    if (failure?.kind === 'lost' && !chat.busy) onLost();
  }, [failure, chat.busy]);

  const closePanel = () => {
    setPanel(false);
    document.getElementById('settings-button')?.focus();
  };
  const replace = (conversation: Conversation) => {
    setEditing(0);
    chat.replace(conversation);
    if (isWide()) input.current?.focus();
  };
  const editLast = () => {
    const last = turns.at(-1);
    if (last && !chat.busy) setEditing(last.id);
  };

  usePageKeys(!hidden, {
    Escape: () => {
      if (chat.busy) return (chat.stop(), true);
      if (editing) return (setEditing(0), input.current?.focus(), true);
      if (panel) return (closePanel(), true);
      return false;
    },
    '/': () => (input.current?.focus(), true),
  });

  return (
    <div class={`chat ${panel ? 'with-panel' : ''}`} hidden={hidden}>
      <main class="chat-main" inert={panel && !isWide()}>
        <div class="log" ref={stick.ref} onScroll={stick.onScroll}>
          {turns.length === 0 ? (
            <Welcome model={model} />
          ) : (
            <ol class="turns" aria-label="Conversation">
              {turns.map((turn, i) => (
                <TurnView
                  key={turn.id}
                  turn={turn}
                  last={i === turns.length - 1}
                  busy={chat.busy}
                  editing={editing === turn.id}
                  onEdit={() => setEditing(turn.id)}
                  onEditEnd={() => {
                    setEditing(0);
                    input.current?.focus();
                  }}
                  onAsk={question => {
                    setEditing(0);
                    stick.toEnd();
                    chat.edit(turn.id, question);
                    input.current?.focus();
                  }}
                  onRegenerate={() => {
                    stick.toEnd();
                    chat.regenerate();
                  }}
                  onShow={index => chat.show(turn.id, index)}
                  onKey={onKey}
                />
              ))}
            </ol>
          )}
        </div>
        <div class="chat-foot">
          {!stick.atEnd && turns.length > 0 && (
            <div class="to-end">
              <IconButton icon="down" label="To the end of the conversation" onClick={stick.toEnd} />
            </div>
          )}
          <Composer
            inputRef={input}
            busy={chat.busy}
            ready={model !== ''}
            onStop={chat.stop}
            onEditLast={editLast}
            onSend={text => {
              stick.toEnd();
              chat.ask(text);
            }}
          />
          <div class="chat-tools">
            <button type="button" class="link-button" disabled={turns.length === 0} onClick={() => replace(empty)}>
              New chat
            </button>
            <button
              type="button"
              class="link-button"
              id="settings-button"
              aria-expanded={panel}
              aria-controls="settings"
              onClick={() => (panel ? closePanel() : setPanel(true))}
            >
              Settings
            </button>
            {!chat.kept && <span class="hint">too long to be kept in this browser: export it</span>}
          </div>
        </div>
      </main>
      {panel && (
        <SettingsPanel
          settings={settings}
          onChange={setSettings}
          conversation={chat.conversation}
          onImport={replace}
          onClose={closePanel}
        />
      )}
      <div class="for-ears" role="status">
        {chat.announcement}
      </div>
    </div>
  );
}

function Welcome({ model }: { model: string }) {
  return (
    <div class="welcome">
      <h1>{model || 'hone'}</h1>
      <p>Ask something. What you write stays between this browser and this server.</p>
    </div>
  );
}
