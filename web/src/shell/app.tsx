// The frame: header with the model's name and the three views, the view itself, the dialog for the API key.
// A view is one line in kViews. Read next: chat/chat_view.tsx, live/live_view.tsx, models/models_view.tsx.
import { useEffect, useState } from 'preact/hooks';
import { whenUnauthorized } from '../api/http';
import { ChatView } from '../chat/chat_view';
import { LiveView } from '../live/live_view';
import { ModelsView } from '../models/models_view';
import { IconButton } from './icons';
import { KeyDialog } from './key_dialog';
import { useTheme } from './theme';
import { type ServerFacts, useServer } from './use_server';

const kViews = [
  { name: 'chat', title: 'Chat' },
  { name: 'live', title: 'Live' },
  { name: 'models', title: 'Models' },
] as const;

type ViewName = (typeof kViews)[number]['name'];

const viewOfAddress = (): ViewName => kViews.find(view => view.name === location.hash.slice(1))?.name ?? 'chat';

function useView(): ViewName {
  const [view, setView] = useState(viewOfAddress);
  useEffect(() => {
    const changed = () => setView(viewOfAddress());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return view;
}

const kStateText = {
  asking: 'connecting',
  there: 'connected',
  away: 'the server does not answer',
  locked: 'an API key is needed',
};

function Header({
  view,
  server,
  model,
  onModel,
  onKey,
}: {
  view: ViewName;
  server: ServerFacts;
  model: string;
  onModel: (id: string) => void;
  onKey: () => void;
}) {
  const [theme, nextTheme] = useTheme();
  return (
    <header class="header">
      <a class="brand" href="#chat" aria-label="hone, to the chat">
        hone
      </a>
      <div class="model-name" title={kStateText[server.state]}>
        <span class={`dot ${server.state}`} role="img" aria-label={kStateText[server.state]} />
        {server.models.length > 1 ? (
          <select aria-label="Model" value={model} onChange={event => onModel(event.currentTarget.value)}>
            {server.models.map(({ id }) => (
              <option key={id} value={id}>
                {id}
              </option>
            ))}
          </select>
        ) : (
          <span class="ellipsis">{model || kStateText[server.state]}</span>
        )}
      </div>
      <nav class="views" aria-label="Views">
        {kViews.map(({ name, title }) => (
          <a key={name} href={`#${name}`} aria-current={name === view ? 'page' : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <div class="header-buttons">
        {server.state === 'locked' && <IconButton icon="key" label="Enter the API key" onClick={onKey} />}
        <IconButton icon={theme} label={`Colours: ${theme === 'auto' ? 'as the system' : theme}`} onClick={nextTheme} />
      </div>
    </header>
  );
}

export function App() {
  const view = useView();
  const server = useServer();
  const [chosen, setChosen] = useState('');
  const [keyOpen, setKeyOpen] = useState(false);
  const [keyRound, setKeyRound] = useState(0);
  const model = server.models.find(({ id }) => id === chosen)?.id ?? server.models[0]?.id ?? '';

  useEffect(() => whenUnauthorized(() => setKeyOpen(true)), []);
  useEffect(() => {
    const title = kViews.find(({ name }) => name === view)!.title;
    document.title = [view === 'chat' ? '' : title, model, 'hone'].filter(Boolean).join(' · ');
  }, [view, model]);

  return (
    <div class="app">
      <Header view={view} server={server} model={model} onModel={setChosen} onKey={() => setKeyOpen(true)} />
      {server.state === 'away' && (
        <p class="banner" role="alert">
          {server.problem} Trying again …
        </p>
      )}
      {/* The chat stays where it is while another view is shown: its answer goes on, and so does what was typed. */}
      <ChatView hidden={view !== 'chat'} model={model} onLost={server.reload} onKey={() => setKeyOpen(true)} />
      {view === 'live' && <LiveView key={keyRound} />}
      {view === 'models' && <ModelsView server={server} />}
      <KeyDialog
        open={keyOpen}
        onClose={() => setKeyOpen(false)}
        onSaved={() => {
          setKeyOpen(false);
          setKeyRound(n => n + 1);
          server.reload();
        }}
      />
    </div>
  );
}
