// A line over the last minutes: right is now. Hovering (or, with the focus on it, the arrow keys) shows the value of a
// moment.
import { useState } from 'preact/hooks';

export interface Line {
  name: string;
  values: (number | undefined)[]; // one a reading, oldest first; undefined: a gap
}

interface Props {
  title: string;
  lines: Line[];
  agesS: number[]; // of the readings
  spanS: number; // what the whole width is
  format: (value: number) => string;
}

const kWidth = 300,
  kHeight = 90;

// The next of 1, 2, 5, 10, 20, 50 ... so that the scale does not jump with every value.
export function ceiling(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find(step => step * power >= value)! * power;
}

// Runs of values that are there, as SVG paths.
function pathOf(values: (number | undefined)[], x: (i: number) => number, y: (value: number) => number): string {
  return values
    .map((value, i) =>
      value === undefined ? '' : `${values[i - 1] === undefined ? 'M' : 'L'}${x(i).toFixed(1)} ${y(value).toFixed(1)}`,
    )
    .join('');
}

export function TimeChart({ title, lines, agesS, spanS, format }: Props) {
  const [at, setAt] = useState(-1);
  const top = ceiling(Math.max(0, ...lines.flatMap(line => line.values.map(value => value ?? 0))));
  const x = (i: number) => Math.max(0, kWidth * (1 - agesS[i]! / spanS));
  const y = (value: number) => kHeight * (1 - value / top);
  const n = agesS.length;
  const shown = at >= 0 && at < n ? at : n - 1;

  const over = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const age = spanS * (1 - (event.clientX - box.left) / box.width);
    setAt(agesS.reduce((best, a, i) => (Math.abs(a - age) < Math.abs(agesS[best]! - age) ? i : best), 0));
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.preventDefault();
    setAt(Math.min(Math.max(shown + (event.key === 'ArrowLeft' ? -1 : 1), 0), n - 1));
  };
  const told =
    n === 0
      ? 'no reading yet'
      : lines
          .map(({ name, values }) => `${name} ${values[shown] === undefined ? '–' : format(values[shown]!)}`)
          .join(', ');

  return (
    <figure class="card chart">
      <figcaption>
        <h3>{title}</h3>
        <div class="legend">
          {lines.map(({ name, values }, i) => (
            <span key={name} class={`line-${i}`}>
              {name} <b>{values[shown] === undefined ? '–' : format(values[shown]!)}</b>
            </span>
          ))}
        </div>
      </figcaption>
      <div
        class="plot"
        tabIndex={0}
        role="img"
        aria-label={`${title}: ${told}`}
        onPointerMove={over}
        onPointerLeave={() => setAt(-1)}
        onKeyDown={pressed}
        onBlur={() => setAt(-1)}
      >
        <svg viewBox={`0 0 ${kWidth} ${kHeight}`} preserveAspectRatio="none" aria-hidden="true">
          <path class="grid" d={`M0 .5H${kWidth}M0 ${kHeight / 2}H${kWidth}M0 ${kHeight - 0.5}H${kWidth}`} />
          {/* Readings that are older than the width of the chart end at its left edge. */}
          {lines.map(({ name, values }, i) => (
            <path key={name} class={`line line-${i}`} d={pathOf(values, x, y)} />
          ))}
          {at >= 0 && at < n && <path class="cursor" d={`M${x(at).toFixed(1)} 0V${kHeight}`} />}
        </svg>
        <span class="scale">{format(top)}</span>
      </div>
      <div class="axis">
        <span>{spanS < 60 ? `${spanS} s` : `${Math.round(spanS / 60)} min`} ago</span>
        <span>{at >= 0 && at < n ? `${Math.round(agesS[at]!)} s ago` : 'now'}</span>
      </div>
    </figure>
  );
}
