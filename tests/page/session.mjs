// What tests of the page share: a browser for the file, pages and servers that are closed after each test, and what a
// person does. Nothing here waits for a time to pass: every wait is for something that must appear.
import { after, afterEach, before } from 'node:test';
import { openBrowser, openPage } from './browser.mjs';
import { startScripted } from './scripted_server.mjs';

let browser;
export const toClose = []; // of the running test, last first

before(async () => {
  browser = await openBrowser();
});
after(() => browser?.close());
afterEach(async () => {
  const errors = [];
  for (const close of toClose.splice(0).reverse()) await close().catch(error => errors.push(error));
  if (errors.length > 0) throw errors[0];
});

export async function scripted(options) {
  const server = await startScripted(options);
  toClose.push(() => server.stop());
  return server;
}

export async function open(url, options) {
  const { page, close } = await openPage(browser, url, options);
  page.setDefaultTimeout(15_000);
  toClose.push(close);
  return page;
}

export const message = page => page.getByLabel('Message', { exact: true });
export const button = (page, name) => page.getByRole('button', { name, exact: true });
export const idle = page => button(page, 'Send').waitFor();

export async function ask(page, text) {
  await message(page).fill(text);
  await message(page).press('Enter');
}

// Also waits for the end of the answer.
export async function askAndWait(page, text) {
  await ask(page, text);
  await page.locator('.bubble', { hasText: text }).last().waitFor();
  await idle(page);
}
