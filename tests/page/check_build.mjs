// Whether assets/page/index.html and assets/report/index.html are what web/ builds. Prints one plain line that counts.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('../../web/', import.meta.url));
// What is built, and where the committed file lies.
const pages = [
  { name: 'page', flags: [] },
  { name: 'report', flags: ['--config', 'report/vite.config.js'] },
];

if (!existsSync(`${web}node_modules/vite`)) {
  console.log(
    'SKIPPED: web/node_modules is not there (npm ci needs the network); the committed pages were not compared with a build',
  );
  console.log('0 passed, 0 failed, 2 skipped');
  process.exit(0);
}
let wrong = 0;
for (const { name, flags } of pages) {
  const out = mkdtempSync(join(tmpdir(), 'hone-page-'));
  try {
    execFileSync(
      process.execPath,
      [`${web}node_modules/vite/bin/vite.js`, 'build', ...flags, '--outDir', out, '--logLevel', 'warn'],
      { cwd: web, stdio: 'inherit' },
    );
    const committed = fileURLToPath(new URL(`../../assets/${name}/index.html`, import.meta.url));
    if (!readFileSync(join(out, 'index.html')).equals(readFileSync(committed))) {
      console.error(`assets/${name}/index.html is not what web/ builds: run ./dev page and commit it`);
      ++wrong;
    }
  } finally {
    rmSync(out, { recursive: true });
  }
}
console.log(`${pages.length - wrong} passed, ${wrong} failed`);
process.exitCode = wrong > 0 ? 1 : 0;
