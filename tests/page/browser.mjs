// Debian's Chromium, and pages in it that are watched: a request to anywhere but the server, an error of a script or a
// line that the browser puts into the console as an error fails the test that caused it (unless the test says it
// expects errors).
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';

const { chromium } = createRequire(new URL('../../web/package.json', import.meta.url))('playwright-core');

export const chromiumPath =
  process.env.HONE_CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync);

export async function openBrowser() {
  assert.ok(chromiumPath, 'Chromium is not installed (apt-get install chromium, or name it in HONE_CHROMIUM)');
  // The sandbox of Chromium does not work as root, which is what a container is.
  return chromium.launch({ executablePath: chromiumPath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
}

export const kDesktop = { width: 1280, height: 800 };
export const kPhone = { width: 390, height: 800 };

// Opens `url` in a context of its own. close() checks what was watched.
export async function openPage(
  browser,
  url,
  { phone = false, dark = false, expectErrors = false, downloads = false } = {},
) {
  const context = await browser.newContext({
    viewport: phone ? kPhone : kDesktop,
    hasTouch: phone,
    isMobile: phone,
    colorScheme: dark ? 'dark' : 'light',
    acceptDownloads: downloads,
    deviceScaleFactor: 1,
    reducedMotion: 'reduce',
  });
  const origin = new URL(url).origin;
  const strangers = [],
    problems = [];
  await context.route('**', route => {
    const asked = route.request().url();
    if (new URL(asked).origin === origin || asked.startsWith('blob:')) return route.continue();
    strangers.push(asked);
    return route.abort();
  });
  const page = await context.newPage();
  page.on('pageerror', error => problems.push(`script: ${error.message}`));
  page.on('console', message => {
    if (message.type() === 'error') problems.push(`console: ${message.text()}`);
  });
  page.on('websocket', socket => strangers.push(socket.url()));
  await page.goto(url);
  return {
    page,
    async close() {
      await context.close();
      assert.deepEqual(strangers, [], 'requests that leave the server');
      const bad = expectErrors ? problems.filter(problem => problem.startsWith('script:')) : problems;
      assert.deepEqual(bad, [], 'errors in the page');
    },
  };
}
