// The document that `hone report` puts into the page (src/measure/report/report.h).
export type Interval = [x: number | string, value: number | null, low: number | null, high: number | null];

export interface Series {
  name: string;
  points: Interval[];
}

export interface LinesChart {
  kind: 'lines';
  title: string;
  x: string;
  y: string;
  categories?: string[];
  dots?: boolean;
  series: Series[];
}

export interface HeatChart {
  kind: 'heat';
  title: string;
  x: string;
  y: string;
  unit: string;
  xs: string[];
  ys: string[];
  cells: [column: number, row: number, value: number][];
  around?: number;
}

export type Chart = LinesChart | HeatChart;
export type Cell = string | number | null;

export interface Table {
  title: string;
  columns: string[];
  rows: Cell[][];
}

export interface ReportDocument {
  title: string;
  hone: string;
  entry: Record<string, string | number>;
  base: Record<string, string | number> | null;
  conclusions: { shown: string[]; inferred: string[]; open: string[] };
  charts: Chart[];
  tables: Table[];
  environment: [string, string][];
}
