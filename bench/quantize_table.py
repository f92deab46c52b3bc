#!/usr/bin/env python3
"""What each way of quantising costs: the tables of docs/quantize.md (method x width x group), remade with one command.

  bench/quantize_table.py                              the built-in model; assets' calibration and held-out text
  bench/quantize_table.py MODEL --calibration TEXT --held-out TEXT [--chunks 24] [--windows 24] [--rows REGEX]

Every row is quantised and compared with MODEL on the held-out text (protocol llama.cpp, windows of 512). "plain" rows are
what llama-quantize writes, byte for byte, with the importance matrix of the calibration text; GPTQ rows of a type have its
size, mixed ones at most that. The last columns name the row of least divergence that takes no more bytes than the plain one.
Results are kept in --work, a JSON file a row, and what each matrix matters, which is measured once for all budgets: stopped,
it goes on where it was. MODEL as a GGUF file leaves out folders.
--speeds names the folder that quantize_speed.py kept its results in: decode of the 1B shape, which does not depend on how
codes were found. Ends with an error where a plain row is the best of its size. Only the standard library of Python is needed.
"""
import argparse, glob, json, os, pathlib, re, shutil, statistics, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = {'3': ['Q2_K', 'Q3_K_S', 'Q3_K_M', 'Q3_K_L'], '4': ['Q4_0', 'IQ4_XS', 'Q4_K_S', 'Q4_K_M'],
         '5': ['Q5_0', 'Q5_K_S', 'Q5_K_M'], '6': ['Q6_K'], '8': ['Q8_0']}


def rows(folder):
    """(name, width, group, arguments); {imatrix}, {calibration}, {chunks}, {sensitivities} are filled in. BITS_OF:ROW becomes the bits per weight
    of a row made before, TYPES_OF:ROW a recipe of its types (what measuring chose: GPTQ need not measure again)."""
    imatrix, text = ['--imatrix', '{imatrix}'], ['--calibration', '{calibration}', '--chunks', '{chunks}']
    for width, types in TYPES.items():
        for kind in types:
            yield f'{kind} plain', width, '', ['--type', kind, *imatrix]
            yield f'{kind} gptq', width, '', ['--type', kind, *imatrix, '--method', 'gptq', *text]
        for kind in types[-1:]:
            yield f'{kind} mixed', width, '', ['--bits', f'BITS_OF:{kind} plain', *imatrix, *text, '--sensitivities', '{sensitivities}']
            yield f'{kind} mixed gptq', width, '', ['--type', kind, '--recipe', f'TYPES_OF:{kind} mixed', *imatrix, '--method', 'gptq',
                                                    *text]
    if not folder: return
    for width in ('3', '4', '5', '6', '8'):
        for group in ('32', '64', '128'):
            scheme = ['--bits', width, '--group', group]
            for zeros in ('sym', 'asym'):
                yield f'rtn {zeros}', width, group, ['--method', 'rtn', *scheme, '--' + zeros]
                yield f'gptq {zeros}', width, group, ['--method', 'gptq', *scheme, '--' + zeros, *text]
            yield 'awq asym', width, group, ['--method', 'awq', '--format', 'compressed-tensors', *scheme, '--asym', *text]
        if width in ('3', '4', '8'): yield 'hqq', width, '64', ['--method', 'hqq', '--bits', width, '--group', '64']
    for method, width, group in (('nf4', '4', '64'), ('fp4', '4', '64'), ('mxfp4', '4', '32'), ('nvfp4', '4', '16'), ('fp8', '8', 'row'),
                                 ('mxfp8', '8', '32'), ('w8a8', '8', 'row'), ('llm-int8', '8', 'row')):
        yield method, width, group, ['--method', method]
    for number in ('e4m3', 'e5m2'): yield f'fp8 {number}', '8', '128 x 128', ['--method', 'fp8', '--format', 'fp8', '--fp8-type', number]
    yield 'smoothquant', '8', 'row', ['--method', 'smoothquant', *text]


