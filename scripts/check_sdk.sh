#!/bin/sh
# The installed SDK serves people who have nothing but it: the example's optimizer in C, copied out of the tree and
# built by a C compiler alone and by CMake.
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

# 4. The installed program starts, where it is part of this build.
if [ -x "$prefix/bin/mortise" ]; then
  "$prefix/bin/mortise" --version
  # and finds its library, its plugins and LibTorch from where it lies now
  if [ -e "$prefix/lib/mortise/libmortise.so" ]; then
    printf '[data.random]\n[model.gpt]\n[optimizer.adamw]\n' >"$work/run.toml"
    "$prefix/bin/mortise" plan "$work/run.toml" | head -n 1
  fi
fi
