// Whether the server is there and which models it has. Asked at the start, and again every few seconds while it is
// away.
import { useEffect, useState } from 'preact/hooks';
import { ApiError } from '../api/error';
import { type Model, alive, models } from '../api/server';

export type ServerState = 'asking' | 'there' | 'away' | 'locked'; // locked: it wants an API key

export interface ServerFacts {
  state: ServerState;
  models: Model[];
  problem: string;
  reload(): void;
}

const kRetryMs = 3000;

export function useServer(): ServerFacts {
  const [facts, setFacts] = useState<Omit<ServerFacts, 'reload'>>({ state: 'asking', models: [], problem: '' });
  const [round, setRound] = useState(0);
  useEffect(() => {
    let over = false;
    models().then(
      list => {
        if (!over) setFacts({ state: 'there', models: list, problem: '' });
      },
      (error: unknown) => {
        if (over) return;
        const locked = error instanceof ApiError && error.status === 401;
        const problem = error instanceof Error ? error.message : String(error);
        setFacts(old => ({ state: locked ? 'locked' : 'away', models: old.models, problem }));
      },
    );
    return () => {
      over = true;
    };
  }, [round]);
  useEffect(() => {
    if (facts.state !== 'away') return;
    const timer = setInterval(
      () =>
        void alive().then(there => {
          if (there) setRound(n => n + 1);
        }),
      kRetryMs,
    );
    return () => clearInterval(timer);
  }, [facts.state]);
  return { ...facts, reload: () => setRound(n => n + 1) };
}
