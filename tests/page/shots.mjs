// Screenshots for a person to look at: node tests/page/shots.mjs FOLDER. Desktop and phone, light and dark, all views.
import { mkdirSync } from 'node:fs';
import { openBrowser, openPage } from './browser.mjs';
import { kMarkdown, kTokens, metricsText } from './sample_texts.mjs';
import { startScripted } from './scripted_server.mjs';

const folder = process.argv[2];
if (!folder) throw new Error('wanted: node tests/page/shots.mjs FOLDER');
mkdirSync(folder, { recursive: true });

let reading = 0;
const server = await startScripted({
  models: [
    {
      id: 'llama-3.2-1b-q4_0',
      root: '/models/llama-3.2-1b-instruct-q4_0.gguf',
      created: 1700000000,
      max_model_len: 131072,
      parameters: 1235814432,
      weight_bytes: 770928768,
      kv_bytes: 268435456,
    },
  ],
  metrics: () => metricsText(++reading),
  scenario: (answer, body) => {
    const asked = body.messages.at(-1).content;
    if (asked.includes('busy'))
      return answer.refuse(429, 'queue_full', 'the queue is full: 64 sequences run or wait', { 'Retry-After': '30' });
    answer.begin();
    if (asked.includes('think')) answer.think('The person wants to know about caches. A short list is best.');
    if (body.logprobs) answer.sayTokens(...kTokens);
    else answer.say(kMarkdown);
    answer.end();
  },
});
const browser = await openBrowser();

async function ask(page, text) {
  await page.getByLabel('Message', { exact: true }).fill(text);
  await page.getByLabel('Message', { exact: true }).press('Enter');
  await page.getByRole('button', { name: 'Send' }).waitFor();
}

for (const phone of [false, true]) {
  for (const dark of [false, true]) {
    const { page, close } = await openPage(browser, server.url, { phone, dark, expectErrors: true });
    const shot = name =>
      page.screenshot({ path: `${folder}/${phone ? 'phone' : 'desktop'}-${dark ? 'dark' : 'light'}-${name}.png` });
    await page.getByText('llama-3.2-1b-q4_0').first().waitFor();
    await shot('0-empty');
    await ask(page, 'What is a KV cache? Show me how attention reads it.');
    await shot('1-chat');
    await ask(page, 'Are you busy?');
    await shot('2-error');
    await page.getByRole('button', { name: 'Settings', exact: true }).click();
    await page.getByLabel('Token probabilities of the next answers').check();
    await page.getByLabel('Temperature').fill('3');
    await shot('3-settings');
    await page.getByLabel('Temperature').fill('');
    await page.getByRole('button', { name: 'Close the settings' }).click();
    await ask(page, 'And in one sentence?');
    await page.getByText(' keeps', { exact: true }).last().hover();
    await shot('4-tokens');
    await page.getByRole('link', { name: 'Live' }).click();
    await page.getByRole('heading', { name: 'Between tokens' }).waitFor();
    await page.waitForTimeout(phone || dark ? 3000 : 12000);
    await shot('5-live');
    await page.getByRole('heading', { name: 'Between tokens' }).scrollIntoViewIfNeeded();
    await shot('6-live-below');
    await page.getByRole('link', { name: 'Models' }).click();
    await page.getByText('The whole server').waitFor();
    await shot('7-models');
    await close();
  }
}
await browser.close();
await server.stop();
