#!/usr/bin/env python3
"""How near round-to-nearest quantising into folders is to what this machine can do on its threads.

    bench/quantize_bound.py MODEL_FOLDER --hone build/hone --work DIR [--threads 2] [--turns 3] [--only REGEX]

For each method, in turns: the bound's copies, then `hone quantize`. The bound of a method, in processor seconds of all threads,
is the sum of
  - reading every byte of the input once, writing every byte of the result once into new files, and reading the quantised part back
    once: plain pread and pwrite of 1 MiB by as many threads, measured right before each run. They copy from and to the page cache;
    nothing is written or read twice, though hone reads the input again to compare;
  - the vector operations that coding and comparing must do (the table below), at the rate that `hone roof` measures for F32
    multiplications and additions.
It leaves out the disk, which the whole run waits for too (the result is on it before it has its name). A share is bound / measured,
of the medians of all turns.
"""
import argparse, json, os, pathlib, re, shutil, statistics, subprocess, sys, threading, time

# Operations of a 32-bit lane for each weight. Read and checked: widen, shift, mask, largest 4. Range: least, largest 2. A division 20
# (a vector of 16 takes ten cycles on Zen 5, in which 32 lanes a cycle would do 20 a weight). Compared in double 18: two
# conversions, difference, two squares, two sums, magnitude and largest, each for half a vector.
READ, RANGE, DIVIDE, COMPARE = 4, 2, 20, 18
METHODS = {  # words: operations; what of the result is quantised is read back
    '--method rtn': READ + RANGE + DIVIDE + 5 + 5 + 1 + 1 + 4 + COMPARE,             # to BF16 5, limits, sum, bytes 5; pack, unpack; scaled 4
    '--method rtn --asym': READ + RANGE + DIVIDE + 11 + 5 + 1 + 1 + 4 + COMPARE,     # and the zero added, to BF16 again
    '--method rtn --format gptq': READ + RANGE + DIVIDE + 5 + 1 + 1 + 4 + COMPARE,
    '--method rtn --format awq --asym': READ + RANGE + DIVIDE + 5 + 1 + 1 + 4 + COMPARE,
    '--method w8a8': READ + RANGE + DIVIDE + 5 + 5 + 3 + COMPARE,
    '--method fp8': READ + RANGE + DIVIDE + 5 + 16 + 1 + 8 + COMPARE,                # to BF16, to E4M3, bytes; back 8
    '--method mxfp4': READ + RANGE + DIVIDE + 18 + 1 + 1 + 4 + COMPARE,              # to E2M1, bytes, pack; looked up 4
    '--method nvfp4': READ + RANGE + READ + RANGE + DIVIDE + 18 + 1 + 1 + 3 + 4 + COMPARE,  # the largest of fused layers first; E4M3 of scales
    '--method nf4': READ + RANGE + 1 + 16 + 4 + 4 + COMPARE,                         # scaled, four steps of a search, packed; looked up
    '--method llm-int8': READ + RANGE + 1 + 4 + 3 + COMPARE,
}
STEP = 1 << 20


def in_threads(count, work):
    """Processor seconds of `count` threads at work, for each of them: what they wait for (the disk, a lock) is not the processor's."""
    started = time.process_time()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for t in threads: t.start()
    for t in threads: t.join()
    return (time.process_time() - started) / count


def read(paths, limit, count):
    """Seconds to read the first `limit` bytes of the files, by `count` threads."""
    pieces, left = [], limit
    for path in paths:
        size = min(os.path.getsize(path), left)
        left -= size
        fd = os.open(path, os.O_RDONLY)
        pieces += [(fd, at, min(STEP, size - at)) for at in range(0, size, STEP)]
    def work(i):
        room = memoryview(bytearray(STEP))
        for fd, at, size in pieces[i::count]: os.preadv(fd, [room[:size]], at)
    seconds = in_threads(count, work)
    for fd in {p[0] for p in pieces}: os.close(fd)
    return seconds


