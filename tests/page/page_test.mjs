// The page in a real browser. Against a scripted server: what it must survive (attacks, errors, broken connections) and what a
// person does with it. Against `hone serve builtin`: that it works with the real thing; skipped, and counted, without a program.
// Nothing here waits for a time to pass: every wait is for something that must appear.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openBrowser, openPage } from './browser.mjs';
import { binary, haveBinary, startHone } from './hone_server.mjs';
import { kAttacks, kMarkdown, kTokens, metricsText } from './sample_texts.mjs';
import { startScripted } from './scripted_server.mjs';

let browser;
const toClose = [];  // of the running test, last first

before(async () => { browser = await openBrowser(); });
after(() => browser.close());
afterEach(async () => {
  const errors = [];
  for (const close of toClose.splice(0).reverse()) await close().catch(error => errors.push(error));
  if (errors.length > 0) throw errors[0];
});

async function scripted(options) {
  const server = await startScripted(options);
  toClose.push(() => server.stop());
  return server;
}

async function open(url, options) {
  const { page, close } = await openPage(browser, url, options);
  page.setDefaultTimeout(15_000);
  toClose.push(close);
  return page;
}

const message = page => page.getByLabel('Message', { exact: true });
const button = (page, name) => page.getByRole('button', { name, exact: true });
const answers = page => page.locator('.answer');
const idle = page => button(page, 'Send').waitFor();

async function ask(page, text) {
  await message(page).fill(text);
  await message(page).press('Enter');
}
async function askAndWait(page, text) {
  await ask(page, text);
  await page.locator('.bubble', { hasText: text }).last().waitFor();
  await idle(page);
}

