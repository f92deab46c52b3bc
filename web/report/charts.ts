// Charts of a report, drawn by ECharts as SVG: curves with their intervals as bands (or bars, where the axis has names),
// and heat maps. Tooltips are drawn, not markup, so that text of a document is never read as HTML.
import { CustomChart, HeatmapChart, LineChart, ScatterChart } from 'echarts/charts';
import { GridComponent, LegendComponent, TooltipComponent, VisualMapComponent } from 'echarts/components';
import * as echarts from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';
import type { Chart, HeatChart, Interval, LinesChart, Series } from './document';

echarts.use([
  CustomChart,
  HeatmapChart,
  LineChart,
  ScatterChart,
  GridComponent,
  LegendComponent,
  TooltipComponent,
  VisualMapComponent,
  SVGRenderer,
]);

const colours = ['#b4480f', '#1f6f8b', '#7a8b3a', '#7b4ea3', '#a3324c', '#3d6b4f', '#8a6d1d', '#555c66'];
const text = { fontFamily: 'system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, DejaVu Sans, sans-serif' };

export function format(value: unknown): string {
  if (typeof value !== 'number' || !Number.isFinite(value)) return value == null ? '' : String(value);
  if (Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)) return value.toExponential(3);
  return String(Number(value.toPrecision(4)));
}

const bounded = (point: Interval) => point[2] != null && point[3] != null;

// The numbers on the axis: the points' own, as long as they are few.
function ticks(points: Interval[]): number[] {
  return [...new Set(points.map(point => point[0]).filter((x): x is number => typeof x === 'number'))].sort((a, b) => a - b);
}

// Powers of two and the like: an axis whose points span much is logarithmic.
function spread(points: Interval[]): boolean {
  const xs = points.map(point => point[0]).filter((x): x is number => typeof x === 'number');
  const low = Math.min(...xs),
    high = Math.max(...xs);
  return xs.length > 2 && low > 0 && high / low >= 16;
}

// The interval of each point as a vertical bar.
function bars(series: Series, colour: string) {
  return {
    type: 'custom',
    name: series.name,
    silent: true,
    color: colour,
    data: series.points.filter(bounded),
    encode: { x: 0, y: [2, 3] },
    z: 1,
    renderItem(_: unknown, api: { value(i: number): number; coord(at: (number | string)[]): number[] }) {
      const [x = 0, top = 0] = api.coord([api.value(0), api.value(3)]);
      const [, bottom = 0] = api.coord([api.value(0), api.value(2)]);
      const line = (x1: number, y1: number, x2: number, y2: number) => ({
        type: 'line',
        shape: { x1, y1, x2, y2 },
        style: { stroke: colour, lineWidth: 1.5, opacity: 0.8 },
      });
      return { type: 'group', children: [line(x, top, x, bottom), line(x - 4, top, x + 4, top), line(x - 4, bottom, x + 4, bottom)] };
    },
  };
}

// The intervals of a curve as one polygon behind it.
function band(series: Series, colour: string) {
  const points = series.points.filter(bounded);
  // One datum draws all; its ends are those of the whole band, since the axis takes its extent from them.
  const low = Math.min(...points.map(point => point[2] as number));
  const high = Math.max(...points.map(point => point[3] as number));
  return {
    type: 'custom',
    name: series.name,
    silent: true,
    clip: true,
    color: colour,
    data: points.length > 1 ? [[points[0]?.[0], 0, low, high]] : [],
    encode: { x: 0, y: [2, 3] },
    z: 0,
    renderItem(_: unknown, api: { coord(at: (number | string)[]): number[] }) {
      const upper = points.map(point => api.coord([point[0], point[3] as number]));
      const lower = points.map(point => api.coord([point[0], point[2] as number])).reverse();
      return { type: 'polygon', shape: { points: [...upper, ...lower] }, style: { fill: colour, opacity: 0.16 } };
    },
  };
}

// Lines that a legend takes, about: names of six pixels a letter and what stands beside them, in a chart of 420 pixels.
function legendLines(chart: LinesChart): number {
  if (chart.series.length < 2) return 0;
  return Math.max(1, Math.ceil(chart.series.reduce((sum, series) => sum + 6 * series.name.length + 46, 0) / 420));
}

