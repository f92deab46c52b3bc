// The live view and the list of models, against a scripted server.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { metricsText } from './sample_texts.mjs';
import { askAndWait, button, open, scripted } from './session.mjs';

test('shows what the metrics say', async () => {
  let n = 0;
  const server = await scripted({ metrics: () => metricsText(++n) });
  const page = await open(`${server.url}#live`);
  const figure = name => page.locator('.figure', { has: page.getByText(name, { exact: true }) });
  await figure('Preemptions').waitFor();
  assert.match(await figure('Preemptions').innerText(), /3/);
  assert.match(await figure('Prefix cache').innerText(), /76 %/);
  assert.match(await figure('Answers').innerText(), /97/);
  assert.match(
    await page.getByRole('img', { name: /^KV blocks:/ }).getAttribute('aria-label'),
    /shared 310, used by one \d+, cached 520, free \d+/,
  );
  await page.getByRole('img', { name: /^Tokens a second: generated \d/ }).waitFor(); // a rate needs two readings
  const table = page.getByRole('table', { name: 'Time to first token: counts by time' });
  assert.equal(await table.getByRole('row', { name: '100 ms to 250 ms' }).getByRole('cell').innerText(), '31');
  await button(page, 'while I look').click();
  await page.getByText('No answer began yet.').waitFor(); // the scripted histogram stands still
});

test('a server without metrics: what /ready says', async () => {
  const server = await scripted();
  const page = await open(`${server.url}#live`, { expectErrors: true });
  await page.locator('.figure', { hasText: 'Waiting' }).waitFor();
  assert.match(await page.locator('.figure', { hasText: 'Waiting' }).innerText(), /2/);
  await page.getByText('16 of 64 used').waitFor();
  assert.equal(await page.getByText('Latencies').count(), 0);
});

test('models: what the server tells of them', async () => {
  const server = await scripted({
    metrics: () => metricsText(1),
    models: [{ id: 'one', weight_bytes: 3 * 2 ** 30, max_model_len: 8192 }, { id: 'two' }],
  });
  const page = await open(`${server.url}#models`);
  const one = page.getByRole('article', { name: 'one' });
  await one.getByText('3.0 GiB').waitFor();
  await one.getByText('8,192 tokens').waitFor();
  await page.getByRole('article', { name: 'The whole server' }).getByText('1.2 GiB').waitFor();
  await page.getByLabel('Model', { exact: true }).selectOption('two');
  await page.getByRole('link', { name: 'Chat', exact: true }).click();
  await askAndWait(page, 'hi');
  assert.equal(server.requests[0].model, 'two');
});
