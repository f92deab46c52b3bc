// The text format of Prometheus 0.0.4, as far as a reader of GET /metrics needs it: samples by name.

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

export type Samples = Map<string, Sample[]>;

const kLine = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const kLabel = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

function number(text: string): number {
  if (text === '+Inf') return Infinity;
  if (text === '-Inf') return -Infinity;
  return Number(text);
}

const unescape = (text: string) => text.replace(/\\(.)/g, (_, c: string) => (c === 'n' ? '\n' : c));

// Lines that are not samples are passed over.
export function parseMetrics(text: string): Samples {
  const samples: Samples = new Map();
  for (const line of text.split('\n')) {
    const match = line.startsWith('#') ? null : kLine.exec(line.trim());
    if (!match) continue;
    const [, name, labelText = '', value] = match as unknown as [string, string, string | undefined, string];
    const labels = Object.fromEntries([...labelText.matchAll(kLabel)].map(([, key, text]) => [key, unescape(text!)]));
    const list = samples.get(name) ?? [];
    list.push({ labels, value: number(value) });
    samples.set(name, list);
  }
  return samples;
}

// Over all series; undefined where the server has no such metric.
export const sum = (samples: Samples, name: string): number | undefined =>
  samples.get(name)?.reduce((total, sample) => total + sample.value, 0);

// Counts by upper bound (not cumulative), the last bound Infinity; `sum` is that of the values.
export interface Histogram {
  bounds: number[];
  counts: number[];
  sum: number;
}

export function histogram(samples: Samples, name: string): Histogram | undefined {
  const buckets = samples.get(`${name}_bucket`);
  if (!buckets) return undefined;
  const below = new Map<number, number>(); // cumulative, over all series
  for (const { labels, value } of buckets) {
    const bound = number(labels.le ?? 'NaN');
    if (!Number.isNaN(bound)) below.set(bound, (below.get(bound) ?? 0) + value);
  }
  const bounds = [...below.keys()].sort((a, b) => a - b);
  const counts = bounds.map((bound, i) => below.get(bound)! - (i > 0 ? below.get(bounds[i - 1]!)! : 0));
  return { bounds, counts, sum: sum(samples, `${name}_sum`) ?? 0 };
}

// What came in between two readings. A restart of the server in between makes `before` meaningless: then `after`
// stands.
export function since(after: Histogram, before: Histogram | undefined): Histogram {
  if (!before || before.bounds.length !== after.bounds.length) return after;
  const counts = after.counts.map((count, i) => count - before.counts[i]!);
  if (counts.some(count => count < 0)) return after;
  return { bounds: after.bounds, counts, sum: after.sum - before.sum };
}

export const total = (histogram: Histogram): number => histogram.counts.reduce((a, b) => a + b, 0);

// An estimate: linear within the bucket that holds it; the last finite bound for what is beyond. NaN where nothing is.
export function quantile(histogram: Histogram, q: number): number {
  const wanted = q * total(histogram);
  let below = 0;
  for (const [i, count] of histogram.counts.entries()) {
    if (count > 0 && below + count >= wanted) {
      const low = i > 0 ? histogram.bounds[i - 1]! : 0;
      const high = histogram.bounds[i]!;
      return Number.isFinite(high) ? low + ((high - low) * (wanted - below)) / count : low;
    }
    below += count;
  }
  return NaN;
}
