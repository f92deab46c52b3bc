// The batch as it runs: sequences, blocks, tokens a second, latencies. Everything is what GET /metrics says; see
// readings.ts.
import { useState } from 'preact/hooks';
import { since } from '../api/prometheus';
import { BlocksBar } from './blocks_bar';
import { bytes, count, decimal, share } from './format';
import { HistogramChart } from './histogram_chart';
import { type Reading, rate } from './readings';
import { TimeChart } from './time_chart';
import { useReadings } from './use_readings';

const kSpansS = [30, 60, 180]; // what the charts can show: the first that holds all readings
const kRateOver = 3; // readings: counters move in steps, and a rate over a few of them is steadier

function Figure({ name, value, note }: { name: string; value: string; note?: string }) {
  return (
    <div class="card figure">
      <dt>{name}</dt>
      <dd>
        <span>{value}</span> {note && <span class="hint">{note}</span>}
      </dd>
    </div>
  );
}

function Figures({ list }: { list: Reading[] }) {
  const now = list.at(-1)!;
  const before = list.at(-1 - kRateOver) ?? list[0];
  const generated = rate(before, now, 'generatedTokens');
  const computed = rate(before, now, 'computedTokens');
  const { ended } = now;
  const failed = ended.error ?? 0;
  const answers = Object.entries(ended).reduce((total, [reason, n]) => (reason === 'abort' ? total : total + n), 0);
  return (
    <dl class="figures">
      {now.running !== undefined && <Figure name="Running" value={count(now.running)} note="sequences" />}
      {now.waiting !== undefined && <Figure name="Waiting" value={count(now.waiting)} note="sequences" />}
      {now.generatedTokens !== undefined && (
        <Figure name="Generated" value={generated === undefined ? '–' : decimal(generated)} note="tokens/s" />
      )}
      {now.computedTokens !== undefined && (
        <Figure name="Prompts read" value={computed === undefined ? '–' : decimal(computed)} note="tokens/s" />
      )}
      {now.preemptions !== undefined && (
        <Figure name="Preemptions" value={count(now.preemptions)} note="since the start" />
      )}
      {now.prefixQueryTokens !== undefined && (
        <Figure
          name="Prefix cache"
          value={share(now.prefixHitTokens ?? 0, now.prefixQueryTokens)}
          note="of prompt tokens found"
        />
      )}
      {Object.keys(ended).length > 0 && (
        <Figure
          name="Answers"
          value={count(answers)}
          note={failed > 0 ? `${count(failed)} failed` : `${count(ended.abort ?? 0)} abandoned`}
        />
      )}
      {now.residentBytes !== undefined && <Figure name="Memory" value={bytes(now.residentBytes)} note="resident" />}
    </dl>
  );
}

function Charts({ list }: { list: Reading[] }) {
  const now = list.at(-1)!;
  const agesS = list.map(reading => (now.atMs - reading.atMs) / 1000);
  const rates = (field: 'generatedTokens' | 'computedTokens') =>
    list.map((reading, i) => rate(list[i - kRateOver] ?? list[0], reading, field));
  const common = { agesS, spanS: kSpansS.find(span => span >= agesS[0]!) ?? kSpansS.at(-1)! };
  return (
    <div class="charts">
      {now.generatedTokens !== undefined && (
        <TimeChart
          {...common}
          title="Tokens a second"
          format={decimal}
          lines={[
            { name: 'generated', values: rates('generatedTokens') },
            { name: 'prompts', values: rates('computedTokens') },
          ]}
        />
      )}
      {now.running !== undefined && (
        <TimeChart
          {...common}
          title="Sequences"
          format={count}
          lines={[
            { name: 'running', values: list.map(r => r.running) },
            { name: 'waiting', values: list.map(r => r.waiting) },
          ]}
        />
      )}
    </div>
  );
}

function Latencies({ list }: { list: Reading[] }) {
  const [recent, setRecent] = useState(false);
  const now = list.at(-1)!,
    oldest = list[0]!;
  if (!now.firstToken && !now.betweenTokens) return null;
  const of = (field: 'firstToken' | 'betweenTokens') =>
    now[field] && (recent ? since(now[field], oldest[field]) : now[field]);
  const firstToken = of('firstToken'),
    betweenTokens = of('betweenTokens');
  return (
    <section aria-labelledby="latencies">
      <div class="section-head">
        <h2 id="latencies">Latencies</h2>
        <div class="switch" role="group" aria-label="Which answers">
          <button type="button" aria-pressed={!recent} onClick={() => setRecent(false)}>
            since the start
          </button>
          <button type="button" aria-pressed={recent} onClick={() => setRecent(true)}>
            while I look
          </button>
        </div>
      </div>
      <div class="charts">
        {firstToken && (
          <HistogramChart title="Time to first token" hint="No answer began yet." histogram={firstToken} />
        )}
        {betweenTokens && (
          <HistogramChart title="Between tokens" hint="No second token yet." histogram={betweenTokens} />
        )}
      </div>
    </section>
  );
}

export function LiveView() {
  const { list, problem } = useReadings();
  return (
    <main class="page live" aria-label="Live view">
      {problem && (
        <p class="banner" role="alert">
          {problem}
          {list.length > 0 && ' What is shown is the last that was read.'}
        </p>
      )}
      {list.length === 0 && !problem && <p class="nothing">Reading …</p>}
      {list.length > 0 && (
        <>
          <h1 class="for-ears">Live view</h1>
          <Figures list={list} />
          {list.at(-1)!.blocks !== undefined && <BlocksBar reading={list.at(-1)!} />}
          <Charts list={list} />
          <Latencies list={list} />
        </>
      )}
    </main>
  );
}
