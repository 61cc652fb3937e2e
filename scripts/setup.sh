#!/bin/sh
# Puts in place what the build needs, and nothing else. Every make target calls it; when all is there it takes a few
# milliseconds.
#
#   from the distribution   a C++ compiler, toml++, spdlog, nlohmann-json, GoogleTest, OpenSSL (its hashes), libcsv;
#                           ccache and mold if they can be had (installed by apt as root or through a passwordless
#                           sudo; otherwise the one line to run is printed)
#   into .deps/             CMake, Ninja, clang-format and LibTorch 2.11 from the Python package index, every wheel
#                           pinned by hash
#
# No GPU, no CUDA toolkit: with CUDA=1 also nvcc and the libraries that LibTorch's CUDA half wants (3 GB), pinned as
# well. A machine that has them already needs none of it. Nothing outside .deps/ is touched but by apt.
# `rm -rf .deps` undoes the rest.
set -eu
cd "$(dirname "$0")/.."

include=${MORTISE_SYSTEM_INCLUDE:-/usr/include}
key=$(cat scripts/setup.sh scripts/requirements.txt | sha256sum)
cuda_key=$(sha256sum <scripts/requirements-cuda.txt)

# What the distribution must provide: a file that shows it, and the package that brings it.
wanted="toml++/toml.h:libtomlplusplus-dev spdlog/spdlog.h:libspdlog-dev nlohmann/json.hpp:nlohmann-json3-dev
        gtest/gtest.h:libgtest-dev openssl/sha.h:libssl-dev csv.h:libcsv-dev"

missing_packages() {
  for pair in $wanted; do
    [ -e "$include/${pair%%:*}" ] || printf ' %s' "${pair##*:}"
  done
  command -v "${CXX:-c++}" >/dev/null || printf ' g++'
}

ready() {
  [ "$(cat .deps/stamp 2>/dev/null)" = "$key" ] && [ -x .deps/bin/cmake ] && [ -x .deps/bin/ninja ] && [ -e \
    .deps/torch/lib/libtorch_cpu.so ] && [ -z "$(missing_packages)" ] &&
    { [ -z "${CUDA:-}" ] || [ "$(cat .deps/stamp-cuda 2>/dev/null)" = "$cuda_key" ]; }
}

ready && exit 0

say() { echo "setup: $*"; }
fail() {
  echo "setup: $1" >&2
  shift
  for line; do echo "  fix: $line" >&2; done
  exit 1
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail \
  "Linux on x86_64 is what LibTorch's pinned wheels are for; this is $(uname -sm)"
mkdir -p .deps
exec 9>.deps/lock
if command -v flock >/dev/null; then # two makes at once: the second waits
  flock 9
  ready && exit 0
fi

# A Python that has a wheel of LibTorch and can make an environment.
find_python() {
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10 python3.14 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' \
        2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

# ---- the distribution's packages ----
packages=$(missing_packages)
python=$(find_python) || packages="$packages python3 python3-venv"
optional=
command -v ccache >/dev/null || optional="$optional ccache"
command -v mold >/dev/null || optional="$optional mold"

if [ -n "$packages$optional" ]; then
  root=
  [ "$(id -u)" = 0 ] || root="sudo"
  line="${root:+$root }apt-get install -y --no-install-recommends$packages$optional"
  may=no
  if command -v apt-get >/dev/null; then
    [ -z "$root" ] && may=yes
    [ -n "$root" ] && command -v sudo >/dev/null && sudo -n true 2>/dev/null && may=yes
  fi
  if [ $may = yes ]; then
    say "installing$packages$optional"
    apt() { # quiet when all goes well
      ${root:+sudo -n} env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o Acquire::Retries=3 -o \
        DPkg::Lock::Timeout=300 "$@" >.deps/apt.log 2>&1
    }
    apt update || say "apt-get update failed; going on with the lists that are here"
    if ! apt install --no-install-recommends $packages $optional; then
      if [ -n "$packages" ] && ! apt install --no-install-recommends $packages; then
        tail -n 5 .deps/apt.log >&2
        fail "apt-get could not install$packages" "$line"
      fi
      say "going on without$optional: the build is slower, nothing else"
    fi
  elif [ -n "$packages" ]; then
    if command -v apt-get >/dev/null; then
      fail "these packages are missing, and installing them needs root:$packages" "$line"
    fi
    fail "missing, by their Debian names:$packages" \
      "install them with this machine's package manager, then run this again"
  fi
  packages=$(missing_packages)
  [ -z "$packages" ] || fail "still missing after the installation:$packages" "$line"
  [ -n "$python" ] || python=$(find_python) || fail \
    "no Python 3.10 to 3.14 that can make an environment (python3 -m venv)" \
    "install one and its venv module, or say which: PYTHON=/path/to/python3 make"
fi

# ---- the environment in .deps ----
# The links .deps/torch and .deps/bin are the last to be made, so an interrupted run leaves nothing that looks finished.
rm -f .deps/stamp
if [ -e .deps/unfinished ] || ! .deps/venv/bin/python -c 'import pip' 2>/dev/null; then
  rm -rf .deps/venv
fi
touch .deps/unfinished
if [ ! -d .deps/venv ]; then
  say "making a Python environment in .deps/venv with $python"
  "$python" -m venv .deps/venv || fail "$python -m venv failed" \
    "install python3-venv, or say which Python: PYTHON=/path/to/python3 make"
fi
pip_install() {
  PIP_USER=0 PIP_TARGET='' .deps/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --no-deps --no-compile --only-binary=:all: \
    --require-hashes --retries 5 -r "$1" ||
    fail "pip could not install $1" \
      "look at the lines above: no network, no space (1.5 GB are needed), or an index that lacks a file"
}
say "installing CMake, Ninja, clang-format and LibTorch 2.11 into .deps (about 1.3 GB, once)"
pip_install scripts/requirements.txt
site=$(cd .deps/venv/lib/python3*/site-packages && pwd)
site=${site#"$PWD/.deps/"}

mkdir -p .deps/bin
for tool in cmake ctest; do # the programs themselves: the wheel's wrapper starts a Python first
  ln -sfn "../$site/cmake/data/bin/$tool" .deps/bin/$tool
done
ln -sfn "../$site/clang_format/data/bin/clang-format" .deps/bin/clang-format
ln -sfn ../venv/bin/ninja .deps/bin/ninja
ln -sfn "$site/torch" .deps/torch
.deps/bin/cmake --version >/dev/null && .deps/bin/ninja --version >/dev/null || fail \
  "the tools in .deps do not run here" "rm -rf .deps, then make again"

if [ -n "${CUDA:-}" ]; then
  say "installing nvcc and CUDA's libraries into .deps (about 3 GB, once)"
  pip_install scripts/requirements-cuda.txt
  ln -sfn "$site/nvidia/cu13" .deps/cuda
  .deps/cuda/bin/nvcc --version >/dev/null || fail "nvcc in .deps does not run here" \
    "rm -rf .deps, then make build CUDA=1"
  echo "$cuda_key" >.deps/stamp-cuda
fi

rm -f .deps/unfinished
echo "$key" >.deps/stamp
ready || fail "something is still missing after the set-up" "rm -rf .deps, then make again"
say "ready"
