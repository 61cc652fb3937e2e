#!/usr/bin/env python3
"""What the built files ask of the machine and show to others. \
usage: scripts/check_binaries.py plugins|programs BUILD_FOLDER

plugins   every plugin exports `mortise_plugin_v0` and nothing else, takes nothing from LibTorch, \
keeps the C++ library private, lies beside its toml
programs  bin/mortise and bin/mortise-probe need no shared library but glibc and the compiler's own; \
lib/libmortise.so LibTorch besides, and it
          exports `mortise_main` alone
"""
import re
import subprocess
import sys
from pathlib import Path

from check_core import is_native

TORCH_SYMBOL = re.compile(r"\b(c10|at|torch|caffe2|c10d)::")
TORCH_LIBRARY = re.compile(r"^lib(torch|c10|caffe2)")
GLIBC = re.compile(r"^(lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux-x86-64\.so\.2|linux-vdso\.so\.1)$")
COMPILER = re.compile(r"^lib(stdc\+\+|gcc_s|asan|ubsan|tsan)\.so\.\d+$")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(path, which):
    """Names of the dynamic symbol table, demangled."""
    return [line.split(maxsplit=1)[-1] if which == "--undefined-only" else line.split(maxsplit=2)[-1]
            for line in run("nm", "-D", "-C", which, str(path)).splitlines() if line.strip()]


def needed(path):
    return re.findall(r"\(NEEDED\).*\[([^\]]+)\]", run("readelf", "-d", "-W", str(path)))


def sanitized(path):
    return any(re.match(r"lib(asan|ubsan|tsan)", library) for library in needed(path)) or any(
        "__asan" in s or "__tsan" in s or "__ubsan" in s for s in symbols(path, "--undefined-only"))


def check_plugins(build):
    errors = []
    plugins = sorted((build / "plugins").glob("*.so"))
    print(f"{len(plugins)} plugins in {build / 'plugins'}")
    for path in plugins:
        toml = path.with_suffix(".toml")
        if not toml.is_file():
            errors.append(f"{path.name}: there is no {path.stem}.toml beside it")
        exported = symbols(path, "--defined-only")
        if exported != ["mortise_plugin_v0"]:
            errors.append(f"{path.name}: exports {', '.join(exported[:5]) or 'nothing'} where "
                          "`mortise_plugin_v0` alone is due")
        if is_native(toml):
            continue  # LibTorch's classes are what it is for
        errors += [f"{path.name}: takes `{symbol[:100]}` from LibTorch" for symbol in symbols(path, "--undefined-only")
                   if TORCH_SYMBOL.search(symbol)]
        for library in needed(path):
            if TORCH_LIBRARY.match(library):
                errors.append(f"{path.name}: needs {library}; a portable plugin needs nothing of LibTorch")
            elif COMPILER.match(library) and not sanitized(path):
                errors.append(f"{path.name}: needs {library}; it is kept private (-static-libstdc++ -static-libgcc)")
    return errors


def check_programs(build):
    errors = []
    for name, torch in (("bin/mortise", False), ("bin/mortise-probe", False), ("lib/libmortise.so", True)):
        path = build / name
        if not path.is_file():
            continue
        print(f"{name}: {' '.join(needed(path))}")
        for library in needed(path):
            allowed = (GLIBC.match(library) or COMPILER.match(library) or
                       (torch and library in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1")))
            if not allowed:
                errors.append(f"{name}: needs {library}; only {'LibTorch, ' if torch else ''}"
                              "glibc and libstdc++ may be shared")
        due = ["mortise_main", "mortise_program_main"]
        exported = symbols(path, "--defined-only") if torch else due
        if sorted(exported) != due:
            errors.append(f"{name}: exports {', '.join(exported[:5]) or 'nothing'}; due are {', '.join(due)}")
    return errors


def main():
    checks = {"plugins": check_plugins, "programs": check_programs}
    if len(sys.argv) != 3 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    errors = checks[sys.argv[1]](Path(sys.argv[2]))
    for error in errors:
        print(error)
    sys.exit(f"{len(errors)} against the law" if errors else 0)


if __name__ == "__main__":
    main()