describe('chat', () => {
  test('an answer appears while it streams, as Markdown', async () => {
    let answer;
    const server = await scripted({ scenario: a => { answer = a; a.begin(); a.say('**bold** and '); } });
    const page = await open(server.url);
    await ask(page, 'hello');
    await page.locator('.answer strong', { hasText: 'bold' }).waitFor();
    assert.ok(await button(page, 'Stop').isVisible());
    answer.say('`more`');
    await page.locator('.answer code', { hasText: 'more' }).waitFor();
    answer.end();
    await idle(page);
    await page.getByText('seed 42').waitFor();
    assert.deepEqual(server.requests[0], {
      model: 'scripted', messages: [{ role: 'user', content: 'hello' }], stream: true, stream_options: { include_usage: true } });
  });

  test('stop ends the request and keeps what was said', async () => {
    let gone;
    const server = await scripted({ scenario: (a, _, n) => { if (n > 1) return a.whole('whole'); gone = a.gone; a.begin(); a.say('half an ans'); } });
    const page = await open(server.url);
    await ask(page, 'long one');
    await page.getByText('half an ans').waitFor();
    await button(page, 'Stop').click();
    await idle(page);
    await gone;  // the server sees the connection close
    await page.getByText('stopped', { exact: false }).first().waitFor();
    assert.ok(await page.getByText('half an ans').isVisible());
    await askAndWait(page, 'next');
    assert.deepEqual(server.requests[1].messages.map(m => m.content), ['long one', 'half an ans', 'next']);
  });

  test('an edited message is asked again, without what followed it', async () => {
    const server = await scripted({ scenario: (a, body) => a.whole(`echo: ${body.messages.at(-1).content}`) });
    const page = await open(server.url);
    await askAndWait(page, 'first');
    await askAndWait(page, 'second');
    await page.locator('.question').first().hover();
    await page.locator('.question').first().getByRole('button', { name: 'Edit this message' }).click();
    await page.getByLabel('Edit the message').fill('changed');
    await page.getByLabel('Edit the message').press('Enter');
    await page.getByText('echo: changed').waitFor();
    assert.equal(await page.locator('.turn').count(), 1);
    assert.deepEqual(server.requests[2].messages, [{ role: 'user', content: 'changed' }]);
  });

  test('answering again adds a version; the one that is shown is the one that is sent', async () => {
    const server = await scripted({ scenario: (a, _, n) => a.whole(`answer ${n}`) });
    const page = await open(server.url);
    await askAndWait(page, 'q');
    await button(page, 'Answer again').click();
    await page.getByText('answer 2').waitFor();
    await page.getByText('2 / 2').waitFor();
    await button(page, 'The answer before').click();
    await page.getByText('answer 1').waitFor();
    await askAndWait(page, 'and now');
    assert.equal(server.requests[2].messages[1].content, 'answer 1');
  });

  test('settings are sent as they are set, and wrong ones are not', async () => {
    const server = await scripted();
    const page = await open(server.url);
    await button(page, 'Settings').click();
    await page.getByLabel('System prompt').fill('Be brief.');
    for (const [label, value] of [['Temperature', '0.5'], ['Top p', '0.9'], ['Top k', '40'], ['Min p', '0.05'], ['Max tokens', '64'], ['Seed', '7']]) {
      await page.getByLabel(label, { exact: true }).fill(value);
    }
    await page.getByLabel('Repetition penalty').fill('11');
    await page.getByText('from 0.1 to 10; not sent').waitFor();
    await askAndWait(page, 'hi');
    const { messages, temperature, top_p, top_k, min_p, max_tokens, seed, repetition_penalty } = server.requests[0];
    assert.deepEqual({ temperature, top_p, top_k, min_p, max_tokens, seed, repetition_penalty },
                     { temperature: 0.5, top_p: 0.9, top_k: 40, min_p: 0.05, max_tokens: 64, seed: 7, repetition_penalty: undefined });
    assert.deepEqual(messages[0], { role: 'system', content: 'Be brief.' });
    await page.reload();
    await button(page, 'Settings').click();
    assert.equal(await page.getByLabel('Temperature').inputValue(), '0.5');
    await button(page, 'Defaults').click();
    await page.waitForFunction(() => document.getElementById('setting-temperature').value === '');
  });

  test('token probabilities: under the mouse, and by the arrow keys', async () => {
    const server = await scripted({ scenario: a => { a.begin(); a.sayTokens(...kTokens); a.end(); } });
    const page = await open(server.url);
    await button(page, 'Settings').click();
    await page.getByLabel('Token probabilities of the next answers').check();
    await askAndWait(page, 'tokens, please');
    assert.equal(server.requests[0].logprobs, true);
    await page.locator('.token', { hasText: 'keeps' }).hover();
    const taken = page.locator('.choices .taken');
    assert.match(await taken.innerText(), /keeps[^]*41\.0 %/);
    assert.match(await page.locator('.choices tr').first().innerText(), /stores[^]*43\.0 %/);
    await page.locator('.tokens-text').focus();
    await page.mouse.move(0, 0);
    await page.locator('.popover').waitFor({ state: 'detached' });
    await page.keyboard.press('ArrowRight');
    await page.locator('.token.current', { hasText: 'The' }).waitFor();
    await page.keyboard.press('ArrowRight');
    await page.locator('.token.current', { hasText: 'cache' }).waitFor();
    assert.match(await taken.innerText(), /cache[^]*97\.0 %/);
    await button(page, 'Show token probabilities').click();
    await page.locator('.markdown', { hasText: 'The cache keeps' }).waitFor();
  });

  test('reasoning is folded away once the answer is there', async () => {
    const server = await scripted({ scenario: a => { a.begin(); a.think('hm, let me see'); a.say('42'); a.end(); } });
    const page = await open(server.url);
    await askAndWait(page, 'why');
    assert.equal(await page.getByText('hm, let me see').isVisible(), false);
    await page.getByText('Thoughts').click();
    await page.getByText('hm, let me see').waitFor();
  });

  test('code has colours and a button that copies it', async () => {
    const server = await scripted({ scenario: a => a.whole(kMarkdown) });
    const page = await open(server.url);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await askAndWait(page, 'code');
    assert.ok(await page.locator('.code .hljs-keyword').count() > 0);
    await page.locator('.copy-code').click();
    await page.locator('.copy-code', { hasText: 'Copied' }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.ok(copied.startsWith('def attend(') && kMarkdown.includes(copied.trim()), copied);
  });

  test('the conversation is there after a reload, is exported, cleared and imported', async () => {
    const server = await scripted({ scenario: a => a.whole('kept answer') });
    const page = await open(server.url, { downloads: true });
    await askAndWait(page, 'kept question');
    await page.reload();
    await page.getByText('kept answer').waitFor();
    await button(page, 'Settings').click();
    const [download] = await Promise.all([page.waitForEvent('download'), button(page, 'Export').click()]);
    const exported = await readFile(await download.path(), 'utf8');
    assert.equal(JSON.parse(exported).turns[0].question, 'kept question');
    await button(page, 'New chat').click();
    await page.getByText('kept answer').waitFor({ state: 'detached' });
    await page.reload();
    await message(page).waitFor();
    assert.equal(await page.locator('.turn').count(), 0);
    await button(page, 'Settings').click();
    const file = (name, text) => page.getByLabel('Import').setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(text) });
    await file('other.json', '{"turns": [1, {"question": 3}]}');
    await page.getByText('other.json is not an exported conversation.').waitFor();
    await file('odd.json', '{"format": "hone-conversation", "turns": [7, {"question": "odd", "shown": 9, "answers": [{"text": 5, "tokens": [1, {}]}]}]}');
    await page.locator('.bubble', { hasText: 'odd' }).waitFor();
    await file('conversation.json', exported);
    await page.getByText('kept answer').waitFor();
  });
});

