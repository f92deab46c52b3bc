// The running conversation: sends, streams, stops, and keeps it in localStorage. One answer streams at a time.
//
// Pieces may come faster than a screen shows them, so the view is told at most once a frame.
import { useEffect, useRef, useState } from 'preact/hooks';
import { chat } from '../api/chat';
import { isAbort } from '../api/error';
import { AnswerStream } from './answer_stream';
import * as conversations from './conversation';
import type { Answer, Conversation } from './conversation';
import { load, save } from './conversation_file';
import { type Settings, requestFields } from './settings';

export interface Chat {
  conversation: Conversation;
  busy: boolean;
  kept: boolean; // false: localStorage has no room for it
  announcement: string; // for screen readers
  ask(question: string): void;
  edit(id: number, question: string): void;
  regenerate(): void;
  show(id: number, index: number): void;
  stop(): void;
  replace(conversation: Conversation): void;
}

const outcomeText = (answer: Answer) =>
  answer.finish === 'failed'
    ? `Failed: ${answer.failure?.message}`
    : answer.finish === 'stopped'
      ? 'Stopped'
      : 'Answer complete';

export function useChat(model: string, settings: Settings): Chat {
  const [conversation, setConversation] = useState(load);
  const [busy, setBusy] = useState(false);
  const [kept, setKept] = useState(true);
  const [announcement, setAnnouncement] = useState('');
  const latest = useRef(conversation); // what the next change starts from, shown or not yet
  const stopper = useRef<AbortController | null>(null);

  const set = (next: Conversation) => {
    latest.current = next;
    setConversation(next);
  };

  async function stream(started: Conversation) {
    const mine = new AbortController();
    stopper.current = mine;
    const isMine = () => stopper.current === mine; // false once the conversation was replaced
    const answer = new AnswerStream(performance.now());
    let frame = 0;
    const showNow = () => {
      cancelAnimationFrame(frame);
      frame = 0;
      if (isMine()) set(conversations.setLastAnswer(latest.current, answer.answer));
    };
    set(started);
    setBusy(true);
    setAnnouncement('Answering');
    try {
      const request = {
        model,
        messages: conversations.messagesOf(started, settings.system),
        ...requestFields(settings),
      };
      for await (const event of chat(request, mine)) {
        answer.take(event, performance.now());
        // A hidden page gets no frames, and its person sees nothing: the end of the answer shows it all.
        if (!frame) frame = requestAnimationFrame(showNow);
      }
    } catch (error) {
      if (isAbort(error)) answer.stop();
      else answer.fail(error);
    }
    showNow();
    if (!isMine()) return;
    stopper.current = null;
    setBusy(false);
    setAnnouncement(outcomeText(answer.answer));
  }

  // While an answer streams it is kept every second, so that a page that is closed loses little.
  useEffect(() => {
    if (!busy) {
      setKept(save(conversation));
      return;
    }
    const timer = setInterval(() => save(latest.current), 1000);
    return () => clearInterval(timer);
  }, [busy, conversation.turns.length, busy || conversation]);

  const whenIdle = (change: (conversation: Conversation) => Conversation) => {
    if (!stopper.current) void stream(change(latest.current));
  };

  return {
    conversation,
    busy,
    kept,
    announcement,
    ask: question => whenIdle(c => conversations.ask(c, question)),
    edit: (id, question) => whenIdle(c => conversations.askAgain(c, id, question)),
    regenerate: () => whenIdle(conversations.answerAgain),
    show: (id, index) => set(conversations.show(latest.current, id, index)),
    stop: () => stopper.current?.abort(),
    replace: next => {
      const running = stopper.current;
      stopper.current = null;
      running?.abort();
      setBusy(false);
      setAnnouncement('');
      set(next);
    },
  };
}
