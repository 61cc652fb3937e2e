#!/bin/sh
# clang-tidy, the pinned one, over what a build compiles of ours, tests aside. usage: scripts/tidy.sh BUILD_FOLDER [FILE…]
# The whole tree takes three minutes on two cores.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
if [ ! -x .deps/tidy/bin/clang-tidy ] || ! cmp -s scripts/requirements-tidy.txt .deps/tidy/requirements.txt; then
  echo "tidy: installing clang-tidy into .deps/tidy"
  rm -rf .deps/tidy
  .deps/venv/bin/python -m venv .deps/tidy
  .deps/tidy/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile --only-binary=:all: --require-hashes --retries 5 \
    -r scripts/requirements-tidy.txt
  cp scripts/requirements-tidy.txt .deps/tidy/requirements.txt
fi
[ $# -gt 0 ] || set -- $(find core formats kernels plugins -name '*.cpp' ! -name '*_test.cpp' ! -name '*_bench.cpp' ! -name 'test_*' ! -path '*/fixtures/*' | sort)
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 4 .deps/tidy/bin/clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option
