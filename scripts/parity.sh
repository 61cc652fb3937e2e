#!/bin/sh
# The environment of the comparisons with PyTorch and transformers, in .deps/parity, then the comparisons themselves.
# usage: scripts/parity.sh BUILD_FOLDER
set -eu
cd "$(dirname "$0")/.."
key=$(sha256sum <scripts/requirements-parity.txt)
if [ "$(cat .deps/parity/stamp 2>/dev/null)" != "$key" ]; then
  echo "parity: installing PyTorch and transformers into .deps/parity (5 GB, once)"
  rm -rf .deps/parity
  .deps/venv/bin/python -m venv .deps/parity
  .deps/parity/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile --only-binary=:all: --require-hashes --retries 5 \
    -r scripts/requirements-parity.txt
  echo "$key" >.deps/parity/stamp
fi
PATH="$PWD/.deps/parity/bin:$PATH" MORTISE="$PWD/$1/bin/mortise" exec sh tests/parity/run.sh