def write(paths, size):
    """Seconds to write new files of `size` bytes together, one by each thread: one file would have them wait for its lock."""
    each = size // len(paths)
    some = memoryview(bytes(range(256)) * (STEP // 256))
    files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666) for path in paths]
    def work(i):
        os.posix_fallocate(files[i], 0, each)
        for at in range(0, each, STEP): os.pwrite(files[i], some[:min(STEP, each - at)], at)
    seconds = in_threads(len(files), work)
    for fd in files: os.close(fd)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('--hone', default='build/hone')
    parser.add_argument('--work', required=True, help='a folder for results, on the disk that is meant')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--turns', type=int, default=3)
    parser.add_argument('--only', default='')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    files = sorted(str(p) for p in pathlib.Path(args.model).glob('*.safetensors'))
    roof = json.loads(subprocess.run([args.hone, 'roof', '--json', '--quiet', '--ledger', 'off', '--threads', str(args.threads)], check=True,
                                     capture_output=True, text=True).stdout)
    lanes = roof['fp32_gflops'] * 1e9 / 2  # one multiplication and addition of a lane is one operation here
    read(files, sum(map(os.path.getsize, files)), args.threads)  # into the page cache
    rows = {}
    out, plain = work / 'result', [str(work / f'plain-{i}') for i in range(args.threads)]
    for _ in range(args.turns):
        for words, operations in METHODS.items():
            if args.only and not re.search(args.only, words): continue
            shutil.rmtree(out, ignore_errors=True)
            plan = json.loads(subprocess.run([args.hone, 'quantize', args.model, str(out), *words.split(), '--plan', '--json', '--quiet'],
                                             check=True, capture_output=True, text=True).stdout)
            weights = sum(t['shape'][0] * t['shape'][1] for t in plan['tensors'])
            made = sum(t['bytes'] for t in plan['tensors'])
            copies = {'read': read(files, sum(map(os.path.getsize, files)), args.threads),
                      'write': write(plain, plan['bytes']), 'back': read(plain, made, args.threads)}
            for path in plain: os.unlink(path)
            os.sync()
            before, started = os.times(), time.monotonic()
            subprocess.run([args.hone, 'quantize', args.model, str(out), *words.split(), '--no-measure', '--json', '--quiet', '--ledger',
                            'off', '--threads', str(args.threads)], check=True, capture_output=True)
            wall, after = time.monotonic() - started, os.times()
            row = {**copies, 'coding': weights * operations / lanes, 'wall': wall, 'user': after.children_user - before.children_user,
                   'system': after.children_system - before.children_system, 'weights': weights}
            rows.setdefault(words, []).append(row)
    shutil.rmtree(out, ignore_errors=True)
    table = []
    for words, turns in rows.items():
        middle = {key: statistics.median(r[key] for r in turns) for key in turns[0]}
        bound = sum(middle[k] for k in ('read', 'write', 'back', 'coding'))
        busy = (middle['user'] + middle['system']) / args.threads
        table.append({'method': words, **middle, 'bound': bound, 'busy': busy, 'share_of_busy': bound / busy, 'share_of_wall': bound / middle['wall']})
    if args.json: return print(json.dumps({'lane_operations_per_s': lanes, 'rows': table}))
    print(f'{lanes / 1e9:.0f}e9 lane operations a second, {args.threads} threads; seconds')
    print('| command | read | write | back | coding | bound | processors busy | of it | whole run | of it |')
    print('|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|')
    for r in table:
        print(f"| `{r['method']}` | {r['read']:.2f} | {r['write']:.2f} | {r['back']:.2f} | {r['coding']:.2f} | **{r['bound']:.2f}** | {r['busy']:.2f} | "
              f"{100 * r['share_of_busy']:.0f} % | {r['wall']:.2f} | {100 * r['share_of_wall']:.0f} % |")


if __name__ == '__main__': sys.exit(main())
