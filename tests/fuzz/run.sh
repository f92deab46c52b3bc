#!/bin/sh
# Runs every fuzzer of a build for some seconds from its seeds, sixteen at a time: one turn in CI.
set -u
build=$1 seconds=$2
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fuzz_one() {  # NAME
  mkdir -p "$work/$1"
  seeds="$here/seeds/${1%_fuzz}"
  [ -d "$seeds" ] || seeds="$here/seeds/$1"
  [ -d "$seeds" ] || seeds=
  if "$build/tests/fuzz/$1" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="$work/$1." "$work/$1" $seeds >"$work/$1.log" 2>&1; then
    echo "ok    $1: $(grep -o 'number_of_executed_units: [0-9]*' "$work/$1.log" | tail -n 1)"
  else
    echo "FAIL  $1"; tail -n 40 "$work/$1.log"
    for artifact in "$work/$1".crash-* "$work/$1".timeout-* "$work/$1".oom-*; do
      [ -f "$artifact" ] && { echo "input (base64):"; base64 "$artifact" | head -n 40; }
    done
    touch "$work/failed"
  fi
}
names=$(ls "$build"/tests/fuzz/*_fuzz 2>/dev/null | xargs -rn1 basename)
[ -n "$names" ] || { echo "no fuzzers in $build"; exit 1; }
running=0
for name in $names; do
  fuzz_one "$name" &
  running=$((running + 1))
  [ $((running % 16)) -eq 0 ] && wait
done
wait
[ ! -e "$work/failed" ] || { echo "fuzzing failed"; exit 1; }
echo "$(echo "$names" | wc -l) fuzzers, ${seconds} s each, no finding"
