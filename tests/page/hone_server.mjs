// A real `hone serve` with the built-in model, on a port of its own. HONE_PROGRAM names the program (default:
// build/hone).
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
export const binary = process.env.HONE_PROGRAM ?? `${root}build/hone`;
export const haveBinary = existsSync(binary);

// The address comes from the line that the program prints for people to copy.
export async function startHone(flags = []) {
  const child = spawn(binary, ['serve', 'builtin', '--port', '0', ...flags], {
    cwd: root,
    env: { ...process.env, HONE_ASSETS: process.env.HONE_ASSETS ?? `${root}assets` },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = new Promise(resolve => child.once('exit', resolve));
  let said = '';
  const url = await new Promise((resolve, reject) => {
    const read = text => {
      said += text;
      const found = /https?:\/\/127\.0\.0\.1:\d+/.exec(said);
      if (found) resolve(`${found[0]}/`);
    };
    child.stdout.setEncoding('utf8').on('data', read);
    child.stderr.setEncoding('utf8').on('data', read);
    void exited.then(code => reject(new Error(`hone serve ended with ${code}:\n${said}`)));
    child.once('error', reject);
  });
  return {
    url,
    async stop() {
      child.kill('SIGTERM');
      return exited;
    },
    async kill() {
      child.kill('SIGKILL');
      return exited;
    },
  };
}
