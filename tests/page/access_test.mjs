// Keyboard, screen readers, contrast, colours, phones. Against a scripted server.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kMarkdown, kTokens, metricsText } from './sample_texts.mjs';
import { askAndWait, button, idle, message, open, scripted } from './session.mjs';

test('everything by keyboard', async () => {
  let running;
  const server = await scripted({
    scenario: (a, _, n) => {
      if (n === 2) {
        running = a;
        a.begin();
        a.say('going on');
      } else a.whole(`answer ${n}`);
    },
    metrics: () => metricsText(1),
  });
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
  await keys.press('ArrowUp'); // the field is empty: edits the last message
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
  const server = await scripted({
    scenario: a => {
      a.begin();
      a.sayTokens(...kTokens);
      a.end();
    },
    metrics: () => metricsText(3),
  });
  const page = await open(server.url);
  await button(page, 'Settings').click();
  await page.getByLabel('Token probabilities of the next answers').check();
  await askAndWait(page, 'q');
  for (const view of ['Chat', 'Live', 'Models']) {
    await page.getByRole('link', { name: view, exact: true }).click();
    await page.locator('main:visible').waitFor();
    const snapshot = await page.locator('body').ariaSnapshot();
    assert.doesNotMatch(
      snapshot,
      /^\s*- (button|link|textbox|checkbox|combobox|img)(:|\s*\[|\s*$)/m,
      `a control without a name:\n${snapshot}`,
    );
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
      const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', {
        willReadFrequently: true,
      });
      const rgb = colour => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
      };
      const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b]
          .map(v => v / 255)
          .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
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
        if (contrast < 4.5)
          list.push(`${node.data.trim().slice(0, 30)} (${e.className || e.tagName}): ${contrast.toFixed(2)}`);
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
  const server = await scripted({
    scenario: a => a.whole(kMarkdown, 'x'.repeat(300)),
    metrics: () => metricsText(1),
    models: [
      { id: 'a-model-with-a-name-that-is-longer-than-any-phone-is-wide-q4_k_m', root: '/' + 'deep/'.repeat(30) },
    ],
  });
  const page = await open(server.url, { phone: true });
  await askAndWait(page, 'w'.repeat(200));
  const fits = async where => {
    const wide = await page.evaluate(() =>
      [...document.querySelectorAll('body, header, main, .log, .panel, .page, .card, .bubble, .answer')]
        .filter(
          e =>
            e.checkVisibility() &&
            (e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1),
        )
        .map(e => e.className || e.tagName),
    );
    assert.deepEqual(wide, [], where);
    const small = await page.evaluate(
      () =>
        [...document.querySelectorAll('.icon-button, .round, .composer button')]
          .filter(e => e.checkVisibility())
          .map(e => e.getBoundingClientRect())
          .filter(r => r.width < 36 || r.height < 36).length,
    );
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
