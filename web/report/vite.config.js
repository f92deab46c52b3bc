// Builds ../../assets/report/index.html: the page that `hone report --html` puts its document into. One file that asks
// nobody for anything.
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { oneFile } from '../one_file.js';

export default defineConfig({
  root: fileURLToPath(new URL('.', import.meta.url)),
  // ECharts writes styles of the elements that it draws, which a policy by hash would refuse.
  plugins: [oneFile({ parts: ['echarts', 'zrender', 'echarts/node_modules/tslib'], style: "'unsafe-inline'" })],
  build: {
    outDir: '../../assets/report',
    emptyOutDir: false,
    modulePreload: false,
    cssCodeSplit: false,
    target: ['chrome123', 'firefox128', 'safari17.5'],
    chunkSizeWarningLimit: 900,
  },
});
