// The page of a report: the document in it becomes headings, lists, charts and tables. All text goes in as text.
import { draw, format } from './charts';
import type { ReportDocument, Table } from './document';
import './report.css';

type Children = (Node | string)[];

function element<K extends keyof HTMLElementTagNameMap>(name: K, children: Children = [], className = ''): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  made.append(...children);
  if (className) made.className = className;
  return made;
}

const kLists = [
  ['shown', 'Shown', 'What the intervals carry.'],
  ['inferred', 'Inferred', 'What follows if an assumption holds that was not tested here.'],
  ['open', 'Open', 'What these figures do not tell.'],
] as const;

function head(title: string, values: Record<string, string | number>): HTMLElement {
  const list = element('dl');
  for (const [key, value] of Object.entries(values)) {
    if (value === '') continue;
    list.append(element('dt', [key.replaceAll('_', ' ')]), element('dd', [String(value)], key === 'command' || key.endsWith('digest') ? 'code' : ''));
  }
  return element('section', [element('h2', [title]), list]);
}

function conclusions(lists: ReportDocument['conclusions']): HTMLElement {
  const section = element('section', [element('h2', ['Conclusions'])]);
  const columns = element('div', [], 'lists');
  for (const [key, title, meaning] of kLists) {
    const statements = lists[key];
    const list = statements.length ? element('ul', statements.map(statement => element('li', [statement]))) : element('p', ['Nothing.'], 'faint');
    columns.append(element('div', [element('h3', [title]), element('p', [meaning], 'faint'), list], key));
  }
  section.append(columns);
  return section;
}

function table({ title, columns, rows }: Table): HTMLElement {
  const heading = element('tr', columns.map(column => element('th', [column])));
  const body = element(
    'tbody',
    rows.map(row => element('tr', row.map(cell => element('td', [format(cell)], typeof cell === 'number' ? 'number' : '')))),
  );
  const scroll = element('div', [element('table', [element('thead', [heading]), body])], 'scroll');
  return element('section', [element('h2', [title]), scroll]);
}

function build(report: ReportDocument): void {
  document.title = `${report.title} - hone`;
  const main = document.getElementById('report') as HTMLElement;
  main.append(element('h1', [report.title]), element('p', [`${report.entry['time']}, ${report.entry['outcome']}, hone ${report.hone}`], 'faint'));
  main.append(conclusions(report.conclusions));
  if (report.charts.length) {
    const charts = element('section', [element('h2', ['Charts'])]);
    const grid = element('div', [], 'charts');
    charts.append(grid);
    main.append(charts);
    for (const chart of report.charts) {
      const place = element('div', [], 'chart');
      place.setAttribute('role', 'img');
      place.setAttribute('aria-label', `${chart.title}; the numbers stand in the table of figures`);
      grid.append(element('figure', [element('figcaption', [element('b', [chart.title]), element('span', [chart.kind === 'heat' ? chart.unit : chart.y], 'faint')]), place]));
      draw(place, chart);
    }
  }
  for (const one of report.tables) main.append(table(one));
  main.append(head('This experiment', report.entry));
  if (report.base) main.append(head('Compared with', report.base));
  main.append(head('Environment', Object.fromEntries(report.environment)));
}

build(JSON.parse(document.getElementById('document')?.textContent ?? '') as ReportDocument);
