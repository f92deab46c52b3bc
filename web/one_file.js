// A plugin of Vite: puts the script and the style into index.html, and says in a policy that nothing else may run.
//
// The policy names both by hash, so text of a model that became markup by mistake could still not run. The server's own
// header (src/serve/endpoints/page.cc) is a second, wider policy: a browser keeps to both.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';

// Whose code is in the page, and must be named with it. DOMPurify is taken under Apache-2.0, the licence of hone
// itself.
const pageParts = ['preact', 'marked', 'highlight.js', 'dompurify'];

const hash = text => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

function licence(name) {
  const folder = new URL(`node_modules/${name}/`, import.meta.url);
  const { version } = JSON.parse(readFileSync(new URL('package.json', folder), 'utf8'));
  if (name === 'dompurify') return `${name} ${version}: Apache-2.0, Copyright Dr.-Ing. Mario Heiderich, Cure53`;
  for (const file of ['LICENSE', 'LICENSE.md', 'LICENSE.txt']) {
    try {
      const text = readFileSync(new URL(file, folder), 'utf8').trim();
      const notice = new URL('NOTICE', folder);
      // Apache-2.0 asks for the notice; the licence itself is hone's own, and stands in LICENSE.
      if (existsSync(notice)) return `${name} ${version}: Apache-2.0\n${readFileSync(notice, 'utf8').trim()}`;
      return `${name} ${version}\n${text}`;
    } catch (error) {
      if (error.code !== 'ENOENT') throw error;
    }
  }
  throw new Error(`${name} has no licence file`);
}

// `parts`: packages whose licences go along; `style`: what the policy allows of styles, by default the one by its hash.
export function oneFile({ parts = pageParts, style: allowedStyle } = {}) {
  return {
    name: 'one-file',
    apply: 'build',
    enforce: 'post',
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const page = files.find(file => file.fileName === 'index.html');
      const scripts = files.filter(file => file.type === 'chunk');
      const styles = files.filter(file => file.fileName.endsWith('.css'));
      if (!page || scripts.length !== 1 || styles.length !== 1 || files.length !== 3) {
        throw new Error(`wanted a page, a script and a style; got ${files.map(file => file.fileName).join(', ')}`);
      }
      // What would end the element, or begin a comment in it, cannot stand in a script.
      const script = scripts[0].code.replaceAll('</script', '<\\/script').replaceAll('<!--', '\\x3C!--').trim();
      const style = String(styles[0].source).trim();
      const policy =
        `default-src 'none'; script-src ${hash(script)}; style-src ${allowedStyle ?? hash(style)}; connect-src 'self'; ` +
        "base-uri 'none'; form-action 'none'";
      const head = `<meta http-equiv="Content-Security-Policy" content="${policy}">\n<style>${style}</style>`;
      const notices = parts.map(licence).join('\n\n').replaceAll('--', '- -');
      const html = String(page.source)
        .replace(/\s*<script[^>]*src=[^>]*><\/script>/, '')
        .replace(/\s*<link[^>]*rel="stylesheet"[^>]*>/, '')
        .replace('<!-- head -->', () => head)
        .replace('<!-- script -->', () => `<script type="module">${script}</script>\n<!--\n${notices}\n-->`);
      if (/<(script|link|img)[^>]+(src|href)=["']?(?!data:)/.test(html.replace(script, ''))) {
        throw new Error('the page still asks for another file');
      }
      if (html.includes(')hone_page"'))
        throw new Error('the page holds the end of its own C++ literal (src/serve/page.cc.in)');
      page.source = html;
      for (const file of [...scripts, ...styles]) delete bundle[file.fileName];
    },
  };
}
