"""The test plugins of this folder, built out of tree. usage: plugins.py FOLDER builds all of them, for a machine that
has no compiler; where `built/` beside this file holds one, it is taken from there."""

import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAMES = ("fields", "logits", "numbers", "overflow")


def build(folder, name):
    """FOLDER/test.NAME.so and its plugin.toml."""
    source, target = HERE / name, folder / f"test.{name}.so"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "plugin.toml", folder / f"test.{name}.toml")
    if (HERE / "built" / target.name).exists():
        shutil.copy(HERE / "built" / target.name, target)
        return
    command = ["c++", "-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    command += [f"-I{ROOT}/sdk/include", "-static-libgcc", "-static-libstdc++"]
    command += [f"-Wl,--version-script={ROOT}/sdk/cmake/plugin.map", '-DMORTISE_PLUGIN_TOML="plugin.toml"']
    subprocess.run([*command, f"{name}.cpp", "-o", target.resolve()], cwd=source, check=True)


if __name__ == "__main__":
    for each in NAMES:
        build(pathlib.Path(sys.argv[1]), each)
