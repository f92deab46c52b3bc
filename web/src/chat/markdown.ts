// Markdown of a model to HTML that can do nothing: no markup of its own, no scripts, no pictures, links only to the
// web.
//
// Three fences, each enough alone: raw HTML is shown as text (`html` below), DOMPurify removes what is not on the list,
// and the page's policy (web/one_file.js) runs no script but its own.
import DOMPurify from 'dompurify';
import { Marked, type Token, type Tokens } from 'marked';
import { highlight } from './highlight';

const escape = (text: string) =>
  text.replace(/[&<>"']/g, c => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[c]!);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escape(text),
    // A picture would be a request to somebody else's machine: its address is shown instead.
    image({ href, text }: Tokens.Image) {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
    code({ text, lang }: Tokens.Code) {
      const language = (lang ?? '').trim().split(/\s/)[0]!;
      return (
        `<div class="code"><div class="code-head"><span>${escape(language)}</span>` +
        `<button type="button" class="copy-code">Copy</button></div>` +
        `<pre tabindex="0"><code>${highlight(text, language) ?? escape(text)}</code></pre></div>`
      );
    },
    // A wide table scrolls by itself, not the page.
    table(token: Tokens.Table) {
      const cell = (kind: string, c: Tokens.TableCell) =>
        `<${kind}${c.align ? ` align="${c.align}"` : ''}>${this.parser.parseInline(c.tokens)}</${kind}>`;
      const row = (kind: string, cells: Tokens.TableCell[]) => `<tr>${cells.map(c => cell(kind, c)).join('')}</tr>`;
      return (
        `<div class="table" tabindex="0"><table><thead>${row('th', token.header)}</thead>` +
        `<tbody>${token.rows.map(cells => row('td', cells)).join('')}</tbody></table></div>`
      );
    },
  },
});

const kTags = [
  'a',
  'b',
  'blockquote',
  'br',
  'button',
  'code',
  'del',
  'div',
  'em',
  'h1',
  'h2',
  'h3',
  'h4',
  'h5',
  'h6',
  'hr',
  'input',
  'li',
  'ol',
  'p',
  'pre',
  'span',
  'strong',
  'table',
  'tbody',
  'td',
  'th',
  'thead',
  'tr',
  'ul',
];
const kAttributes = [
  'align',
  'checked',
  'class',
  'disabled',
  'href',
  'rel',
  'start',
  'tabindex',
  'target',
  'title',
  'type',
];

DOMPurify.addHook('afterSanitizeAttributes', node => {
  if (node.tagName === 'A') {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer nofollow');
  }
});

const clean = (html: string): string =>
  DOMPurify.sanitize(html, {
    ALLOWED_TAGS: kTags,
    ALLOWED_ATTR: kAttributes,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(https?:|mailto:)/i,
    ADD_URI_SAFE_ATTR: kAttributes.filter(name => name !== 'href'), // the pattern above is for addresses only
  });

export interface Block {
  key: string;
  html: string;
}

// Blocks that were rendered before, by their Markdown: while an answer streams only the last one is new.
const rendered = new Map<string, string>();
const kMostRendered = 2000;

function render(token: Token): string {
  const known = rendered.get(token.raw);
  if (known !== undefined) return known;
  const html = clean(marked.parser([token]));
  if (rendered.size >= kMostRendered) rendered.clear();
  rendered.set(token.raw, html);
  return html;
}

// The blocks of a text (paragraphs, lists, code ...). Keys are stable as text is added.
export function blocks(text: string): Block[] {
  return marked
    .lexer(text)
    .filter(token => token.type !== 'space')
    .map((token, i) => ({ key: `${i}`, html: render(token) }));
}
