// The models of the server and their memory. A row is shown where the server gives its field; a new one is a line in
// kRows.
import { useEffect, useState } from 'preact/hooks';
import type { Model } from '../api/server';
import { bytes, count } from '../live/format';
import { type Reading, read } from '../live/readings';
import type { ServerFacts } from '../shell/use_server';

const text = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined);
const asNumber = (format: (value: number) => string) => (value: unknown) =>
  typeof value === 'number' ? format(value) : undefined;

const kRows: { field: string; name: string; show: (value: unknown) => string | undefined }[] = [
  { field: 'root', name: 'From', show: text },
  { field: 'parent', name: 'Made of', show: text },
  { field: 'architecture', name: 'Architecture', show: text },
  { field: 'parameters', name: 'Parameters', show: asNumber(count) },
  { field: 'weight_bytes', name: 'Weights', show: asNumber(bytes) },
  { field: 'kv_bytes', name: 'Keys and values', show: asNumber(bytes) },
  { field: 'adapter_bytes', name: 'Adapter', show: asNumber(bytes) },
  { field: 'max_model_len', name: 'Context', show: asNumber(value => `${count(value)} tokens`) },
  { field: 'created', name: 'Served since', show: asNumber(value => new Date(value * 1000).toLocaleString()) },
];

function ModelCard({ model }: { model: Model }) {
  const rows = kRows
    .map(({ field, name, show }) => [name, show(model[field])] as const)
    .filter(([, value]) => value !== undefined);
  return (
    <article class="card model" aria-labelledby={`model-${model.id}`}>
      <h2 id={`model-${model.id}`}>{model.id}</h2>
      <dl class="rows">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </article>
  );
}

// The process has the weights, the blocks and all else: its resident memory is what the machine gives for it.
function ProcessCard() {
  const [reading, setReading] = useState<Reading | null>(null);
  useEffect(() => {
    read().then(setReading, () => {});
  }, []); // no reading, no card; the live view says why
  if (reading?.residentBytes === undefined) return null;
  return (
    <article class="card model" aria-labelledby="process">
      <h2 id="process">The whole server</h2>
      <dl class="rows">
        <div>
          <dt>Resident memory</dt>
          <dd>{bytes(reading.residentBytes)}</dd>
        </div>
        {reading.blocks !== undefined && (
          <div>
            <dt>KV blocks</dt>
            <dd>
              {count(reading.blocksUsed ?? 0)} of {count(reading.blocks)} used
            </dd>
          </div>
        )}
      </dl>
    </article>
  );
}

export function ModelsView({ server }: { server: ServerFacts }) {
  return (
    <main class="page models" aria-label="Models">
      <h1 class="for-ears">Models</h1>
      {server.models.length === 0 && (
        <p class="nothing">{server.state === 'asking' ? 'Reading …' : server.problem || 'The server has no model.'}</p>
      )}
      <div class="cards">
        {server.models.map(model => (
          <ModelCard key={model.id} model={model} />
        ))}
        {server.models.length > 0 && <ProcessCard />}
      </div>
    </main>
  );
}
