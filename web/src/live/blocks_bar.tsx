// Where the blocks of keys and values are: shared by several sequences, owned by one, free but with content that a
// prompt can take over, and free.
import { count, share } from './format';
import type { Reading } from './readings';

export function BlocksBar({ reading }: { reading: Reading }) {
  const { blocks = 0, blocksUsed = 0, blocksShared, blocksCached } = reading;
  const parts: { name: string; kind: string; blocks: number; known: boolean }[] = [
    { name: 'shared', kind: 'shared', blocks: blocksShared ?? 0, known: blocksShared !== undefined },
    {
      name: blocksShared === undefined ? 'used' : 'used by one',
      kind: 'used',
      blocks: blocksUsed - (blocksShared ?? 0),
      known: true,
    },
    { name: 'cached', kind: 'cached', blocks: blocksCached ?? 0, known: blocksCached !== undefined },
    { name: 'free', kind: 'free', blocks: Math.max(0, blocks - blocksUsed - (blocksCached ?? 0)), known: true },
  ];
  const known = parts.filter(part => part.known);
  const told = known.map(part => `${part.name} ${count(part.blocks)}`).join(', ');
  return (
    <figure class="card blocks">
      <figcaption>
        <h3>KV blocks</h3>
        <div class="legend">
          <span>
            <b>{count(blocksUsed)}</b> of {count(blocks)} used, {share(blocksUsed, blocks)}
          </span>
        </div>
      </figcaption>
      <div class="blocks-bar" role="img" aria-label={`KV blocks: ${told}`}>
        {known.map(
          part =>
            part.blocks > 0 && <span key={part.kind} class={`part ${part.kind}`} style={{ flexGrow: part.blocks }} />,
        )}
      </div>
      <div class="legend">
        {known.map(part => (
          <span key={part.kind} class={`key ${part.kind}`}>
            {part.name} <b>{count(part.blocks)}</b>
          </span>
        ))}
      </div>
    </figure>
  );
}
