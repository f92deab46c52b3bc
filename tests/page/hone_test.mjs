// The page with the real thing: `hone serve builtin`. Skipped, and counted, where the program is not built.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { binary, haveBinary, startHone } from './hone_server.mjs';
import { ask, askAndWait, button, idle, open, toClose } from './session.mjs';

// Each test by itself, so that each is counted.
const real = { skip: haveBinary ? false : `${binary} is not built` };

let hone;
before(async () => {
  if (haveBinary) hone = await startHone();
});
after(async () => {
  if (haveBinary) assert.equal(await hone.stop(), 0);
});

test('the page that is served is the committed one', real, async () => {
  const served = await (await fetch(hone.url)).text();
  assert.equal(served, await readFile(new URL('../../assets/page/index.html', import.meta.url), 'utf8'));
});

test('asks, regenerates with the same seed, and sees the batch', real, async () => {
  const page = await open(hone.url);
  await button(page, 'Settings').click();
  await page.getByLabel('Max tokens').fill('24');
  await page.getByLabel('Seed').fill('11');
  await page.getByLabel('Token probabilities of the next answers').check();
  await askAndWait(page, 'What is a KV cache?');
  const first = await page.locator('.tokens-text').innerText();
  assert.ok(first.length > 0);
  await page.getByText('seed 11').waitFor();
  await button(page, 'Answer again').click();
  await page.getByText('2 / 2').waitFor();
  await idle(page);
  assert.equal(await page.locator('.tokens-text').innerText(), first);
  await page.getByRole('link', { name: 'Live' }).click();
  await page.locator('.figure', { hasText: 'Running' }).waitFor();
  await page.locator('.figure', { hasText: 'Answers' }).getByText('2', { exact: true }).waitFor();
  await page.getByRole('table', { name: 'Time to first token: counts by time' }).waitFor({ state: 'attached' });
  await page.getByRole('link', { name: 'Models' }).click();
  await page.getByRole('article', { name: 'builtin' }).getByText('tokens').waitFor();
});

test('a stopped answer frees its sequence', real, async () => {
  const page = await open(hone.url);
  await button(page, 'Settings').click();
  await page.getByLabel('Max tokens').fill('3000');
  await page.getByLabel('System prompt').fill('Count.');
  await ask(page, 'Tell me everything, at length.');
  await page.locator('.answer .markdown', { hasText: /\w/ }).waitFor();
  // The built-in model may end by itself before the click; then there is nothing to stop.
  await button(page, 'Stop')
    .click({ timeout: 2000 })
    .catch(() => {});
  await idle(page);
  for (;;) {
    const { running, waiting } = await (await fetch(`${hone.url}ready`)).json();
    if (running + waiting === 0) break;
    await new Promise(resolve => setTimeout(resolve, 20));
  }
});

test('a server with keys lets the page through where it is told to, and the page asks for the key', real, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'hone-page-'));
  toClose.push(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'keys'), 'tester: sk-a-key-for-the-page\n');
  const closed = await startHone(['--api-keys', join(folder, 'keys'), '--open', '/']);
  toClose.push(() => closed.stop());
  const page = await open(closed.url, { expectErrors: true });
  await page.getByLabel('Key', { exact: true }).fill('sk-a-key-for-the-page');
  await button(page, 'Use this key').click();
  await page.locator('.dot.there').waitFor();
  await page.getByRole('link', { name: 'Live' }).click();
  await page.locator('.figure', { hasText: 'Running' }).waitFor();
});

test('a refusal is shown as the server words it', real, async () => {
  const page = await open(hone.url, { expectErrors: true });
  await ask(page, 'word '.repeat(20_000));
  await page.locator('.error', { hasText: 'context_length_exceeded' }).waitFor();
});
