// Markdown on the page. Each block is its own component, so that text which is already there (and perhaps selected)
// stays untouched while the answer grows. The buttons of code blocks are part of the HTML: one listener serves them
// all.
import { memo } from 'preact/compat';
import { copyText } from './copy';
import { type Block, blocks } from './markdown';

// Every character of `html` went through markdown.ts.
const BlockView = memo(({ html }: { html: string }) => (
  <div class="block" dangerouslySetInnerHTML={{ __html: html }} />
));

async function copyCode(event: MouseEvent) {
  const button = event.target instanceof Element ? event.target.closest('button.copy-code') : null;
  const code = button?.closest('.code')?.querySelector('pre')?.textContent;
  if (!button || code == null) return;
  button.textContent = (await copyText(code)) ? 'Copied' : 'Not copied';
  setTimeout(() => {
    button.textContent = 'Copy';
  }, 1500);
}

export const MarkdownView = memo(({ text }: { text: string }) => (
  <div class="markdown" onClick={event => void copyCode(event)}>
    {blocks(text).map(({ key, html }: Block) => (
      <BlockView key={key} html={html} />
    ))}
  </div>
));
