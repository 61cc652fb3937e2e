#!/bin/sh
# The environment of the comparisons with PyTorch and transformers, in .deps/parity, then the comparisons themselves,
# whose results go to BUILD_FOLDER/parity-cpu.jsonl. The page is made of them and of those that a GPU gave:
# python3 tests/parity/fidelity.py build/parity-cpu.jsonl ROWS_OF_A_GPU > docs/fidelity.md
# usage: scripts/parity.sh BUILD_FOLDER
set -eu
cd "$(dirname "$0")/.."
scripts/environment.sh parity "5 GB"
PATH="$PWD/.deps/parity/bin:$PATH" PARITY_ROWS="$PWD/$1/parity-cpu.jsonl" MORTISE="$PWD/$1/bin/mortise" \
  exec sh tests/parity/run.sh
