// POST /v1/chat/completions as a stream of what the page wants to know: pieces of text, tokens with their
// probabilities, the end. Fields that the person left empty are not sent, so the server's (and the model's) own
// defaults hold.
import { ApiError, brokenOff, errorOfEvent, isAbort } from './error';
import { postJson } from './http';
import { eventsOf } from './sse';

const kSilentMs = 60_000;

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repetition_penalty?: number;
  max_tokens?: number;
  seed?: number;
  logprobs?: boolean;
  top_logprobs?: number;
}

export interface TokenChoice {
  bytes: number[];
  logprob: number;
}

export interface SampledToken extends TokenChoice {
  top: TokenChoice[];
}

export interface Usage {
  promptTokens: number;
  outputTokens: number;
  cachedTokens: number;
}

export type ChatEvent =
  | { kind: 'text'; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'tokens'; tokens: SampledToken[] }
  | { kind: 'finish'; reason: string; seed?: number }
  | { kind: 'usage'; usage: Usage };

interface WireToken {
  token: string;
  logprob: number;
  bytes?: number[] | null;
  top_logprobs?: WireToken[];
}

interface WireChunk {
  choices?: {
    delta?: { content?: string | null; reasoning_content?: string | null };
    logprobs?: { content?: WireToken[] | null } | null;
    finish_reason?: string | null;
    seed?: number;
  }[];
  usage?: {
    prompt_tokens: number;
    completion_tokens: number;
    prompt_tokens_details?: { cached_tokens?: number };
  } | null;
}

const choice = (token: WireToken): TokenChoice => ({
  bytes: token.bytes ?? [...new TextEncoder().encode(token.token)],
  logprob: token.logprob,
});

function* eventsOfChunk(chunk: WireChunk): Generator<ChatEvent> {
  for (const { delta, logprobs, finish_reason, seed } of chunk.choices ?? []) {
    if (logprobs?.content?.length) {
      yield {
        kind: 'tokens',
        tokens: logprobs.content.map(t => ({ ...choice(t), top: (t.top_logprobs ?? []).map(choice) })),
      };
    }
    if (delta?.reasoning_content) yield { kind: 'reasoning', text: delta.reasoning_content };
    if (delta?.content) yield { kind: 'text', text: delta.content };
    if (finish_reason) yield { kind: 'finish', reason: finish_reason, seed };
  }
  if (chunk.usage) {
    const { prompt_tokens, completion_tokens, prompt_tokens_details } = chunk.usage;
    yield {
      kind: 'usage',
      usage: {
        promptTokens: prompt_tokens,
        outputTokens: completion_tokens,
        cachedTokens: prompt_tokens_details?.cached_tokens ?? 0,
      },
    };
  }
}

function parse(data: string): WireChunk {
  try {
    return JSON.parse(data) as WireChunk;
  } catch {
    throw new ApiError('refused', 'The server sent an event that is not JSON.');
  }
}

// Ends after "[DONE]". Throws ApiError, also for a stream that ends without it, and AbortError when `stopper` was
// aborted.
export async function* chat(request: ChatRequest, stopper: AbortController): AsyncGenerator<ChatEvent> {
  const connection = new AbortController(); // ends with the stopper, or with a silence
  const forward = () => connection.abort();
  if (stopper.signal.aborted) forward();
  stopper.signal.addEventListener('abort', forward);
  try {
    const response = await postJson(
      'v1/chat/completions',
      { ...request, stream: true, stream_options: { include_usage: true } },
      connection.signal,
    );
    for await (const data of eventsOf(response, kSilentMs, forward)) {
      if (data === '[DONE]') return;
      const chunk = parse(data);
      const error = errorOfEvent(chunk);
      if (error) throw error;
      yield* eventsOfChunk(chunk);
    }
    throw brokenOff();
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw isAbort(error) && stopper.signal.aborted ? error : brokenOff();
  } finally {
    stopper.signal.removeEventListener('abort', forward);
    connection.abort(); // whoever stops reading has stopped the answer
  }
}
