// Whether assets/page/index.html is what web/ builds. Prints one plain line that counts.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('../../web/', import.meta.url));
const committed = fileURLToPath(new URL('../../assets/page/index.html', import.meta.url));

if (!existsSync(`${web}node_modules/vite`)) {
  console.log(
    'SKIPPED: web/node_modules is not there (npm ci needs the network); the committed page was not compared with a build',
  );
  console.log('0 passed, 0 failed, 1 skipped');
  process.exit(0);
}
const out = mkdtempSync(join(tmpdir(), 'hone-page-'));
try {
  execFileSync(
    process.execPath,
    [`${web}node_modules/vite/bin/vite.js`, 'build', '--outDir', out, '--logLevel', 'warn'],
    { cwd: web, stdio: 'inherit' },
  );
  if (!readFileSync(join(out, 'index.html')).equals(readFileSync(committed))) {
    console.error('assets/page/index.html is not what web/ builds: run ./dev page and commit it');
    console.log('0 passed, 1 failed');
    process.exitCode = 1;
  } else {
    console.log('1 passed, 0 failed');
  }
} finally {
  rmSync(out, { recursive: true });
}
