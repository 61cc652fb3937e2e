#!/bin/sh
# A folder to carry to a machine with a GPU: the installed product, stripped, the tests that want one, and what compares
# with PyTorch.
#
#   usage: scripts/gpu_folder.sh BUILD FOLDER
#   there: export LD_LIBRARY_PATH=…/site-packages/torch/lib
#          FOLDER/run.sh                  every test; FOLDER/run.sh gpu_counts, FOLDER/run.sh Numbers.test_…
#          FOLDER/parity.sh FOLDER/rows   comparisons, for docs/fidelity.md; in a Python with torch and transformers
set -eu
cd "$(dirname "$0")/.."
build=$1 folder=$2
rm -rf "$folder"
.deps/bin/cmake --install "$build" --prefix "$folder" --strip >/dev/null
rm -rf "$folder/include" "$folder/share/doc"
mkdir -p "$folder/tests"
mkdir -p "$folder/benchmarks"
cp -r tests/gpu tests/e2e tests/parity "$folder/tests/"
cp -r benchmarks/gpu "$folder/benchmarks/"
cp "$build"/fixtures/gpu/* "$folder/tests/gpu/fixtures/"
[ ! -e "$build/fixtures/cupti/trace.so" ] || cp "$build/fixtures/cupti/trace.so" "$folder/tests/gpu/cupti/"
python3 -B tests/parity/plugins.py "$folder/tests/parity/built"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
cat >"$folder/run.sh" <<'END'
#!/bin/sh
# Every test that wants a GPU, a line each. With arguments: those of tests/gpu/NAME_test.py, and what unittest takes
# (run.sh gpu_counts Counts.test_…); without NAME those of gpu_test.py.
cd "$(dirname "$0")"
export MORTISE="$PWD/bin/mortise" PYTHONUNBUFFERED=1
status=0
if [ $# -eq 0 ]; then
  for test in tests/gpu/gpu*_test.py; do python3 -B "$test" -v || [ $? -eq 77 ] || status=1; done
elif [ -e "tests/gpu/$1_test.py" ]; then
  test=$1 && shift
  python3 -B "tests/gpu/${test}_test.py" -v "$@" || status=1
else
  python3 -B tests/gpu/gpu_test.py -v "$@" || status=1
fi
exit $status
END
cat >"$folder/parity.sh" <<'END'
#!/bin/sh
# The comparisons with PyTorch, transformers and bitsandbytes, both sides on the GPU (PARITY_DEVICE=cpu: on the CPU).
# usage: parity.sh ROWS [CASE…]: results go into ROWS, for tests/parity/fidelity.py; cases are those of parity.py alone
rows=$(realpath "$1") && shift
cd "$(dirname "$0")"
export MORTISE="$PWD/bin/mortise" PARITY_DEVICE="${PARITY_DEVICE:-cuda}" PARITY_ROWS="$rows" PYTHONDONTWRITEBYTECODE=1
export HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
python3 tests/parity/fidelity.py --begin "$rows" || exit
status=0
if [ $# -eq 0 ]; then
  python3 tests/parity/attention.py || status=1
  python3 tests/parity/models.py || status=1
fi
python3 tests/parity/parity.py "$@" || status=1
python3 tests/parity/fidelity.py "$rows"
exit $status
END
chmod +x "$folder/run.sh" "$folder/parity.sh"
du -sh "$folder"
