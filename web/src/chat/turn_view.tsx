// One turn: the question, which can be edited, and the answer that is shown.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { IconButton } from '../shell/icons';
import { AnswerView } from './answer_view';
import { fitHeight } from './composer';
import { type Turn, counts, shownAnswer } from './conversation';

interface Props {
  turn: Turn;
  last: boolean;
  busy: boolean;
  editing: boolean;
  onEdit: () => void;
  onEditEnd: () => void;
  onAsk: (question: string) => void;
  onRegenerate: () => void;
  onShow: (index: number) => void;
  onKey: () => void;
}

export function TurnView({ turn, last, busy, editing, onEdit, onEditEnd, onAsk, onRegenerate, onShow, onKey }: Props) {
  const answer = shownAnswer(turn);
  const leftOut = !last && !counts(turn);
  return (
    <li class={`turn ${leftOut ? 'left-out' : ''}`}>
      {editing ? (
        <QuestionEditor question={turn.question} onCancel={onEditEnd} onSave={onAsk} more={!last} />
      ) : (
        <div class="question">
          <h2 class="for-ears">You</h2>
          <div class="bubble">{turn.question}</div>
          <IconButton icon="edit" label="Edit this message" onClick={onEdit} disabled={busy} />
        </div>
      )}
      {answer && (
        <AnswerView
          answer={answer}
          index={turn.shown}
          count={turn.answers.length}
          last={last}
          busy={busy}
          onRegenerate={onRegenerate}
          onShow={onShow}
          onKey={onKey}
        />
      )}
      {leftOut && <p class="hint">There was no answer, so the model is not told of this.</p>}
    </li>
  );
}

function QuestionEditor({
  question,
  more,
  onSave,
  onCancel,
}: {
  question: string;
  more: boolean;
  onSave: (question: string) => void;
  onCancel: () => void;
}) {
  const [text, setText] = useState(question);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    area.current!.focus();
    area.current!.setSelectionRange(text.length, text.length);
  }, []);
  useLayoutEffect(() => fitHeight(area.current!), [text]);

  const save = () => {
    if (text.trim()) onSave(text.trim());
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    save();
  };
  return (
    <form
      class="question-editor"
      onSubmit={event => {
        event.preventDefault();
        save();
      }}
    >
      <textarea
        ref={area}
        aria-label="Edit the message"
        value={text}
        onKeyDown={pressed}
        onInput={event => setText(event.currentTarget.value)}
      />
      <div class="editor-buttons">
        {more && <span class="hint">What follows it will be dropped.</span>}
        <button type="button" class="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="button main" disabled={!text.trim()}>
          Send
        </button>
      </div>
    </form>
  );
}
