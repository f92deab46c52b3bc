// From the events of a stream to an Answer, piece by piece. No network and no clock of its own: the caller gives the
// time.
import type { ChatEvent, TokenChoice } from '../api/chat';
import { ApiError } from '../api/error';
import { type Answer, type Failure, newAnswer } from './conversation';

const kReplacement = '\uFFFD';

// Text of a token that is an alternative: it stands alone, so a part of a character is shown as bytes.
function alone({ bytes, logprob }: TokenChoice): [string, number] {
  const text = new TextDecoder().decode(new Uint8Array(bytes));
  const hex = () => bytes.map(byte => `<${byte.toString(16).padStart(2, '0')}>`).join('');
  return [text.includes(kReplacement) ? hex() : text, logprob];
}

export class AnswerStream {
  answer: Answer = newAnswer();
  private readonly decoder = new TextDecoder(); // across tokens: a character may be several of them

  constructor(private readonly beganMs: number) {}

  take(event: ChatEvent, nowMs: number) {
    const answer = { ...this.answer };
    switch (event.kind) {
      case 'text':
      case 'reasoning':
        if (event.kind === 'text') answer.text += event.text;
        else answer.reasoning += event.text;
        answer.firstTokenMs ??= nowMs - this.beganMs;
        answer.streamMs = nowMs - this.beganMs - answer.firstTokenMs;
        answer.pieces += 1;
        break;
      case 'tokens':
        answer.tokens = [
          ...answer.tokens,
          ...event.tokens.map(token => ({
            text: this.decoder.decode(new Uint8Array(token.bytes), { stream: true }),
            logprob: token.logprob,
            top: token.top.map(alone),
          })),
        ];
        break;
      case 'finish':
        answer.finish = event.reason;
        answer.seed = event.seed;
        break;
      case 'usage':
        answer.usage = event.usage;
        break;
    }
    this.answer = answer;
  }

  // The stream is over without its own finish: the person stopped it, or it failed.
  stop() {
    this.answer = { ...this.answer, finish: 'stopped' };
  }
  fail(error: unknown) {
    this.answer = { ...this.answer, finish: 'failed', failure: failureOf(error) };
  }
}

function failureOf(error: unknown): Failure {
  if (error instanceof ApiError) {
    const { kind, message, status, code, retryAfterSeconds } = error;
    return { kind, message, status, code, retryAfterSeconds };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { kind: 'refused', message: `The page failed: ${message}`, status: 0, code: '', retryAfterSeconds: 0 };
}

// Tokens a second while it streamed; undefined where there is too little to tell.
export function speed({ usage, pieces, streamMs }: Answer): number | undefined {
  const tokens = usage?.outputTokens ?? pieces;
  return tokens > 1 && streamMs && streamMs > 100 ? ((tokens - 1) * 1000) / streamMs : undefined;
}
