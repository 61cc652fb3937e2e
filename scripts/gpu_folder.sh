#!/bin/sh
# A folder to carry to a machine with a GPU: the installed product, stripped, and the tests that want one.
#
#   usage: scripts/gpu_folder.sh BUILD FOLDER
#   there: LD_LIBRARY_PATH=…/site-packages/torch/lib FOLDER/run.sh
set -eu
cd "$(dirname "$0")/.."
build=$1 folder=$2
rm -rf "$folder"
.deps/bin/cmake --install "$build" --prefix "$folder" --strip >/dev/null
rm -rf "$folder/include" "$folder/share/doc"
mkdir -p "$folder/tests"
mkdir -p "$folder/benchmarks"
cp -r tests/gpu tests/e2e "$folder/tests/"
cp -r benchmarks/gpu "$folder/benchmarks/"
cp "$build"/fixtures/gpu/* "$folder/tests/gpu/fixtures/"
cat >"$folder/run.sh" <<'END'
#!/bin/sh
# Every test that wants a GPU, a line each; arguments go to unittest.
cd "$(dirname "$0")"
MORTISE=$PWD/bin/mortise exec python3 -B tests/gpu/gpu_test.py -v "$@"
END
chmod +x "$folder/run.sh"
du -sh "$folder"