describe('bad news', () => {
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
        a.response.end();  // and no [DONE]
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
    const page = await open(server.url);  // a refused request or script would be an error in the console
    await askAndWait(page, kAttacks[1]);
    await page.getByText('Thoughts').click();
    const found = await page.evaluate(() => ({
      hacked: window.hacked,
      elements: document.querySelectorAll('.turn :is(script, img, iframe, style, link, meta, base, form, object, embed)').length,
      handlers: [...document.querySelectorAll('.turn *')].filter(e => [...e.attributes].some(a => a.name.startsWith('on') || a.name === 'style')).length,
      addresses: [...document.querySelectorAll('.turn a[href]')].map(a => a.protocol).filter(p => !['http:', 'https:', 'mailto:'].includes(p)),
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
      return fetch('https://evil.example/').then(() => 'fetched', () => window.hacked ?? 'stopped');
    });
    assert.equal(ran, 'stopped');
  });
});

describe('for everybody', () => {
  test('everything by keyboard', async () => {
    let running;
    const server = await scripted({ scenario: (a, _, n) => { if (n === 2) { running = a; a.begin(); a.say('going on'); } else a.whole(`answer ${n}`); },
                                    metrics: () => metricsText(1) });
    const page = await open(server.url);
    const keys = page.keyboard;
    await page.getByText('scripted').first().waitFor();
    await message(page).blur();
    await keys.press('/');
    await keys.type('line one');
    await keys.press('Shift+Enter');
    await keys.type('line two');
    await keys.press('Enter');
    await page.getByText('answer 1').waitFor();
    await idle(page);
    assert.equal(server.requests[0].messages[0].content, 'line one\nline two');
    await keys.type('second');
    await keys.press('Enter');
    await page.getByText('going on').waitFor();
    await keys.press('Escape');
    await running.gone;
    await idle(page);
    await keys.press('ArrowUp');  // the field is empty: edits the last message
    await page.getByLabel('Edit the message').waitFor();
    await keys.type(', changed');
    await keys.press('Enter');
    await page.getByText('answer 3').waitFor();
    assert.equal(server.requests[2].messages.at(-1).content, 'second, changed');
    await idle(page);

    // From the field, Tab goes to the tools under it (Send is disabled while the field is empty).
    await message(page).focus();
    await keys.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'New chat');
    await keys.press('Tab');
    await keys.press('Enter');
    await page.getByRole('complementary', { name: 'Settings' }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'setting-system');
    await keys.press('Escape');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'settings-button');

    await page.getByRole('link', { name: 'Live' }).focus();
    await keys.press('Enter');
    await page.getByRole('main', { name: 'Live view' }).waitFor();
  });

  test('every control has a name, ids are unique, headings are there', async () => {
    const server = await scripted({ scenario: a => { a.begin(); a.sayTokens(...kTokens); a.end(); }, metrics: () => metricsText(3) });
    const page = await open(server.url);
    await button(page, 'Settings').click();
    await page.getByLabel('Token probabilities of the next answers').check();
    await askAndWait(page, 'q');
    for (const view of ['Chat', 'Live', 'Models']) {
      await page.getByRole('link', { name: view, exact: true }).click();
      await page.locator('main:visible').waitFor();
      const snapshot = await page.locator('body').ariaSnapshot();
      assert.doesNotMatch(snapshot, /^\s*- (button|link|textbox|checkbox|combobox|img)(:|\s*\[|\s*$)/m, `a control without a name:\n${snapshot}`);
      const twice = await page.evaluate(() => {
        const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
        return ids.filter((id, i) => ids.indexOf(id) !== i);
      });
      assert.deepEqual(twice, []);
    }
  });

  for (const dark of [false, true]) {
    test(`text can be read: ${dark ? 'dark' : 'light'}`, async () => {
      const server = await scripted({ scenario: a => a.whole(kMarkdown) });
      const page = await open(server.url, { dark });
      await askAndWait(page, 'q');
      // The contrast of WCAG 2 (4.5 to 1) for every text on the page, against the nearest ground that is not transparent.
      const poor = await page.evaluate(() => {
        const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
        const rgb = colour => {
          canvas.clearRect(0, 0, 1, 1);
          canvas.fillStyle = colour;
          canvas.fillRect(0, 0, 1, 1);
          return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const light = ([r, g, b]) => {
          const [x, y, z] = [r, g, b].map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
          return 0.2126 * x + 0.7152 * y + 0.0722 * z;
        };
        const ground = e => {
          for (; e; e = e.parentElement) {
            const colour = rgb(getComputedStyle(e).backgroundColor);
            if (colour[3] === 255) return colour;
          }
          return [255, 255, 255];
        };
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const list = [];
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
          const e = node.parentElement;
          if (!node.data.trim() || !e.checkVisibility() || e.closest('script, style, :disabled, .for-ears')) continue;
          const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
          const contrast = (a + 0.05) / (b + 0.05);
          if (contrast < 4.5) list.push(`${node.data.trim().slice(0, 30)} (${e.className || e.tagName}): ${contrast.toFixed(2)}`);
        }
        return { list, ground: light(ground(document.body)) };
      });
      assert.deepEqual(poor.list, []);
      assert.ok(dark ? poor.ground < 0.1 : poor.ground > 0.9);
    });
  }

  test('the colours can be chosen, and the choice stays', async () => {
    const server = await scripted();
    const page = await open(server.url);
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await button(page, 'Colours: as the system').click();
    await button(page, 'Colours: light').click();
    await button(page, 'Colours: dark').waitFor();
    assert.notEqual(await ground(), light);
    await page.reload();
    await button(page, 'Colours: dark').waitFor();
    assert.notEqual(await ground(), light);
  });

  test('on a phone nothing is wider than the screen, and buttons are large enough for a thumb', async () => {
    const server = await scripted({ scenario: a => a.whole(kMarkdown, 'x'.repeat(300)), metrics: () => metricsText(1),
                                    models: [{ id: 'a-model-with-a-name-that-is-longer-than-any-phone-is-wide-q4_k_m', root: '/' + 'deep/'.repeat(30) }] });
    const page = await open(server.url, { phone: true });
    await askAndWait(page, 'w'.repeat(200));
    const fits = async where => {
      const wide = await page.evaluate(() => [...document.querySelectorAll('body, header, main, .log, .panel, .page, .card, .bubble, .answer')]
        .filter(e => e.checkVisibility() && (e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1)).map(e => e.className || e.tagName));
      assert.deepEqual(wide, [], where);
      const small = await page.evaluate(() => [...document.querySelectorAll('.icon-button, .round, .composer button')]
        .filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect()).filter(r => r.width < 36 || r.height < 36).length);
      assert.equal(small, 0, where);
    };
    await fits('chat');
    await button(page, 'Settings').tap();
    await page.getByRole('complementary', { name: 'Settings' }).waitFor();
    await fits('settings');
    await button(page, 'Close the settings').tap();
    await page.getByRole('link', { name: 'Live' }).tap();
    await page.getByRole('heading', { name: 'Between tokens' }).waitFor();
    await fits('live');
    await page.getByRole('link', { name: 'Models' }).tap();
    await page.getByText('The whole server').waitFor();
    await fits('models');
  });
});

