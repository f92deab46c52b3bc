// Numbers as a person reads them.

export const count = (value: number): string => Math.round(value).toLocaleString('en');

export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function seconds(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (value < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  return `${Math.round(value / 60)} min`;
}

export const decimal = (value: number): string => (value >= 100 ? count(value) : value.toFixed(1));

export const share = (part: number, whole: number): string =>
  whole > 0 ? `${Math.round((part / whole) * 100)} %` : '–';
