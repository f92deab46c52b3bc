// A histogram with the buckets of the server: each bar is one bucket, so widths say nothing and heights are counts. The
// middle and the slow ends are estimated within their buckets. The same numbers are in a table for those who do not see
// bars.
import { useState } from 'preact/hooks';
import { type Histogram, quantile, total } from '../api/prometheus';
import { count, seconds } from './format';

const kQuantiles = [0.5, 0.9, 0.99];

// The buckets between the first and the last that hold something, and one beyond on both sides.
function inUse({ counts }: Histogram): [number, number] {
  const first = counts.findIndex(n => n > 0);
  const last = counts.findLastIndex(n => n > 0);
  return [Math.max(0, first - 1), Math.min(counts.length - 1, last + 1)];
}

const rangeText = ({ bounds }: Histogram, i: number): string =>
  Number.isFinite(bounds[i]!)
    ? `${i > 0 ? seconds(bounds[i - 1]!) : '0'} to ${seconds(bounds[i]!)}`
    : `over ${seconds(bounds[i - 1]!)}`;

// Bounds under the edges between bars, as many as there is room for.
function Ticks({ histogram: { bounds }, first, last }: { histogram: Histogram; first: number; last: number }) {
  const bars = last - first + 1;
  const every = Math.ceil(bars / 7);
  const edges = Array.from({ length: bars + 1 }, (_, i) => ({ i, bound: first + i > 0 ? bounds[first + i - 1]! : 0 }));
  return (
    <div class="ticks" aria-hidden="true">
      {edges
        .filter(({ i, bound }) => i % every === 0 && Number.isFinite(bound))
        .map(({ i, bound }) => (
          <span
            key={i}
            class={i === 0 ? 'at-start' : i === bars ? 'at-end' : ''}
            style={{ left: `${(i / bars) * 100}%` }}
          >
            {bound === 0 ? '0' : seconds(bound)}
          </span>
        ))}
    </div>
  );
}

export function HistogramChart({ title, hint, histogram }: { title: string; hint: string; histogram: Histogram }) {
  const [at, setAt] = useState(-1);
  const all = total(histogram);
  const [first, last] = inUse(histogram);
  const shown = all > 0 ? Array.from({ length: last - first + 1 }, (_, i) => first + i) : [];
  const most = Math.max(1, ...histogram.counts);
  return (
    <figure class="card chart histogram">
      <figcaption>
        <h3>{title}</h3>
        <div class="legend">
          {kQuantiles.map(q => (
            <span key={q}>
              p{q * 100} <b>{seconds(quantile(histogram, q))}</b>
            </span>
          ))}
          <span>
            mean <b>{seconds(all > 0 ? histogram.sum / all : NaN)}</b>
          </span>
          <span>
            {at >= 0 && at <= last ? (
              <>
                {rangeText(histogram, at)} <b>{count(histogram.counts[at]!)}</b>
              </>
            ) : (
              <>
                in all <b>{count(all)}</b>
              </>
            )}
          </span>
        </div>
      </figcaption>
      {all === 0 ? (
        <p class="nothing">{hint}</p>
      ) : (
        <>
          <div class="bars" aria-hidden="true" onPointerLeave={() => setAt(-1)}>
            {shown.map(i => (
              <div key={i} class={`bar ${i === at ? 'current' : ''}`} onPointerEnter={() => setAt(i)}>
                <span
                  style={{ height: `${(histogram.counts[i]! / most) * 100}%` }}
                  class={histogram.counts[i]! > 0 ? 'some' : ''}
                />
              </div>
            ))}
          </div>
          <Ticks histogram={histogram} first={first} last={last} />
          <table class="for-ears">
            <caption>{title}: counts by time</caption>
            <tbody>
              {shown.map(i => (
                <tr key={i}>
                  <th scope="row">{rangeText(histogram, i)}</th>
                  <td>{count(histogram.counts[i]!)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
    </figure>
  );
}
