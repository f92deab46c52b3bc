#!/bin/sh
# An inline function shared with an AVX-512 file can be picked by the linker for the baseline code and crash an old CPU.
# So no object built from a kernel file with an ISA suffix may define a weak symbol. Usage: no_weak_symbols.sh OBJECT_DIR
set -u
objects=$(find "$1" -name '*_avx2.cc.o' -o -name '*_avx512.cc.o' -o -name '*_vnni.cc.o' -o -name '*_bf16.cc.o' -o -name '*_amx.cc.o')
[ -n "$objects" ] || { echo "no kernel objects under $1: the check would pass on nothing"; exit 1; }
bad=$(nm -A --defined-only $objects | awk '$2 ~ /^[WwVvu]$/ {print}' | c++filt)
if [ -n "$bad" ]; then
  printf 'weak symbols in kernel objects (put the function into an anonymous namespace, include no STL there):\n%s\n' "$bad"
  exit 1
fi
echo "$(echo "$objects" | wc -l) kernel objects, no weak symbol"
