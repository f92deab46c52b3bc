// A conversation as JSON: in localStorage between visits, and in a file that a person takes away and brings back. Both
// come back through read(), which believes nothing: a file is a stranger's, and storage may be another version's.
import { type Answer, type Conversation, type ShownToken, type Turn, empty } from './conversation';

const kStorageName = 'hone.conversation';
const kFormat = 'hone-conversation';

// Tokens are many times the text, so storage goes without them; a file has them.
const withoutTokens = (conversation: Conversation): Conversation => ({
  turns: conversation.turns.map(turn => ({
    ...turn,
    answers: turn.answers.map(answer => ({ ...answer, tokens: [] })),
  })),
});

type Fields = Record<string, unknown>;
const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const numberOr = <T>(value: unknown, other: T): number | T =>
  typeof value === 'number' && Number.isFinite(value) ? value : other;
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

function readToken(value: unknown): ShownToken[] {
  if (!isObject(value)) return [];
  const top = list(value.top)
    .filter(Array.isArray)
    .map(([t, p]) => [text(t), numberOr(p, -Infinity)] as [string, number]);
  return [{ text: text(value.text), logprob: numberOr(value.logprob, -Infinity), top }];
}

function readAnswer(value: unknown): Answer[] {
  if (!isObject(value)) return [];
  const usage = isObject(value.usage) ? value.usage : undefined;
  const failure = isObject(value.failure) ? value.failure : undefined;
  return [
    {
      text: text(value.text),
      reasoning: text(value.reasoning),
      tokens: list(value.tokens).flatMap(readToken),
      finish: text(value.finish) || 'stopped', // it was streaming when the page was closed
      failure: failure && {
        kind: failure.kind === 'lost' ? 'lost' : 'refused',
        message: text(failure.message),
        status: numberOr(failure.status, 0),
        code: text(failure.code),
        retryAfterSeconds: 0,
      },
      usage: usage && {
        promptTokens: numberOr(usage.promptTokens, 0),
        outputTokens: numberOr(usage.outputTokens, 0),
        cachedTokens: numberOr(usage.cachedTokens, 0),
      },
      seed: numberOr(value.seed, undefined),
      firstTokenMs: numberOr(value.firstTokenMs, undefined),
      streamMs: numberOr(value.streamMs, undefined),
      pieces: numberOr(value.pieces, 0),
    },
  ];
}

function read(value: unknown): Conversation | null {
  if (!isObject(value) || value.format !== kFormat || !Array.isArray(value.turns)) return null;
  const turns: Turn[] = [];
  for (const turn of value.turns) {
    if (!isObject(turn) || !text(turn.question)) continue;
    const answers = list(turn.answers).flatMap(readAnswer);
    if (answers.length === 0) continue;
    const shown = Math.min(Math.max(Math.trunc(numberOr(turn.shown, 0)), 0), answers.length - 1);
    turns.push({ id: turns.length + 1, question: text(turn.question), answers, shown });
  }
  return { turns };
}

const write = (conversation: Conversation, indent?: number) =>
  JSON.stringify({ format: kFormat, ...conversation }, null, indent);

export function load(): Conversation {
  try {
    return read(JSON.parse(localStorage.getItem(kStorageName) ?? 'null')) ?? empty;
  } catch {
    return empty;
  }
}

// False: there is no room (or no permission) to keep it.
export function save(conversation: Conversation): boolean {
  try {
    if (conversation.turns.length === 0) localStorage.removeItem(kStorageName);
    else localStorage.setItem(kStorageName, write(withoutTokens(conversation)));
    return true;
  } catch {
    return false;
  }
}

// Hands the conversation to the person as a download.
export function exportFile(conversation: Conversation) {
  const url = URL.createObjectURL(new Blob([write(conversation, 2)], { type: 'application/json' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = `hone-${new Date().toISOString().slice(0, 16).replace(/[T:]/g, '-')}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url));
}

// null: not a file that exportFile() wrote.
export async function importFile(file: File): Promise<Conversation | null> {
  try {
    return read(JSON.parse(await file.text()));
  } catch {
    return null;
  }
}
