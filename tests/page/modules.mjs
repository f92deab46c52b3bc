// The page's own modules in node, through Vite, so that what needs no browser is tested without one.
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';

const web = new URL('../../web/', import.meta.url);

export async function openModules() {
  const { createServer } = await import(
    pathToFileURL(createRequire(new URL('package.json', web)).resolve('vite')).href
  );
  const vite = await createServer({
    root: fileURLToPath(web),
    configFile: false,
    appType: 'custom',
    logLevel: 'error',
    optimizeDeps: { noDiscovery: true },
    server: { middlewareMode: true, watch: null, hmr: false, ws: false },
  });
  return { load: path => vite.ssrLoadModule(path), close: () => vite.close() };
}