def speed_row(name, width):
    """The row of quantize_speed.py that runs as the same type (docs/models.md); '' for mixed files, which differ."""
    method, _, zeros = name.partition(' ')
    if zeros.startswith('mixed'): return ''
    if zeros in ('plain', 'gptq'): return method
    if method in ('rtn', 'gptq', 'awq'):
        if width in ('6', '8'): return 'w8a8' if zeros == 'sym' or width == '6' else 'compressed-tensors 8 asym'
        return f'compressed-tensors {width} {zeros}' if width in ('4', '5') else 'gptq 3'
    if method == 'hqq': return 'w8a8' if width == '8' else 'hqq 4'
    return {'smoothquant': 'w8a8', 'fp4': 'nf4', 'mxfp8': 'fp8'}.get(method, method)


def file_of(name, width='', group=''): return re.sub(r'\W+', '-', f'{name} {width} {group}'.strip())


def types_table(results, speed):
    """One line a GGUF type, and how many plain rows are the best of their size."""
    lines = ['| width | type | bits | plain | GPTQ | mixed | mixed, GPTQ | best of its size: | same best token % | perplexity | decode tok/s, 1B |',
             '|--:|---|--:|--:|--:|--:|--:|---|--:|--:|--:|']
    by_name, lost = {r['name']: r for r in results if not r['group']}, 0
    size = lambda r: r['bytes'] if all('bytes' in o for o in results) else round(r['bits'], 2)  # the kept results have bits only
    for r in by_name.values():
        if not r['name'].endswith(' plain'): continue
        kind = r['name'][:-6]
        others = {way: by_name[f'{kind} {way}'] for way in ('gptq', 'mixed', 'mixed gptq') if f'{kind} {way}' in by_name}
        cell = {way: f'{o["kld"]:.5f}' for way, o in others.items()}
        best = min((o for o in others.values() if size(o) <= size(r)), key=lambda o: o['kld'], default=r)
        lost += bool(others) and best['kld'] >= r['kld']
        way = best['name'][len(kind) + 1:].replace('gptq', 'GPTQ').replace('mixed GPTQ', 'mixed, GPTQ')
        gained = f'{way}, {r["kld"] / best["kld"]:.1f} ×' if others else ''
        both = [f'{r[f]:{form}} → {best[f]:{form}}' if others else f'{r[f]:{form}}' for f, form in (('same_top', '.1f'), ('ppl', '.2f'))]
        lines.append(f'| {r["width"]} | {kind} | {r["bits"]:.2f} | {r["kld"]:.5f} | {cell.get("gptq", "")} | {cell.get("mixed", "")} | '
                     f'{cell.get("mixed gptq", "")} | {gained} | {both[0]} | {both[1]} | {speed(r)} |')
    return '\n'.join(lines), lost