describe('live view and models', () => {
  test('shows what the metrics say', async () => {
    let n = 0;
    const server = await scripted({ metrics: () => metricsText(++n) });
    const page = await open(`${server.url}#live`);
    const figure = name => page.locator('.figure', { has: page.getByText(name, { exact: true }) });
    await figure('Preemptions').waitFor();
    assert.match(await figure('Preemptions').innerText(), /3/);
    assert.match(await figure('Prefix cache').innerText(), /76 %/);
    assert.match(await figure('Answers').innerText(), /97/);
    assert.match(await page.getByRole('img', { name: /^KV blocks:/ }).getAttribute('aria-label'), /shared 310, used by one \d+, cached 520, free \d+/);
    await page.getByRole('img', { name: /^Tokens a second: generated \d/ }).waitFor();  // a rate needs two readings
    const table = page.getByRole('table', { name: 'Time to first token: counts by time' });
    assert.equal(await table.getByRole('row', { name: '100 ms to 250 ms' }).getByRole('cell').innerText(), '31');
    await button(page, 'while I look').click();
    await page.getByText('No answer began yet.').waitFor();  // the scripted histogram stands still
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
    const server = await scripted({ metrics: () => metricsText(1), models: [{ id: 'one', weight_bytes: 3 * 2 ** 30, max_model_len: 8192 }, { id: 'two' }] });
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
});

// Each test by itself, so that each is counted.
const real = { skip: haveBinary ? false : `${binary} is not built` };

describe('with hone serve builtin', () => {
  let hone;
  before(async () => { if (haveBinary) hone = await startHone(); });
  after(async () => { if (haveBinary) assert.equal(await hone.stop(), 0); });

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
    await button(page, 'Stop').click({ timeout: 2000 }).catch(() => {});
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
});
