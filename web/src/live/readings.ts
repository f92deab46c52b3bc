// What the server is doing, read from GET /metrics: one Reading each time, and the last minutes of them. A server
// without /metrics still has GET /ready, which tells less. Fields that nobody gave are undefined, and not shown.
import { ApiError } from '../api/error';
import { call } from '../api/http';
import { type Histogram, type Samples, histogram, parseMetrics, sum } from '../api/prometheus';

export interface Reading {
  atMs: number;
  running?: number;
  waiting?: number;
  blocks?: number;
  blocksUsed?: number;
  blocksShared?: number;
  blocksCached?: number;
  preemptions?: number;
  generatedTokens?: number; // counters since the start of the server, as are those below
  computedTokens?: number; // of prompts
  prefixQueryTokens?: number;
  prefixHitTokens?: number;
  residentBytes?: number;
  startedAtS?: number;
  ended: Record<string, number>; // choices by reason
  firstToken?: Histogram; // seconds
  betweenTokens?: Histogram;
}

const kSums = {
  running: 'hone_sequences_running',
  waiting: 'hone_sequences_waiting',
  blocks: 'hone_kv_blocks',
  blocksUsed: 'hone_kv_blocks_used',
  blocksShared: 'hone_kv_blocks_shared',
  blocksCached: 'hone_kv_blocks_cached',
  preemptions: 'hone_preemptions_total',
  generatedTokens: 'hone_generation_tokens_total',
  computedTokens: 'hone_computed_prompt_tokens_total',
  prefixQueryTokens: 'hone_prefix_query_tokens_total',
  prefixHitTokens: 'hone_prefix_hit_tokens_total',
  residentBytes: 'hone_resident_bytes',
  startedAtS: 'hone_start_time_seconds',
} as const;

export function readingOf(samples: Samples, atMs: number): Reading {
  const ended: Record<string, number> = {};
  for (const { labels, value } of samples.get('hone_requests_total') ?? []) {
    const reason = labels.finished_reason ?? '';
    ended[reason] = (ended[reason] ?? 0) + value;
  }
  const sums = Object.fromEntries(Object.entries(kSums).map(([field, name]) => [field, sum(samples, name)]));
  return {
    ...sums,
    atMs,
    ended,
    firstToken: histogram(samples, 'hone_time_to_first_token_seconds'),
    betweenTokens: histogram(samples, 'hone_inter_token_seconds'),
  };
}

interface Ready {
  running?: number;
  waiting?: number;
  kv_blocks?: number;
  kv_blocks_used?: number;
  preemptions?: number;
}

async function readReady(): Promise<Reading> {
  const response = await call('ready');
  const { running, waiting, kv_blocks, kv_blocks_used, preemptions } = (await response.json()) as Ready;
  return {
    atMs: performance.now(),
    ended: {},
    running,
    waiting,
    blocks: kv_blocks,
    blocksUsed: kv_blocks_used,
    preemptions,
  };
}

export async function read(): Promise<Reading> {
  let response: Response;
  try {
    response = await call('metrics');
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return readReady();
    throw error;
  }
  return readingOf(parseMetrics(await response.text()), performance.now());
}

// How much of a counter came a second, between two readings; undefined where it is not known, or the server was
// restarted.
export function rate(
  before: Reading | undefined,
  after: Reading,
  field: 'generatedTokens' | 'computedTokens',
): number | undefined {
  const [from, to] = [before?.[field], after[field]];
  if (before === undefined || from === undefined || to === undefined || to < from || after.atMs <= before.atMs)
    return undefined;
  return ((to - from) * 1000) / (after.atMs - before.atMs);
}
