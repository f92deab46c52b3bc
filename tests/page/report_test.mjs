// hone report --html in a browser, opened as a file: every chart is drawn, text of the ledger stays text, nothing is
// asked of anybody. Skipped, and counted, where the program is not built.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { openBrowser } from './browser.mjs';
import { binary, haveBinary, startHone } from './hone_server.mjs';

const real = { skip: haveBinary ? false : `${binary} is not built` };
const root = fileURLToPath(new URL('../..', import.meta.url));
const label = '<img src=x onerror=alert(1)> </script>';

let folder, browser;
const env = () => ({
  ...process.env,
  HONE_ASSETS: process.env.HONE_ASSETS ?? `${root}assets`,
  HONE_LEDGER: join(folder, 'ledger.sqlite'),
});
const run = (...words) => execFileSync(binary, words, { env: env(), stdio: ['ignore', 'pipe', 'pipe'] }).toString();

before(async () => {
  if (!haveBinary) return;
  folder = mkdtempSync(join(tmpdir(), 'hone-report-'));
  browser = await openBrowser();
  const bench = ['bench', 'builtin', '--prefill', '8,16', '--context', '0,40', '--batch', '1,2', '--decode', '2', '--rounds', '2'];
  run(...bench, '--label', label);
  run(...bench, '--parent', '1');
  const hone = await startHone();
  try {
    run('load', hone.url, '--sweep', '2', '--concurrency', '2', '--requests', '8', '--input', '20', '--output', '4', '--seeds', '1,2');
    run('load', hone.url, '--requests', '8', '--input', '20', '--output', '4', '--seeds', '1,2');
  } finally {
    await hone.stop();
  }
});
after(async () => {
  await browser?.close();
  if (folder) rmSync(folder, { recursive: true });
});

// Opens the report of an entry; `look` gets the page. Fails on errors of scripts and on requests beyond the file.
async function opened(id, look) {
  const file = join(folder, `${id}.html`);
  run('report', String(id), '--html', file);
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const problems = [];
  page.on('pageerror', error => problems.push(`script: ${error.message}`));
  page.on('console', message => {
    if (message.type() === 'error') problems.push(`console: ${message.text()}`);
  });
  page.on('request', request => {
    if (request.url() !== pathToFileURL(file).href) problems.push(`asks for ${request.url()}`);
  });
  await page.goto(pathToFileURL(file).href);
  await page.locator('h1').waitFor();
  await look(page);
  assert.deepEqual(problems, []);
  await page.close();
}

const chart = (page, title) => page.locator('figure', { has: page.getByText(title, { exact: true }) });

test('a bench beside the one that it follows: heat maps, curves, three lists', real, async () => {
  await opened(2, async page => {
    for (const list of ['Shown', 'Inferred', 'Open']) await page.getByRole('heading', { name: list }).waitFor();
    const heat = chart(page, 'decode_tok_s');
    assert.ok((await heat.locator('svg path').count()) >= 4, 'four cells');
    await chart(page, 'decode_tok_s, ratio to before').locator('svg').waitFor();
    await chart(page, 'prefill_tok_s over tokens').locator('svg').waitFor();
    assert.equal(await page.locator('figure').count(), await page.locator('figure svg').count());
    assert.match(await page.locator('main').innerText(), /hone bench builtin/);
  });
});

test('text of the ledger stays text', real, async () => {
  await opened(1, async page => {
    assert.ok((await page.locator('main').innerText()).includes(label));
    assert.equal(await page.locator('main img').count(), 0);
  });
});

test('loads: latency against throughput, percentiles', real, async () => {
  await opened(3, page => chart(page, 'ttft_ms against throughput').locator('svg').waitFor());
  await opened(4, async page => {
    await chart(page, 'ttft_ms by percentile').locator('svg').waitFor();
    assert.match(await page.locator('.shown').innerText(), /16 of 16 requests were answered/);
  });
});

test('the same as Markdown and as JSON', real, () => {
  const json = JSON.parse(run('report', '2', '--json'));
  assert.deepEqual(Object.keys(json.conclusions), ['shown', 'inferred', 'open']);
  assert.equal(json.base.id, 1);
  const markdown = run('report', '2');
  for (const statement of json.conclusions.open) assert.ok(markdown.includes(`- ${statement}`));
  assert.match(markdown, /\| decode_tok_s\[context=0,batch=1\] \|/);
  const missing = spawnSync(binary, ['report', '99'], { env: env() });
  assert.equal(missing.status, 3);
  assert.ok(readFileSync(join(folder, '2.html'), 'utf8').startsWith('<!doctype html>'));
});
