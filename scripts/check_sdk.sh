#!/bin/sh
# The installed SDK serves people who have nothing but it: the example's optimizer in C, copied out of the tree and
# built by a C compiler alone and by CMake; a plugin in one .cu by nvcc, where there is one.
# usage: scripts/check_sdk.sh BUILD_FOLDER CMAKE
set -eu
build=$(cd "$1" && pwd)
cmake=$2
check=$(cd "$(dirname "$0")" && pwd)/check_binaries.py
work=$(mktemp -d) # no space in its path: pkg-config's variables are words
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved" # an installation is a folder that moves
prefix="$work/moved"

cp -R "$(dirname "$check")/../examples/01_c_optimizer" "$work/example"
cd "$work/example"
id=$(sed -n 's/^id *= *"\(.*\)"/\1/p' plugin.toml)

# 1. A C compiler alone.
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
  flags="$(pkg-config --cflags mortise) $(pkg-config --variable=pluginflags mortise)"
else
  flags="-I$prefix/include -shared -fPIC -fvisibility=hidden -Wl,--version-script=$prefix/share/mortise/plugin.map"
fi
mkdir -p by_hand/plugins
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror $flags -DMORTISE_PLUGIN_TOML='"plugin.toml"' *.c -o \
  "by_hand/plugins/$id.so"
cp plugin.toml "by_hand/plugins/$id.toml"
python3 "$check" plugins by_hand

# 2. CMake.
"$cmake" -S . -B by_cmake/plugins -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
"$cmake" --build by_cmake/plugins >/dev/null
python3 "$check" plugins by_cmake

# 3. Every public header compiles by itself, as C99, as C11 and as C++20.
cd "$prefix/include"
for header in mortise/*.h; do
  for std in c99 c11; do
    echo "#include <$header>" | ${CC:-cc} -std=$std -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c -
  done
  echo "#include <$header>" | ${CXX:-c++} -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c++ -
done
echo "$(ls mortise/*.h | wc -l) headers compile by themselves"
# Those of C++ together, by clang too, where there is one.
ls mortise/cpp/*.hpp mortise/cuda/*.hpp | sed 's/.*/#include <&>/' >"$work/headers.cpp"
for cxx in "${CXX:-c++}" clang++; do
  command -v "$cxx" >/dev/null || { echo "SKIPPED: headers by $cxx, which is not here" && continue; }
  "$cxx" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I. "$work/headers.cpp"
done

# 4. A plugin in one .cu, with every header of C++ in it: by nvcc alone and by CMake.
PATH="$PATH:$(dirname "$check")/../.deps/cuda/bin:/usr/local/cuda/bin"
mkdir -p "$work/kernel/by_hand/plugins"
cd "$work/kernel"
{
  (cd "$prefix/include" && ls mortise/*.h mortise/c*/*.hpp | sed 's/.*/#include <&>/')
  cat <<'CU'
namespace {
using namespace mortise;
__global__ void twice(float* x, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
struct Twice {
  void states(const mortise_param_info*, mortise_state_spec*, uint32_t* n) { *n = 0; }
  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger*) const {
    std::string names;  // what the C++ library brings must not show
    for (uint32_t i = 0; i < n; ++i) {
      const mortise_slice& s = slice_at(slices, i);
      names += view(s.info->name);
      MORTISE_LAUNCH(twice, unsigned(s.length / 256 + 1), 256, stream_now(), Info(s.master).as<float>(), s.length);
      if (const char* wrong = launch_error()) throw Error(MORTISE_E_OPERATOR, names + wrong);
    }
  }
};
constexpr mortise_optimizer kTwice = {sizeof(mortise_optimizer), 0, thunk<&Twice::states>, thunk<&Twice::step>};
}  // namespace
MORTISE_PLUGIN(Twice, mortise::provide("optimizer", &kTwice))
CU
} >twice.cu
printf '[plugin]\nid = "optimizer.twice"\n[optimizer]\ndevices = ["cuda"]\n' >plugin.toml
project() { # LANGUAGES, words of mortise_add_plugin
  printf 'cmake_minimum_required(VERSION 3.20)\nproject(twice LANGUAGES %s)\nfind_package(Mortise REQUIRED)\n' "$1"
  printf 'mortise_add_plugin(optimizer.twice SOURCES twice.cu %s)\n' "$2"
}
refused() { # because of …
  if "$cmake" -S . -B refused -DCMAKE_PREFIX_PATH="$prefix" >refused.txt 2>&1; then
    echo "not refused: $1" && exit 1
  fi
  tr -s '\n ' ' ' <refused.txt | grep -q "$1" || { cat refused.txt && exit 1; }
}
project CXX '' >CMakeLists.txt
refused 'nothing, or says nothing, for the CPU, and CUDA is not enabled'
project CXX 'KERNELS twice' >CMakeLists.txt
refused "KERNELS are folders of Mortise's own tree"
if command -v nvcc >/dev/null; then
  if command -v pkg-config >/dev/null; then
    nvcc $(pkg-config --cflags mortise) $(pkg-config --variable=nvccflags mortise) -arch=sm_90 -Werror all-warnings \
      -DMORTISE_PLUGIN_TOML='"plugin.toml"' twice.cu -o by_hand/plugins/optimizer.twice.so
    cp plugin.toml by_hand/plugins/optimizer.twice.toml
    python3 "$check" plugins by_hand
  fi
  project CUDA '' >CMakeLists.txt
  "$cmake" -S . -B by_cmake/plugins -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CUDA_ARCHITECTURES=90 >/dev/null
  "$cmake" --build by_cmake/plugins >/dev/null
  python3 "$check" plugins by_cmake
else
  echo "SKIPPED: a plugin in one .cu, as there is no nvcc"
fi

# 5. The installed program starts, where it is part of this build.
if [ -x "$prefix/bin/mortise" ]; then
  "$prefix/bin/mortise" --version
  # and finds its library, its plugins and LibTorch from where it lies now
  if [ -e "$prefix/lib/mortise/libmortise.so" ]; then
    printf '[data.random]\n[model.gpt]\n[optimizer.adamw]\n' >"$work/run.toml"
    "$prefix/bin/mortise" plan "$work/run.toml" | head -n 1
  fi
fi
