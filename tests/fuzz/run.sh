#!/bin/sh
# Builds the fuzzers into build-fuzz/ and runs each of them. usage: tests/fuzz/run.sh [safetensors | manifest | state]…
# FUZZ_RUNS (1000000)   executions of each;   FUZZ_SEED (1)   of its random numbers
# What was found to reach new code stays in build-fuzz/corpus/ and is used again; an input that breaks something lies in
# build-fuzz/ as crash-….
set -eu
cd "$(dirname "$0")/../.."
cxx=${FUZZ_CXX:-clang++}
if ! command -v "$cxx" >/dev/null ||
  ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char *, unsigned long) { return 0; }' |
  "$cxx" -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; then
  echo "error[no_clang]: the fuzzers need $cxx and its run-time library for -fsanitize=fuzzer" >&2
  echo '  fix: apt-get install clang libclang-rt-dev      (Debian 12: clang libclang-common-14-dev;' \
    'Fedora: clang compiler-rt)' >&2
  exit 69
fi
# A small quarantine keeps the processor's caches warm: three times as many executions a second.
export ASAN_OPTIONS="quarantine_size_mb=8:malloc_context_size=8${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
mkdir -p build-fuzz/corpus
for target in ${*:-safetensors manifest state}; do
  "$cxx" -std=c++20 -g1 -O2 -fno-omit-frame-pointer \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -DNDEBUG \
    -DOPENSSL_API_COMPAT=0x10100000L -DFMT_HEADER_ONLY=1 \
    -I. -Isdk/include $([ ! -d .deps/include ] || echo -isystem .deps/include) \
    "tests/fuzz/${target}_fuzz.cpp" tests/fuzz/properties.cpp \
    core/store/checkpoint.cpp core/store/files.cpp core/store/folder_lock.cpp core/store/hash.cpp \
    core/store/run_state.cpp formats/safetensors/safetensors.cpp core/base/diagnostic.cpp core/base/progress.cpp \
    core/base/text.cpp \
    -lcrypto -o "build-fuzz/${target}_fuzz"
  mkdir -p "build-fuzz/corpus/$target"
  echo "fuzzing $target, ${FUZZ_RUNS:-1000000} executions"
  "build-fuzz/${target}_fuzz" -runs="${FUZZ_RUNS:-1000000}" -seed="${FUZZ_SEED:-1}" \
    -max_len=1024 -timeout=10 -rss_limit_mb=1024 \
    -dict="tests/fuzz/$target.dict" -artifact_prefix=build-fuzz/ -print_final_stats=1 -verbosity=0 \
    "build-fuzz/corpus/$target" "tests/fuzz/seeds/$target" $([ "$target" != state ] || echo tests/fuzz/seeds/blobs)
done
