#!/usr/bin/env python3
"""How near round-to-nearest quantising into folders is to what this machine can do on its threads.

    bench/quantize_bound.py MODEL_FOLDER --hone build/hone --work DIR [--threads 2] [--turns 3] [--only REGEX]

For each method, in turns: the bound's copies, then `hone quantize`. There are two bounds.

Of the processors, in seconds for each thread, the sum of
  - reading every byte of the input once, writing every byte of the result once into new files and on to the disk, and reading the
    quantised part back once: plain pread and pwrite of 1 MiB by as many threads, measured right before each run; nothing is
    written or read twice;
  - the vector operations that coding and comparing must do (the table below), at the rate that `hone roof` measures for F32
    multiplications and additions.
It is compared with user and system time.

Of the clock: the result is on the disk before it has its name, so a run takes at least as long as those threads take to write
as many bytes to the disk, while others synchronise the files every 64 MiB (at the end alone takes longer), and no less than the
bound of the processors: the larger of the two. That is as if reading, coding and writing never waited for one another. It is
compared with the whole run, from the start of the program to its end.

Before both, files of the same size are written and removed: pages that the machine's host has to provide first would cost
several times as much, now in the bound and now in the run. A share is bound / measured, of the medians of all turns.
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
STEP, SYNCED = 1 << 20, 64 << 20


def in_threads(count, work):
    """Processor seconds of `count` threads at work, for each of them, and seconds on the clock."""
    started, clock = time.process_time(), time.monotonic()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for t in threads: t.start()
    for t in threads: t.join()
    return (time.process_time() - started) / count, time.monotonic() - clock


def read(paths, limit, count):
    """Processor seconds to read the first `limit` bytes of the files, by `count` threads."""
    pieces, left = [], limit
    for path in paths:
        size = min(os.path.getsize(path), left)
        left -= size
        fd = os.open(path, os.O_RDONLY)
        pieces += [(fd, at, min(STEP, size - at)) for at in range(0, size, STEP)]
    def work(i):
        room = memoryview(bytearray(STEP))
        for fd, at, size in pieces[i::count]: os.preadv(fd, [room[:size]], at)
    seconds, _ = in_threads(count, work)
    for fd in {p[0] for p in pieces}: os.close(fd)
    return seconds


def write(paths, size):
    """Processor seconds and seconds to write new files of `size` bytes together to the disk, one by each thread: one file would have
    them wait for its lock."""
    each = size // len(paths)
    some = memoryview(bytes(range(256)) * (STEP // 256))
    files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666) for path in paths]
    def work(i):
        os.posix_fallocate(files[i], 0, each)
        steps, done = threading.Semaphore(0), []
        def to_disk():
            while not done:
                steps.acquire()
                os.fdatasync(files[i])
        other = threading.Thread(target=to_disk)
        other.start()
        for at in range(0, each, STEP):
            os.pwrite(files[i], some[:min(STEP, each - at)], at)
            if at % SYNCED == SYNCED - STEP: steps.release()
        done.append(True)
        steps.release()
        other.join()
        os.fsync(files[i])
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
            def room():
                write(plain, plan['bytes'])
                for path in plain: os.unlink(path)
                os.sync()
            room()
            written, disk = write(plain, plan['bytes'])
            copies = {'read': read(files, sum(map(os.path.getsize, files)), args.threads), 'write': written,
                      'back': read(plain, made, args.threads), 'disk': disk}
            for path in plain: os.unlink(path)
            os.sync()
            room()
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
        clock = max(bound, middle['disk'])
        table.append({'method': words, **middle, 'bound': bound, 'busy': busy, 'share_of_busy': bound / busy, 'clock_bound': clock,
                      'share_of_wall': clock / middle['wall']})
    if args.json: return print(json.dumps({'lane_operations_per_s': lanes, 'rows': table}))
    print(f'{lanes / 1e9:.0f}e9 lane operations a second, {args.threads} threads; seconds')
    print('| command | read | write | back | coding | bound | processors busy | of it | to the disk | bound of the clock | whole run | of it |')
    print('|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|')
    for r in table:
        print(f"| `{r['method']}` | {r['read']:.2f} | {r['write']:.2f} | {r['back']:.2f} | {r['coding']:.2f} | **{r['bound']:.2f}** | {r['busy']:.2f} | "
              f"{100 * r['share_of_busy']:.0f} % | {r['disk']:.2f} | **{r['clock_bound']:.2f}** | {r['wall']:.2f} | {100 * r['share_of_wall']:.0f} % |")


if __name__ == '__main__': sys.exit(main())
