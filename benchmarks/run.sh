#!/bin/sh
# Makes the published figures again, on this machine, in a quarter of an hour.
# usage: benchmarks/run.sh (after `make build`; `make parity` made the peer's environment)
set -eu
cd "$(dirname "$0")/.."
export CUDA_VISIBLE_DEVICES=  # figures of the CPU, on a machine with a GPU too
python=.deps/parity/bin/python
[ -x "$python" ] || { echo "benchmarks: the peer needs PyTorch: make parity" >&2; exit 69; }
MORTISE="$PWD/build/bin/mortise" "$python" benchmarks/start/bench.py
MORTISE="$PWD/build/bin/mortise" "$python" benchmarks/train_step/bench.py
MORTISE="$PWD/build/bin/mortise" "$python" benchmarks/checkpoint/bench.py
MORTISE="$PWD/build/bin/mortise" "$python" benchmarks/sample/bench.py
"$python" -c 'import accelerate, lightning' 2>/dev/null || "$python" -m pip install --quiet \
  --disable-pip-version-check --no-input --no-deps --only-binary=:all: \
  --require-hashes -r scripts/requirements-trainers.txt
MORTISE="$PWD/build/bin/mortise" "$python" benchmarks/trainers/bench.py
PATH="$PWD/.deps/bin:$PATH" cmake --build build --target bench_abi kernel_adamw_bench kernel_dropout_bench >/dev/null
build/bin/bench_abi
build/bin/kernel_adamw_bench
build/bin/kernel_dropout_bench
