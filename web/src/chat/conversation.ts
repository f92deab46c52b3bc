// A conversation: turns, each a question and the answers that were given to it (regenerating adds one). Pure functions
// and plain data; use_chat.ts keeps it while answers stream, conversation_file.ts on disk.
import type { ChatMessage, Usage } from '../api/chat';

// How an answer ended. '' while it streams; the server's finish_reason otherwise, or one of the page's own two.
export type Finish = '' | 'stop' | 'length' | 'stopped' | 'failed' | (string & {});

// A token as it is shown. `text` is empty where it holds only part of a character; the next one then has the whole.
export interface ShownToken {
  text: string;
  logprob: number;
  top: [text: string, logprob: number][];
}

export interface Failure {
  kind: 'refused' | 'lost';
  message: string;
  status: number;
  code: string;
  retryAfterSeconds: number;
}

export interface Answer {
  text: string;
  reasoning: string;
  tokens: ShownToken[];
  finish: Finish;
  failure?: Failure;
  usage?: Usage;
  seed?: number;
  firstTokenMs?: number; // from the request to the first piece
  streamMs?: number; // from the first piece to the last
  pieces: number;
}

export interface Turn {
  id: number;
  question: string;
  answers: Answer[];
  shown: number; // index into answers
}

export interface Conversation {
  turns: Turn[];
}

export const empty: Conversation = { turns: [] };

export const newAnswer = (): Answer => ({ text: '', reasoning: '', tokens: [], finish: '', pieces: 0 });

export const shownAnswer = (turn: Turn): Answer | undefined => turn.answers[turn.shown];

export const nextId = ({ turns }: Conversation): number => turns.reduce((most, turn) => Math.max(most, turn.id), 0) + 1;

export const ask = (conversation: Conversation, question: string): Conversation => ({
  turns: [...conversation.turns, { id: nextId(conversation), question, answers: [newAnswer()], shown: 0 }],
});

function change(conversation: Conversation, id: number, fn: (turn: Turn) => Turn): Conversation {
  return { turns: conversation.turns.map(turn => (turn.id === id ? fn(turn) : turn)) };
}

// Another question in place of an earlier one: it, its answers and all that followed go.
export function askAgain(conversation: Conversation, id: number, question: string): Conversation {
  const at = conversation.turns.findIndex(turn => turn.id === id);
  return at < 0 ? conversation : ask({ turns: conversation.turns.slice(0, at) }, question);
}

// One more answer to the last question. An answer that said nothing is replaced.
export function answerAgain(conversation: Conversation): Conversation {
  const last = conversation.turns.at(-1);
  if (!last) return conversation;
  return change(conversation, last.id, turn => {
    const answers = [...turn.answers.filter(answer => answer.text), newAnswer()];
    return { ...turn, answers, shown: answers.length - 1 };
  });
}

export const show = (conversation: Conversation, id: number, index: number): Conversation =>
  change(conversation, id, turn => ({ ...turn, shown: Math.min(Math.max(index, 0), turn.answers.length - 1) }));

// The last answer of the last turn, which is the one that can be streaming.
export function setLastAnswer(conversation: Conversation, answer: Answer): Conversation {
  const last = conversation.turns.at(-1);
  if (!last) return conversation;
  return change(conversation, last.id, turn => ({ ...turn, answers: [...turn.answers.slice(0, -1), answer] }));
}

// Whether the model is told of this turn once it is not the last: a question that got no answer does not count, since
// chat templates want roles to alternate.
export const counts = (turn: Turn): boolean => (shownAnswer(turn)?.text ?? '') !== '';

// What is sent to have the last question answered.
export function messagesOf(conversation: Conversation, system: string): ChatMessage[] {
  const messages: ChatMessage[] = [];
  if (system.trim()) messages.push({ role: 'system', content: system });
  const last = conversation.turns.at(-1);
  for (const turn of conversation.turns) {
    if (turn === last) {
      messages.push({ role: 'user', content: turn.question });
    } else if (counts(turn)) {
      messages.push({ role: 'user', content: turn.question }, { role: 'assistant', content: shownAnswer(turn)!.text });
    }
  }
  return messages;
}