def folders_table(results, speed):
    lines = ['| recipe | width | group | bits | divergence | same best token % | perplexity | decode tok/s, 1B |',
             '|---|--:|--:|--:|--:|--:|--:|--:|']
    for r in sorted((r for r in results if r['group']), key=lambda r: (r['width'], r['kld'])):
        lines.append(f'| {r["name"]} | {r["width"]} | {r["group"]} | {r["bits"]:.2f} | {r["kld"]:.5f} | {r["same_top"]:.1f} | '
                     f'{r["ppl"]:.2f} | {speed(r)} |')
    return '\n'.join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = ROOT / 'assets/builtin/tasks'
    parser.add_argument('model', nargs='?', default=str(ROOT / 'assets/builtin/main'))
    parser.add_argument('--calibration', default=str(tasks / 'calibration.txt'))
    parser.add_argument('--held-out', default=str(tasks / 'held-out.txt'))
    parser.add_argument('--chunks', type=int, default=128, help='of 512 tokens, for GPTQ, AWQ and the importance matrix')
    parser.add_argument('--windows', type=int, default=40)
    parser.add_argument('--rows', default='', help='only rows whose "name width group" this regular expression finds')
    parser.add_argument('--work', default='build/quantize-table')
    parser.add_argument('--hone', default=str(ROOT / 'build/hone'))
    parser.add_argument('--speeds', help='where quantize_speed.py kept its results')
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, HONE_LEDGER=os.environ.get('HONE_LEDGER', 'off'))

    def hone(*words):
        done = subprocess.run([args.hone, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment)
        if done.returncode != 0: raise RuntimeError(f'hone {" ".join(map(str, words))}\n{done.stderr.strip()}')
        return done.stdout

    imatrix, base = work / 'imatrix.gguf', work / 'base.kld'
    if not imatrix.exists():
        hone('calibrate', args.model, '-f', args.calibration, '-o', imatrix, '--chunks', args.chunks)
    if not base.exists():
        hone('eval', 'kld', args.model, '-f', args.held_out, '--chunks', args.windows, '--save', str(base) + '.new')
        os.replace(str(base) + '.new', base)

    # Not the base file's: that holds no probability below e^-16 of the best, which the right token may have.
    kept = work / 'original.json'
    if not kept.exists():
        kept.write_text(hone('eval', 'perplexity', args.model, '-f', args.held_out, '--protocol', 'llama.cpp', '--ctx', 512,
                             '--chunks', args.windows, '--json'))
    original = json.loads(kept.read_text())['ppl']

    def earlier(reference, width):
        what, _, row = reference.partition(':')
        made = json.loads((work / (file_of(row, width) + '.json')).read_text())
        if what == 'BITS_OF': return made['bits']
        recipe = work / (file_of(row, width) + '.types')
        recipe.write_text(''.join(f'{name} {to}\n' for name, to in made['types']))
        return recipe

    results = []
    for name, width, group, words in rows(pathlib.Path(args.model).is_dir()):
        if args.rows and not re.search(args.rows, f'{name} {width} {group}'): continue
        kept = work / (file_of(name, width, group) + '.json')
        if not kept.exists():
            try:
                filled = [earlier(w, width) if re.match('(BITS|TYPES)_OF:', w) else
                          w.format(imatrix=imatrix, calibration=args.calibration, chunks=args.chunks,
                                   sensitivities=work / 'sensitivities') for w in words]
                out = work / ('made' if group else 'made.gguf')
                if out.is_dir(): shutil.rmtree(out)
                report = json.loads(hone('quantize', args.model, out, *filled, '--no-measure', '--force', '--json'))
                kld = json.loads(hone('eval', 'kld', out, '--base', base, '--json'))
                row = {'name': name, 'width': width, 'group': group, 'bits': report['bits_per_weight'],
                       'bytes': report['bytes'], 'kld': kld['kld']['mean'], 'kld_stderr': kld['kld']['stderr'],
                       'ppl': kld['ppl'], 'same_top': kld['same_top']['percent']}
                if name.endswith(' mixed'): row['types'] = [(t['name'], t['to']) for t in report['tensors'] if t['from'] != t['to']]
                kept.write_text(json.dumps(row))
            except (RuntimeError, KeyError, OSError) as error:
                print(f'{name} {width} {group}: {error}', file=sys.stderr)
                continue
        results.append(json.loads(kept.read_text()))
        print(f'{name} {width} {group}: {results[-1]["kld"]:.5f}', file=sys.stderr, flush=True)

    def speed(r):
        row = speed_row(r['name'], r['width'])
        files = glob.glob(f'{args.speeds}/{file_of(row)}.*.json') if args.speeds and row else []
        return f'{statistics.median(json.loads(open(f).read())["decode"]["tok_s"] for f in files):.1f}' if files else ''

    print(f'Original: perplexity {original:.2f}.\n')
    table, lost = types_table(results, speed)
    print(table)
    if any(r['group'] for r in results): print('\n' + folders_table(results, speed))
    return 1 if lost else 0


if __name__ == '__main__': sys.exit(main())
