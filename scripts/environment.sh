#!/bin/sh
# A Python environment of its own, .deps/NAME, with what scripts/requirements-NAME.txt pins; nothing to do when it is
# there. usage: environment.sh NAME SIZE
set -eu
cd "$(dirname "$0")/.."
wanted=scripts/requirements-$1.txt made=.deps/$1
key=$(sha256sum <"$wanted")
[ "$(cat "$made/stamp" 2>/dev/null)" != "$key" ] || exit 0
echo "$1: installing $wanted into $made ($2, once)"
rm -rf "$made"
.deps/venv/bin/python -m venv "$made"
"$made/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile --only-binary=:all: \
  --require-hashes --retries 5 -r "$wanted"
echo "$key" >"$made/stamp"
