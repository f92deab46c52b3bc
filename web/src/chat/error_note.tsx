// Why an answer failed, in words a person can act on, with the server's own words.
import { useEffect, useState } from 'preact/hooks';
import type { Failure } from './conversation';

interface Props {
  failure: Failure;
  canRetry: boolean;
  onRetry: () => void;
  onKey: () => void;
}

function titleOf({ kind, status }: Failure): string {
  if (kind === 'lost') return 'Connection lost';
  if (status === 401 || status === 403) return 'Not allowed';
  if (status === 429) return 'The server is busy';
  if (status === 503) return 'The server takes no requests now';
  if (status >= 500) return 'The server failed';
  if (status >= 400) return 'The request was refused';
  return 'The answer broke off';
}

// Seconds until the server wants to be asked again.
function useCountdown(seconds: number): number {
  const [left, setLeft] = useState(seconds);
  useEffect(() => {
    const end = performance.now() + seconds * 1000;
    setLeft(seconds);
    if (seconds <= 0) return;
    const timer = setInterval(() => {
      const now = Math.max(0, Math.ceil((end - performance.now()) / 1000));
      setLeft(now);
      if (now === 0) clearInterval(timer);
    }, 250);
    return () => clearInterval(timer);
  }, [seconds]);
  return left;
}

export function ErrorNote({ failure, canRetry, onRetry, onKey }: Props) {
  const left = useCountdown(failure.retryAfterSeconds);
  return (
    <div class="error" role="alert">
      <strong>{titleOf(failure)}</strong>
      <p>{failure.message}</p>
      {(failure.status > 0 || failure.code) && (
        <p class="hint">{[failure.status || '', failure.code].filter(Boolean).join(' · ')}</p>
      )}
      {canRetry && (
        <div class="error-buttons">
          {failure.status === 401 && (
            <button type="button" class="button" onClick={onKey}>
              Enter a key
            </button>
          )}
          <button type="button" class="button" onClick={onRetry}>
            {left > 0 ? `Try again (advised in ${left} s)` : 'Try again'}
          </button>
        </div>
      )}
    </div>
  );
}
