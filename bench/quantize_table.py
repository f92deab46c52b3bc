#!/usr/bin/env python3
"""What each way of quantising costs: the table of docs/quantize.md (method x width x group), remade with one command.

  bench/quantize_table.py                              the built-in model; assets' calibration and held-out text
  bench/quantize_table.py MODEL --calibration TEXT --held-out TEXT [--chunks 24] [--windows 24] [--rows REGEX]

Every row is quantised and compared with MODEL on the held-out text (protocol llama.cpp, windows of 512). "plain" rows are
what llama-quantize writes, byte for byte, with the importance matrix of the calibration text; GPTQ rows of a type have its
size. "best of width" names the row of least divergence that takes no more bits than the plain row beside it.
Results are kept in --work, a JSON file a row: stopped, it goes on where it was. MODEL as a GGUF file leaves out folders.
Only the standard library of Python is needed. --speed adds tokens a second (decode, at context 0) by hone bench.
"""
import argparse, json, os, pathlib, re, shutil, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = {'3': ['Q2_K', 'Q3_K_S', 'Q3_K_M', 'Q3_K_L'], '4': ['Q4_0', 'IQ4_XS', 'Q4_K_S', 'Q4_K_M'],
         '5': ['Q5_0', 'Q5_K_S', 'Q5_K_M'], '6': ['Q6_K'], '8': ['Q8_0']}


def rows(folder):
    """(name, width, group, arguments); {imatrix} and {calibration} are filled in. An argument list that holds BITS_OF:TYPE
    gets the bits per weight of that plain row."""
    imatrix, text = ['--imatrix', '{imatrix}'], ['--calibration', '{calibration}', '--chunks', '{chunks}']
    for width, types in TYPES.items():
        for kind in types:
            yield f'{kind} plain', width, '', ['--type', kind, *imatrix]
            yield f'{kind} gptq', width, '', ['--type', kind, *imatrix, '--method', 'gptq', *text]
        for kind in types[-1:]:
            yield f'mixed like {kind}', width, '', ['--bits', f'BITS_OF:{kind}', *imatrix, *text]
            yield f'mixed like {kind} gptq', width, '', ['--bits', f'BITS_OF:{kind}', *imatrix, '--method', 'gptq', *text]
    if not folder: return
    for width, bits in (('3', 3), ('4', 4), ('5', 5), ('6', 6), ('8', 8)):
        for group in (64, 128):
            for zeros in ('--sym', '--asym'):
                scheme = ['--bits', str(bits), '--group', str(group), zeros]
                yield f'rtn {zeros[2:]}', width, str(group), ['--method', 'rtn', *scheme]
                yield f'gptq {zeros[2:]}', width, str(group), ['--method', 'gptq', *scheme, *text]
        if bits == 4: yield 'awq asym', width, '64', ['--method', 'awq', '--bits', '4', '--group', '64', '--asym', *text]
        if bits in (3, 4, 8): yield 'hqq', width, '64', ['--method', 'hqq', '--bits', str(bits), '--group', '64']
    for method, width, group in (('nf4', '4', '64'), ('mxfp4', '4', '32'), ('nvfp4', '4', '16'), ('fp8', '8', 'row'),
                                 ('w8a8', '8', 'row'), ('llm-int8', '8', 'row')):
        yield method, width, group, ['--method', method]
    yield 'smoothquant', '8', 'row', ['--method', 'smoothquant', *text]


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
    parser.add_argument('--speed', action='store_true')
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
    original = json.loads(hone('eval', 'perplexity', args.model, '-f', args.held_out, '--protocol', 'llama.cpp', '--ctx', 512,
                               '--chunks', args.windows, '--json'))['ppl']
    results = []
    for name, width, group, words in rows(pathlib.Path(args.model).is_dir()):
        if args.rows and not re.search(args.rows, f'{name} {width} {group}'): continue
        kept = work / (re.sub(r'\W+', '-', f'{name} {width} {group}') + '.json')
        if not kept.exists():
            try:
                filled = []
                for word in words:
                    if word.startswith('BITS_OF:'):
                        plain = work / (re.sub(r'\W+', '-', f'{word[8:]} plain {width} ') + '.json')
                        word = json.loads(plain.read_text())['bits']
                    filled.append(str(word).format(imatrix=imatrix, calibration=args.calibration, chunks=args.chunks))
                out = work / ('made' if words[0] == '--method' else 'made.gguf')
                if out.is_dir(): shutil.rmtree(out)
                report = json.loads(hone('quantize', args.model, out, *filled, '--no-measure', '--force', '--json'))
                kld = json.loads(hone('eval', 'kld', out, '--base', base, '--json'))
                row = {'name': name, 'width': width, 'group': group, 'bits': report['bits_per_weight'],
                       'bytes': report['bytes'], 'kld': kld['kld']['mean'], 'kld_stderr': kld['kld']['stderr'],
                       'ppl': kld['ppl'], 'same_top': kld['same_top']['percent']}
                if args.speed:
                    bench = json.loads(hone('bench', out, '--decode', '64', '--context', '0', '--batch', '1', '--prefill', '512', '--json'))
                    row['tok_s'] = {r['work']: r['tok_s'] for r in bench['rows']}
                kept.write_text(json.dumps(row))
            except (RuntimeError, KeyError, OSError) as error:
                print(f'{name} {width} {group}: {error}', file=sys.stderr)
                continue
        results.append(json.loads(kept.read_text()))
        print(f'{name} {width} {group}: {results[-1]["kld"]:.5f}', file=sys.stderr)

    speeds = any('tok_s' in r for r in results)
    print('| recipe | group | bits | divergence | same best token % | perplexity |' + (' decode tok/s |' if speeds else ''))
    print('|---|---|--:|--:|--:|--:|' + ('--:|' if speeds else ''))
    for r in results:
        print(f'| {r["name"]} | {r["group"]} | {r["bits"]:.2f} | {r["kld"]:.5f} ± {r["kld_stderr"]:.5f} | {r["same_top"]:.1f} | {r["ppl"]:.2f} |' +
              (f' {r["tok_s"]["decode"]:.0f} |' if 'tok_s' in r else ''))
    print(f'\nOriginal: perplexity {original:.2f}.')
    print('\n| width | plain | bits | divergence | best of its size | bits | divergence | ratio |\n|---|---|--:|--:|---|--:|--:|--:|')
    worse = 0
    for r in results:
        if not r['name'].endswith(' plain'): continue
        within = [o for o in results if o['bytes'] <= r['bytes'] * 1.001 and o is not r]
        best = min(within, key=lambda o: o['kld'], default=None)
        if best is None: continue
        worse += best['kld'] >= r['kld']
        print(f'| {r["width"]} | {r["name"][:-6]} | {r["bits"]:.2f} | {r["kld"]:.5f} | {best["name"]} {best["group"]} | {best["bits"]:.2f} | '
              f'{best["kld"]:.5f} | {r["kld"] / best["kld"]:.2f} |')
    return 1 if worse else 0


if __name__ == '__main__': sys.exit(main())
