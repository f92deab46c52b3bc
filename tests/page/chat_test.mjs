// What a person does with the chat, against a scripted server.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { kMarkdown, kTokens } from './sample_texts.mjs';
import { ask, askAndWait, button, idle, message, open, scripted } from './session.mjs';

test('an answer appears while it streams, as Markdown', async () => {
  let answer;
  const server = await scripted({
    scenario: a => {
      answer = a;
      a.begin();
      a.say('**bold** and ');
    },
  });
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
    model: 'scripted',
    messages: [{ role: 'user', content: 'hello' }],
    stream: true,
    stream_options: { include_usage: true },
  });
});

test('stop ends the request and keeps what was said', async () => {
  let gone;
  const server = await scripted({
    scenario: (a, _, n) => {
      if (n > 1) return a.whole('whole');
      gone = a.gone;
      a.begin();
      a.say('half an ans');
    },
  });
  const page = await open(server.url);
  await ask(page, 'long one');
  await page.getByText('half an ans').waitFor();
  await button(page, 'Stop').click();
  await idle(page);
  await gone; // the server sees the connection close
  await page.getByText('stopped', { exact: false }).first().waitFor();
  assert.ok(await page.getByText('half an ans').isVisible());
  await askAndWait(page, 'next');
  assert.deepEqual(
    server.requests[1].messages.map(m => m.content),
    ['long one', 'half an ans', 'next'],
  );
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
  for (const [label, value] of [
    ['Temperature', '0.5'],
    ['Top p', '0.9'],
    ['Top k', '40'],
    ['Min p', '0.05'],
    ['Max tokens', '64'],
    ['Seed', '7'],
  ]) {
    await page.getByLabel(label, { exact: true }).fill(value);
  }
  await page.getByLabel('Repetition penalty').fill('11');
  await page.getByText('from 0.1 to 10; not sent').waitFor();
  await askAndWait(page, 'hi');
  const { messages, temperature, top_p, top_k, min_p, max_tokens, seed, repetition_penalty } = server.requests[0];
  assert.deepEqual(
    { temperature, top_p, top_k, min_p, max_tokens, seed, repetition_penalty },
    { temperature: 0.5, top_p: 0.9, top_k: 40, min_p: 0.05, max_tokens: 64, seed: 7, repetition_penalty: undefined },
  );
  assert.deepEqual(messages[0], { role: 'system', content: 'Be brief.' });
  await page.reload();
  await button(page, 'Settings').click();
  assert.equal(await page.getByLabel('Temperature').inputValue(), '0.5');
  await button(page, 'Defaults').click();
  await page.waitForFunction(() => document.getElementById('setting-temperature').value === '');
});

test('token probabilities: under the mouse, and by the arrow keys', async () => {
  const server = await scripted({
    scenario: a => {
      a.begin();
      a.sayTokens(...kTokens);
      a.end();
    },
  });
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
  const server = await scripted({
    scenario: a => {
      a.begin();
      a.think('hm, let me see');
      a.say('42');
      a.end();
    },
  });
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
  assert.ok((await page.locator('.code .hljs-keyword').count()) > 0);
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
  const file = (name, text) =>
    page.getByLabel('Import').setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(text) });
  await file('other.json', '{"turns": [1, {"question": 3}]}');
  await page.getByText('other.json is not an exported conversation.').waitFor();
  await file(
    'odd.json',
    '{"format": "hone-conversation", "turns": [7, {"question": "odd", "shown": 9, "answers": [{"text": 5, "tokens": [1, {}]}]}]}',
  );
  await page.locator('.bubble', { hasText: 'odd' }).waitFor();
  await file('conversation.json', exported);
  await page.getByText('kept answer').waitFor();
});
