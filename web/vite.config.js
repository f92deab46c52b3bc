// Builds ../assets/page/index.html: one file that asks nobody for anything. `npm run build` writes it; with --outDir it
// goes elsewhere (tests/page/check_build.mjs). `npm run dev` serves the sources and passes the API on to a running
// `hone serve`.
import { defineConfig } from 'vite';
import { oneFile } from './one_file.js';

const server = process.env.HONE_URL ?? 'http://127.0.0.1:8080';
const routes = ['/v1', '/health', '/ready', '/metrics'];

export default defineConfig({
  plugins: [oneFile()],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  server: { proxy: Object.fromEntries(routes.map(route => [route, server])) },
  build: {
    outDir: '../assets/page',
    emptyOutDir: false, // only ours is in there, but it is not ours to empty
    modulePreload: false,
    cssCodeSplit: false,
    target: ['chrome123', 'firefox128', 'safari17.5'], // the first with light-dark()
    chunkSizeWarningLimit: 600,
  },
});
