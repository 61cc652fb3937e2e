#!/bin/sh
# The environment of the comparisons with PyTorch and transformers, in .deps/parity, then the comparisons themselves.
# usage: scripts/parity.sh BUILD_FOLDER
set -eu
cd "$(dirname "$0")/.."
scripts/environment.sh parity "5 GB"
PATH="$PWD/.deps/parity/bin:$PATH" MORTISE="$PWD/$1/bin/mortise" exec sh tests/parity/run.sh
