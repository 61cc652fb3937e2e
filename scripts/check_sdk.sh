#!/bin/sh
# The installed SDK serves people who have nothing but it: an optimizer in C, outside the tree, built by a C compiler alone and by CMake.
# usage: scripts/check_sdk.sh BUILD_FOLDER CMAKE
set -eu
build=$(cd "$1" && pwd)
cmake=$2
check=$(cd "$(dirname "$0")" && pwd)/check_binaries.py
work="$build/sdk-check"
rm -rf "$work"
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved" # an installation is a folder that moves
prefix="$work/moved"

mkdir -p "$work/lion"
cd "$work/lion"
cat >plugin.toml <<'TOML'
[plugin]
id      = "optimizer.check_lion"
version = "0.1.0"
summary = "An optimizer that does nothing, built against the installed SDK"
status  = "alpha"
source  = "scripts/check_sdk.sh"
tier    = "portable"
abi     = "0.1"

[points]
provides = ["optimizer"]

[config.beta1]
type    = "float"
default = 0.9
doc     = "A number to read."
TOML
cat >lion.c <<'C'
#include <mortise/plugin.h>

typedef struct {
  double beta1;
} lion;

static mortise_status prepare(lion *l, mortise_host *host) {
  l->beta1 = mortise_config_float(host, "beta1");
  return MORTISE_OK;
}

static mortise_status step(lion *l, mortise_host *host, const mortise_lists_api *op, const mortise_optimizer_group *g) {
  (void)l, (void)host, (void)op, (void)g;
  return MORTISE_OK;
}

MORTISE_OPTIMIZER_SIMPLE(lion, prepare, step, "momentum")
C
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(lion LANGUAGES C CXX)
find_package(Mortise REQUIRED)
mortise_add_plugin(optimizer.check_lion SOURCES lion.c LANGUAGE C)
CMAKE

# 1. A C compiler alone.
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
  flags="$(pkg-config --cflags mortise) $(pkg-config --variable=pluginflags mortise)"
else
  flags="-I$prefix/include -shared -fPIC -fvisibility=hidden -Wl,--version-script=$prefix/share/mortise/plugin.map"
fi
mkdir -p by_hand/plugins
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror $flags -DMORTISE_PLUGIN_TOML='"plugin.toml"' lion.c -o by_hand/plugins/optimizer.check_lion.so
cp plugin.toml by_hand/plugins/optimizer.check_lion.toml
python3 "$check" plugins by_hand

# 2. CMake.
"$cmake" -S . -B by_cmake/plugins -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
"$cmake" --build by_cmake/plugins >/dev/null
python3 "$check" plugins by_cmake

# 3. Every public header compiles by itself, as C11 and as C++20.
cd "$prefix/include"
for header in mortise/*.h; do
  echo "#include <$header>" | ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c -
  echo "#include <$header>" | ${CXX:-c++} -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c++ -
done
echo "$(ls mortise/*.h | wc -l) headers compile by themselves"

# 4. The installed program starts, where it is part of this build.
if [ -x "$prefix/bin/mortise" ]; then
  "$prefix/bin/mortise" --version
fi
