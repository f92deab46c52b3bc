// What the page must survive: errors, broken connections, keys, text that attacks. Against a scripted server.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kAttacks } from './sample_texts.mjs';
import { ask, askAndWait, button, open, scripted } from './session.mjs';

test('errors of the server are shown with its words, and can be tried again', async () => {
  const refusals = [
    [429, 'queue_full', 'the queue is full', 'The server is busy', { 'Retry-After': '7' }],
    [400, 'context_length_exceeded', 'the prompt has 9 tokens too many', 'The request was refused', {}],
    [503, 'unavailable', 'the server is stopping', 'The server takes no requests now', {}],
    [500, 'internal_error', 'our fault', 'The server failed', {}],
  ];
  const server = await scripted({
    scenario: (a, _, n) => {
      if (n > refusals.length) return a.whole('at last');
      const [status, code, words, , headers] = refusals[n - 1];
      a.refuse(status, code, words, headers);
    },
  });
  const page = await open(server.url, { expectErrors: true });
  await ask(page, 'hello');
  for (const [status, code, words, title] of refusals) {
    const note = page.locator('.error', { hasText: words });
    await note.waitFor();
    assert.match(await note.innerText(), new RegExp(`${title}[^]*${status} · ${code}`));
    if (status === 429) assert.match(await note.getByRole('button').innerText(), /Try again \(advised in [1-7] s\)/);
    await note.getByRole('button', { name: /Try again/ }).click();
  }
  await page.getByText('at last').waitFor();
  assert.equal(await page.locator('.error').count(), 0);
  assert.deepEqual(server.requests.at(-1).messages, [{ role: 'user', content: 'hello' }]);
});

test('a connection that breaks keeps what was said; an error inside a stream is told', async () => {
  const server = await scripted({
    scenario: (a, _, n) => {
      a.begin();
      a.say('so far');
      if (n === 1) return setImmediate(() => a.breakOff());
      if (n === 2) a.event({ error: { message: 'generation failed: not a number', code: 'internal_error' } });
      a.response.end(); // and no [DONE]
    },
  });
  const page = await open(server.url, { expectErrors: true });
  await ask(page, 'hello');
  await page.locator('.error', { hasText: 'Connection lost' }).waitFor();
  await button(page, 'Try again').click();
  await page.locator('.error', { hasText: 'generation failed: not a number' }).waitFor();
  assert.ok(await page.locator('.answer', { hasText: 'so far' }).isVisible());
  await button(page, 'Try again').click();
  await page.locator('.error', { hasText: 'Connection lost' }).waitFor();
});

test('a server that goes away is noticed, and its return too', async () => {
  const server = await scripted();
  const page = await open(server.url, { expectErrors: true });
  await page.getByText('scripted').first().waitFor();
  await server.stop();
  await ask(page, 'anybody?');
  await page.locator('.error', { hasText: 'The server does not answer' }).waitFor();
  await page.locator('.banner', { hasText: 'Trying again' }).waitFor();
  await server.startAgain();
  await page.locator('.banner').waitFor({ state: 'detached' });
  await button(page, 'Try again').click();
  await page.getByText('Hello.').waitFor();
});

test('a server with keys: asks, refuses a wrong one, remembers a right one', async () => {
  const server = await scripted({ key: 'sk-right' });
  const page = await open(server.url, { expectErrors: true });
  await page.getByText('This server answers only with an API key.').waitFor();
  await page.getByLabel('Key', { exact: true }).fill('sk-wrong');
  await page.keyboard.press('Enter');
  await page.getByText('The server does not know the key that was sent.').waitFor();
  await page.getByLabel('Key', { exact: true }).fill('sk-right');
  await page.getByLabel('Keep it in this browser').check();
  await button(page, 'Use this key').click();
  await page.locator('.dot.there').waitFor();
  await askAndWait(page, 'hello');
  await page.getByText('Hello.').waitFor();
  await page.reload();
  await page.locator('.dot.there').waitFor();
  assert.equal(await page.locator('dialog[open]').count(), 0);
});

test('markup in questions, answers and thoughts does nothing', async () => {
  const server = await scripted({
    scenario: a => {
      a.begin();
      a.think(kAttacks.join('\n\n'));
      for (const attack of kAttacks) a.say(`${attack}\n\n`);
      a.end();
    },
  });
  const page = await open(server.url); // a refused request or script would be an error in the console
  await askAndWait(page, kAttacks[1]);
  await page.getByText('Thoughts').click();
  const found = await page.evaluate(() => ({
    hacked: window.hacked,
    elements: document.querySelectorAll('.turn :is(script, img, iframe, style, link, meta, base, form, object, embed)')
      .length,
    handlers: [...document.querySelectorAll('.turn *')].filter(e =>
      [...e.attributes].some(a => a.name.startsWith('on') || a.name === 'style'),
    ).length,
    addresses: [...document.querySelectorAll('.turn a[href]')]
      .map(a => a.protocol)
      .filter(p => !['http:', 'https:', 'mailto:'].includes(p)),
    covered: getComputedStyle(document.body).display,
  }));
  assert.deepEqual(found, { hacked: undefined, elements: 0, handlers: 0, addresses: [], covered: 'block' });
  for (const link of await page.locator('.turn a').all()) {
    assert.equal(await link.getAttribute('target'), '_blank');
    assert.match(await link.getAttribute('rel'), /noopener/);
  }
});

test('the policy of the page stops a script that got in all the same', async () => {
  const server = await scripted();
  const page = await open(server.url, { expectErrors: true });
  await page.getByText('scripted').first().waitFor();
  const ran = await page.evaluate(() => {
    document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.hacked = 1">');
    const script = document.createElement('script');
    script.textContent = 'window.hacked = 2';
    document.body.append(script);
    return fetch('https://evil.example/').then(
      () => 'fetched',
      () => window.hacked ?? 'stopped',
    );
  });
  assert.equal(ran, 'stopped');
});