function linesOption(chart: LinesChart) {
  const all = chart.series.flatMap(series => series.points);
  const category = chart.categories != null;
  const log = !category && spread(all);
  const ends = all.flatMap(point => [point[1], point[2], point[3]]).filter((y): y is number => y != null);
  const xs = ticks(all);
  const own = xs.length <= 12 ? { customValues: xs } : {};
  const drawn = chart.series.flatMap((series, i) => {
    const colour = colours[i % colours.length] ?? '#555c66';
    return [
      category ? bars(series, colour) : band(series, colour),
      {
        type: chart.dots ? 'scatter' : 'line',
        name: series.name,
        data: series.points.map(point => [point[0], point[1], point[2], point[3]]),
        color: colour,
        symbol: 'circle',
        symbolSize: 7,
        lineStyle: { width: 2 },
        z: 2,
      },
    ];
  });
  return {
    grid: { left: 64, right: 24, top: 20 + 20 * legendLines(chart), bottom: 48 },
    legend: { show: chart.series.length > 1, top: 0, type: 'plain', data: chart.series.map(series => series.name) },
    xAxis: {
      type: category ? 'category' : log ? 'log' : 'value',
      ...(log ? { logBase: 2 } : {}),
      ...(category
        ? { data: chart.categories, axisLabel: { interval: 0, hideOverlap: true } }
        : {
            min: xs[0],
            max: xs[xs.length - 1],
            splitLine: { show: false },
            axisTick: own,
            axisLabel: { formatter: format, hideOverlap: true, ...own },
          }),
      name: chart.x,
      nameLocation: 'middle',
      nameGap: 28,
    },
    yAxis: { type: 'value', scale: ends.length > 0 && Math.min(...ends) > 0.5 * Math.max(...ends), axisLabel: { formatter: format } },
    series: drawn,
    tooltip: {
      trigger: 'item',
      renderMode: 'richText',
      formatter: (item: { seriesName: string; data: Interval }) => {
        const [x, value, low, high] = item.data;
        const interval = low != null && high != null ? `\n${format(low)} to ${format(high)}` : '\nno interval';
        return `${item.seriesName}\n${chart.x ? chart.x + ' ' : ''}${format(x)}\n${format(value)} ${chart.y}${interval}`;
      },
    },
  };
}

function heatOption(chart: HeatChart) {
  const values = chart.cells.map(cell => cell[2]);
  let low = Math.min(...values),
    high = Math.max(...values);
  if (chart.around != null) {
    const reach = Math.max(Math.abs(high - chart.around), Math.abs(chart.around - low), 1e-9);
    low = chart.around - reach;
    high = chart.around + reach;
  }
  const dark = (value: number) =>
    chart.around != null ? Math.abs(value - chart.around) > 0.3 * (high - low) : value > (low + high) / 2;
  return {
    grid: { left: 64, right: 24, top: 12, bottom: 92 },
    xAxis: { type: 'category', data: chart.xs, name: chart.x, nameLocation: 'middle', nameGap: 26, splitArea: { show: true } },
    yAxis: { type: 'category', data: chart.ys, name: chart.y, nameLocation: 'middle', nameGap: 44, splitArea: { show: true } },
    visualMap: {
      min: low,
      max: high,
      calculable: false,
      orient: 'horizontal',
      left: 'center',
      bottom: 4,
      itemHeight: 120,
      itemWidth: 12,
      precision: 3,
      text: [format(high), format(low)],
      inRange: { color: chart.around != null ? ['#1f6f8b', '#f4f1ea', '#b4480f'] : ['#fbf3ea', '#e9a76c', '#b4480f', '#5c1f04'] },
    },
    series: [
      {
        type: 'heatmap',
        data: chart.cells.map(cell => ({
          value: cell,
          label: { color: dark(cell[2]) ? '#ffffff' : '#1c1e21' },
        })),
        label: { show: true, formatter: (item: { value: number[] }) => format(item.value[2]) },
      },
    ],
    tooltip: {
      renderMode: 'richText',
      formatter: (item: { value: [number, number, number] }) =>
        `${chart.x} ${chart.xs[item.value[0]]}, ${chart.y} ${chart.ys[item.value[1]]}\n${format(item.value[2])} ${chart.unit}`,
    },
  };
}

// Draws `chart` into `place` and keeps it as wide as the place.
export function draw(place: HTMLElement, chart: Chart): void {
  const drawn = echarts.init(place, null, { renderer: 'svg' });
  const option = chart.kind === 'heat' ? heatOption(chart) : linesOption(chart);
  // ECharts' own types know no series made at run time.
  drawn.setOption({ animation: false, textStyle: text, ...option } as Parameters<typeof drawn.setOption>[0]);
  new ResizeObserver(() => drawn.resize()).observe(place);
}
