// An answer: reasoning, text as Markdown or as tokens, the error it ended with, and what can be done with it.
import { useEffect, useState } from 'preact/hooks';
import { IconButton } from '../shell/icons';
import { speed } from './answer_stream';
import type { Answer } from './conversation';
import { copyText } from './copy';
import { ErrorNote } from './error_note';
import { MarkdownView } from './markdown_view';
import { TokensView } from './tokens_view';

interface Props {
  answer: Answer;
  index: number;
  count: number;
  last: boolean;
  busy: boolean;
  onRegenerate: () => void;
  onShow: (index: number) => void;
  onKey: () => void;
}

const kFinishText: Record<string, string> = {
  length: 'cut at the limit',
  stopped: 'stopped',
  content_filter: 'filtered',
};

function noteOf(answer: Answer): string {
  const { usage, firstTokenMs, seed, finish } = answer;
  const tokensPerSecond = speed(answer);
  return [
    kFinishText[finish],
    usage && `${usage.promptTokens} + ${usage.outputTokens} tokens`,
    usage && usage.cachedTokens > 0 && `${usage.cachedTokens} cached`,
    tokensPerSecond !== undefined && `${tokensPerSecond.toFixed(1)} tokens/s`,
    firstTokenMs !== undefined && `first after ${(firstTokenMs / 1000).toFixed(2)} s`,
    seed !== undefined && `seed ${seed}`,
  ]
    .filter(Boolean)
    .join(' · ');
}

export function AnswerView({ answer, index, count, last, busy, onRegenerate, onShow, onKey }: Props) {
  const streaming = answer.finish === '';
  const hasTokens = answer.tokens.length > 0;
  const [asTokens, setAsTokens] = useState(true); // where there are any: they were asked for
  const waiting = streaming && !answer.text && !answer.reasoning;
  return (
    <div class="answer" aria-busy={streaming}>
      <h2 class="for-ears">Answer</h2>
      {waiting && (
        <p class="waiting">
          <span class="for-ears">Waiting for the first token</span>
          <i />
          <i />
          <i />
        </p>
      )}
      {hasTokens && asTokens ? (
        <TokensView tokens={answer.tokens} />
      ) : (
        <>
          {answer.reasoning && <Reasoning text={answer.reasoning} open={streaming && !answer.text} />}
          <MarkdownView text={answer.text} />
        </>
      )}
      {answer.failure && (
        <ErrorNote failure={answer.failure} canRetry={last && !busy} onRetry={onRegenerate} onKey={onKey} />
      )}
      {!streaming && (answer.text || !answer.failure || count > 1) && (
        <div class="answer-tools">
          {count > 1 && <Versions index={index} count={count} busy={busy} onShow={onShow} />}
          {answer.text && <CopyButton text={answer.text} />}
          {hasTokens && (
            <IconButton
              icon="tokens"
              label="Show token probabilities"
              pressed={asTokens}
              onClick={() => setAsTokens(!asTokens)}
            />
          )}
          {last && !answer.failure && (
            <IconButton icon="again" label="Answer again" onClick={onRegenerate} disabled={busy} />
          )}
          <span class="note">{noteOf(answer)}</span>
        </div>
      )}
    </div>
  );
}

function Versions({
  index,
  count,
  busy,
  onShow,
}: {
  index: number;
  count: number;
  busy: boolean;
  onShow: (index: number) => void;
}) {
  return (
    <span class="versions" role="group" aria-label="Answers to this message">
      <IconButton
        icon="back"
        label="The answer before"
        disabled={busy || index === 0}
        onClick={() => onShow(index - 1)}
      />
      <span>
        {index + 1} / {count}
      </span>
      <IconButton
        icon="forth"
        label="The next answer"
        disabled={busy || index === count - 1}
        onClick={() => onShow(index + 1)}
      />
    </span>
  );
}

function Reasoning({ text, open }: { text: string; open: boolean }) {
  return (
    <details class="reasoning" open={open}>
      <summary>{open ? 'Thinking …' : 'Thoughts'}</summary>
      <MarkdownView text={text} />
    </details>
  );
}

function CopyButton({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <IconButton
      icon={done ? 'done' : 'copy'}
      label={done ? 'Copied' : 'Copy the answer'}
      onClick={() => void copyText(text).then(setDone)}
    />
  );
}
