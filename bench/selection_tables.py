#!/usr/bin/env python3
"""Fills what was measured into the docs: docs/choosing.md whole, and the tables of docs/quantize.md.

  bench/selection_tables.py                                  the docs anew from bench/results/quantize.json
  bench/selection_tables.py builtin=FOLDER smollm2=FOLDER    first takes over what quantize_table.py kept in FOLDER (--work)
  bench/selection_tables.py speed=FOLDER                     first takes over what quantize_speed.py kept there

docs/choosing.md is bench/choosing.in.md with each {{set/row/field/format}} replaced by that figure, {{builtin/Q4_0 gptq/kld/.4f}}
for example; published figures stand in that file, each with its source. In docs/quantize.md the tables between
<!-- measured: SET ... --> and <!-- end --> are replaced. structure_test compares the docs with the results. Only the standard
library of Python is needed.
"""
import json, pathlib, re, statistics, sys

import quantize_speed, quantize_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS, TEMPLATE, CHOOSING, QUANTIZE = (ROOT / p for p in ('bench/results/quantize.json', 'bench/choosing.in.md', 'docs/choosing.md',
                                                            'docs/quantize.md'))
FIELDS = ('bits', 'kld', 'kld_stderr', 'ppl', 'same_top')


def rounded(value): return float(f'{value:.6g}') if isinstance(value, float) else value


def take_quality(folder, known):
    """Rows of quantize_table.py; the file's name is the row's, so that files beside them are no rows."""
    for path in sorted(folder.glob('*.json')):
        row = json.loads(path.read_text())
        if path.name == 'original.json': known['original'] = {'ppl': rounded(row['ppl'])}
        if not all(f in row for f in FIELDS): continue
        key = f'{row["name"]} {row["width"]} {row["group"]}' if row['group'] else row['name']
        known[key] = {'width': row['width'], 'group': row['group'], **{f: rounded(row[f]) for f in FIELDS}}


def take_speed(folder, known):
    """Medians of quantize_speed.py's sets, and of their ratios to the original that was measured before them."""
    measured = {}
    for path in folder.glob('*.json'):
        name, key, _ = path.name.rsplit('.', 2)
        measured.setdefault(name, {})[key] = json.loads(path.read_text())
    originals = measured.pop('original')
    names = {quantize_speed.file_of(n): n for n in [*quantize_speed.TYPES, *(n for n, _ in quantize_speed.FOLDERS)]}
    for name, sets in measured.items():
        known[names[name]] = {'bytes': next(iter(sets.values()))['bytes']}
        for work in ('prefill', 'decode'):
            mine = [s[work]['tok_s'] for s in sets.values()]
            beside = {key: statistics.median(o[work]['tok_s'] for at, o in originals.items() if at.startswith(key + '-')) for key in sets}
            ratios = [s[work]['tok_s'] / beside[key] for key, s in sets.items()]
            known[names[name]] |= {work: rounded(statistics.median(mine)), work + '_ratio': rounded(statistics.median(ratios))}
    known['BF16'] = {'bytes': next(iter(originals.values()))['bytes'],
                     **{w: rounded(statistics.median(o[w]['tok_s'] for o in originals.values())) for w in ('prefill', 'decode')},
                     'prefill_ratio': 1.0, 'decode_ratio': 1.0}


def fill(text, results):
    def figure(found):
        where, row, field, form = found[1].split('/')
        return format(results[where][row][field], form)
    return re.sub(r'\{\{(.*?)\}\}', figure, text)


def table(kind, rows, speeds):
    """The table of quantize_table.py, or of speeds, as text."""
    if kind == 'speed':
        lines = ['| type | decode tok/s | × BF16 | prompt tok/s | × BF16 |', '|---|--:|--:|--:|--:|']
        order = ['BF16', *sorted((r for r in rows if r != 'BF16'), key=lambda r: -rows[r]['decode'])]
        return '\n'.join(lines + [f'| {r} | {rows[r]["decode"]:.1f} | {rows[r]["decode_ratio"]:.2f} | {rows[r]["prefill"]:.0f} | '
                                  f'{rows[r]["prefill_ratio"]:.2f} |' for r in order])
    def speed(r):
        row = quantize_table.speed_row(r['name'], r['width'])
        return f'{speeds[row]["decode"]:.1f}' if row in speeds else ''
    named = [{**r, 'name': key[:-len(f' {r["width"]} {r["group"]}')] if r['group'] else key} for key, r in rows.items() if 'kld' in r]
    if kind == 'types':
        order = [t for types in quantize_table.TYPES.values() for t in types]
        named = sorted((r for r in named if not r['group']), key=lambda r: order.index(r['name'].split()[0]))
        return quantize_table.types_table(named, speed)[0]
    return quantize_table.folders_table([r for r in named if r['group']], speed)


def main():
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for given in sys.argv[1:]:
        name, _, folder = given.partition('=')
        (take_speed if name == 'speed' else take_quality)(pathlib.Path(folder), results.setdefault(name, {}))
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + '\n')
    CHOOSING.write_text(fill(TEMPLATE.read_text(), results))

    def measured(found):
        where, kind = found[1].split()
        return f'<!-- measured: {found[1]} -->\n{table(kind, results[where], results["speed"])}\n<!-- end -->'
    QUANTIZE.write_text(re.sub(r'<!-- measured: (.*?) -->\n.*?<!-- end -->', measured, QUANTIZE.read_text(), flags=re.S))


if __name__ == '__main__': main()
