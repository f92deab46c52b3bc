// An answer token by token, each coloured by how likely it was, with the likeliest alternatives of the one under the
// mouse. By keyboard: the text takes the focus once, then the arrow keys go from token to token.
import { memo } from 'preact/compat';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ShownToken } from './conversation';

const percent = (logprob: number): string => {
  const p = Math.exp(logprob) * 100;
  return p >= 99.95 || p === 0
    ? `${Math.round(p)} %`
    : p >= 10
      ? `${p.toFixed(1)} %`
      : p >= 0.01
        ? `${p.toFixed(2)} %`
        : '< 0.01 %';
};

// Five steps, from sure to a surprise: style/chat.css has their colours.
const level = (logprob: number): number => {
  const p = Math.exp(logprob);
  return p >= 0.9 ? 0 : p >= 0.5 ? 1 : p >= 0.2 ? 2 : p >= 0.05 ? 3 : 4;
};

// White space is made visible; the token itself stays as it is on the page.
const visible = (text: string) => (text === '' ? '…' : text.replace(/ /g, '␣').replace(/\n/g, '⏎').replace(/\t/g, '⇥'));

const TokenSpan = memo(({ index, token, current }: { index: number; token: ShownToken; current: boolean }) => (
  <span class={`token p${level(token.logprob)} ${current ? 'current' : ''}`} data-token={index}>
    {token.text}
  </span>
));

function Choices({ token, id }: { token: ShownToken; id: string }) {
  const others = token.top.length > 0 ? token.top : [[token.text, token.logprob] as [string, number]];
  const listed = others.some(([, logprob]) => logprob === token.logprob);
  const rows = listed ? others : [...others, [token.text, token.logprob] as [string, number]];
  let marked = false;
  return (
    <table class="choices" id={id}>
      <caption class="for-ears">Probabilities at this place</caption>
      <tbody>
        {rows.map(([text, logprob], i) => {
          const taken = !marked && logprob === token.logprob;
          marked ||= taken;
          return (
            <tr key={i} class={taken ? 'taken' : ''}>
              <th scope="row">
                {visible(text)}
                {taken && <span class="for-ears"> (taken)</span>}
              </th>
              <td class="bar">
                <span style={{ width: `${Math.exp(logprob) * 100}%` }} />
              </td>
              <td>{percent(logprob)}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

const kGapPx = 4;
const kSteps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 };

export function TokensView({ tokens }: { tokens: ShownToken[] }) {
  const [current, setCurrent] = useState(-1);
  const [place, setPlace] = useState({ left: 0, top: 0 });
  const box = useRef<HTMLDivElement>(null);
  const popover = useRef<HTMLDivElement>(null);
  const id = useId();
  const token = tokens[current];

  // Beside its token, in the coordinates of the window: under it, or above where the window ends. Scrolling would part
  // the two.
  useLayoutEffect(() => {
    const span = box.current?.querySelector(`[data-token="${current}"]`);
    if (!span || !popover.current) return;
    const at = span.getClientRects()[0] ?? span.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = popover.current;
    const left = Math.max(kGapPx, Math.min(at.left, innerWidth - width - kGapPx));
    const below = at.bottom + height + 2 * kGapPx < innerHeight;
    setPlace({ left, top: below ? at.bottom + kGapPx : Math.max(kGapPx, at.top - height - kGapPx) });
    const hide = () => setCurrent(-1);
    addEventListener('scroll', hide, { capture: true, once: true });
    return () => removeEventListener('scroll', hide, { capture: true });
  }, [current]);

  const over = (event: Event) => {
    const span = event.target instanceof Element ? event.target.closest('[data-token]') : null;
    if (span) setCurrent(Number(span.getAttribute('data-token')));
  };
  const go = (index: number) => {
    box.current!.querySelector(`[data-token="${index}"]`)?.scrollIntoView({ block: 'nearest' });
    // Scrolling tells of itself a frame later, and would hide what is shown now.
    requestAnimationFrame(() => requestAnimationFrame(() => setCurrent(index)));
  };
  const pressed = (event: KeyboardEvent) => {
    const step = kSteps[event.key];
    if (event.key === 'Escape' && token) setCurrent(-1);
    else if (step !== undefined) go(Math.min(Math.max(current + step, 0), tokens.length - 1));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="tokens" ref={box} onMouseLeave={() => setCurrent(-1)}>
      <div
        class="tokens-text"
        tabIndex={0}
        role="group"
        aria-label="Tokens: the arrow keys go from one to the next"
        aria-describedby={token && id}
        onMouseOver={over}
        onClick={over}
        onKeyDown={pressed}
        onBlur={() => setCurrent(-1)}
      >
        {tokens.map((t, i) => (
          <TokenSpan key={i} index={i} token={t} current={i === current} />
        ))}
      </div>
      {token && (
        <div class="popover" ref={popover} role="status" style={{ left: `${place.left}px`, top: `${place.top}px` }}>
          <Choices token={token} id={id} />
        </div>
      )}
    </div>
  );
}
