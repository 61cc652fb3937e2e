#!/bin/sh
# clang-format over every file of ours in C, C++ and CUDA, the pinned one: another version breaks other lines.
# scripts/format.sh [--dry-run -Werror]
set -eu
cd "$(dirname "$0")/.."
find benchmarks core examples formats kernels plugins sdk tests -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name \
  '*.c' -o -name '*.cu' -o -name '*.cuh' |
  xargs .deps/bin/clang-format "${@:--i}"
