#!/usr/bin/env python3
"""How fast each type runs beside its original: the table of speeds in docs/quantize.md, remade with one command.

  bench/quantize_speed.py MODEL.gguf [--folder FOLDER] [--rows REGEX] [--sets 2] [--hone PROGRAM]
  bench/quantize_speed.py MODEL.gguf --folder FOLDER --make      # before: only what is to be measured is made

Each GGUF type of MODEL, and each kind of folder of FOLDER (the same model as a Hugging Face folder), is made once and kept in
--work. Then, --sets times, all are measured one after the other by hone bench (a prompt of 256, decode at context 0), the
original before each five of them, so that no figure is far in time from the one it is compared with. A row is the median of its
sets; "of the original" is the median of its ratios to the original measured right before. Results are kept in --work, a JSON
file a measurement: stopped, it goes on where it was. Ends with an error if decode is slower than the original's by more than 3 %.
A type's speed does not depend on its weights, so MODEL may be of random ones. Only the standard library of Python is needed.
"""
import argparse, json, os, pathlib, re, statistics, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = ['Q8_0', 'Q6_K', 'Q5_1', 'Q5_0', 'Q5_K_M', 'Q5_K_S', 'Q4_1', 'Q4_0', 'Q4_K_M', 'Q4_K_S', 'IQ4_NL', 'IQ4_XS', 'MXFP4_MOE',
         'Q3_K_L', 'Q3_K_M', 'Q3_K_S', 'Q2_K', 'TQ2_0']
# Speed depends on what a matrix runs as (docs/models.md), not on how its codes were found: rounded to nearest, quick to make.
FOLDERS = [('compressed-tensors 4 sym', 'rtn --bits 4 --sym'), ('compressed-tensors 4 asym', 'rtn --bits 4 --asym'),
           ('compressed-tensors 5 sym', 'rtn --bits 5 --sym'), ('compressed-tensors 5 asym', 'rtn --bits 5 --asym'),
           ('compressed-tensors 8 asym', 'rtn --bits 8 --asym'), ('gptq 2', 'rtn --format gptq --bits 2 --sym'),
           ('gptq 3', 'rtn --format gptq --bits 3 --sym'), ('gptq 4', 'rtn --format gptq --bits 4 --sym'),
           ('gptq 8', 'rtn --format gptq --bits 8 --sym'), ('awq 4', 'rtn --format awq --bits 4 --asym'), ('hqq 4', 'hqq --bits 4'),
           ('w8a8', 'w8a8'), ('fp8', 'fp8'), ('mxfp4', 'mxfp4'), ('nvfp4', 'nvfp4'), ('nf4', 'nf4'), ('llm-int8', 'llm-int8')]


def file_of(name): return re.sub(r'\W+', '-', name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('--folder', help='the same model as a Hugging Face folder; without it folders are left out')
    parser.add_argument('--rows', default='', help='only rows whose name this regular expression finds')
    parser.add_argument('--sets', type=int, default=2)
    parser.add_argument('--make', action='store_true', help='make the files and measure nothing (the machine may be busy meanwhile)')
    parser.add_argument('--work', default='build/quantize-speed')
    parser.add_argument('--hone', default=str(ROOT / 'build/hone'))
    parser.add_argument('--bench', help='the program that measures, where that is another (a wrapper that keeps the machine quiet)')
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, HONE_LEDGER=os.environ.get('HONE_LEDGER', 'off'))

    def run(program, *words):
        done = subprocess.run([program, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        if done.returncode != 0: raise RuntimeError(f'{" ".join(map(str, words))}\n{done.stderr.strip()}')
        return done.stdout

    # MXFP4_MOE is Q8_0 but for experts.
    wanted = [(name, work / f'{name}.gguf', args.model, ['--type', name, *(['--pure'] if name == 'MXFP4_MOE' else [])]) for name in TYPES]
    if args.folder:
        wanted += [(name, work / file_of(name), args.folder, ['--method', *words.split()]) for name, words in FOLDERS]
    wanted = [row for row in wanted if re.search(args.rows, row[0])]
    for name, path, source, words in wanted:
        if path.exists(): continue
        print(f'making {name}', file=sys.stderr, flush=True)
        # --force: what a stopped run left is begun again.
        run(args.hone, 'quantize', source, path, *words, '--no-measure', '--quiet', '--force')
    if args.make: return 0

    def measured(name, path, key):
        kept = work / f'{file_of(name)}.{key}.json'
        if not kept.exists():
            bench = json.loads(run(args.bench or args.hone, 'bench', path, '--prefill', 256, '--decode', 24, '--context', 0, '--batch', 1,
                                   '--rounds', 3, '--json', '--quiet'))
            row = {'bytes': bench['weight_bytes']}
            for r in bench['rows']: row[r['work']] = {'tok_s': r['tok_s'], 'roof_percent': r['roof_percent']}
            kept.write_text(json.dumps(row))
            print(name, key, *(f'{w} {row[w]["tok_s"]:.1f}' for w in ('prefill', 'decode')), file=sys.stderr, flush=True)
        return json.loads(kept.read_text())

    results, originals = {name: [] for name, *_ in wanted}, []
    for s in range(args.sets):
        order = wanted if s % 2 == 0 else wanted[::-1]
        for i, (name, path, *_) in enumerate(order):
            if i % 5 == 0: originals.append(measured('original', args.model, f'{s}-{i}'))
            results[name].append((measured(name, path, s), originals[-1]))

    def median(rows, work, key): return statistics.median(r[work][key] for r in rows)
    print('| type | bytes | prefill 256 tok/s | of the original | decode tok/s | of the original | of reading (its roof) |')
    print('|---|--:|--:|--:|--:|--:|--:|')
    slower = []
    rows = [('original', [(o, o) for o in originals]), *results.items()]
    for name, pairs in rows:
        mine = [m for m, _ in pairs]
        ratio = {w: statistics.median(m[w]['tok_s'] / o[w]['tok_s'] for m, o in pairs) for w in ('prefill', 'decode')}
        if ratio['decode'] < 0.97: slower.append(name)
        print(f'| {name} | {mine[0]["bytes"] / 1e6:.0f} MB | {median(mine, "prefill", "tok_s"):.0f} | {ratio["prefill"]:.2f} × | '
              f'{median(mine, "decode", "tok_s"):.1f} | {ratio["decode"]:.2f} × | {median(mine, "decode", "roof_percent"):.0f} % |')
    if slower: print(f'\nSlower than the original in decode: {", ".join(slower)}.')
    return 1 if slower else 0


if __name__ == '__main__': sys.exit(main())
