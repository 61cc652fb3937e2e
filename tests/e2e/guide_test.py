"""The guide: its commands, followed to the letter in an empty folder against an installed Mortise, and its tables,
compared with what the program says.

A block "```LANGUAGE FILE" is a file; a block "```console" holds commands and what they print, "```console PROGRAM"
those that are left out where there is no such program. In what is printed `…` stands for anything in a line; alone on a
line, for any lines."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import e2e
from e2e import TINY

GUIDE = e2e.SOURCE / "docs/guide"
PAGES = ("writing_a_plugin.md", "testing_a_plugin.md")  # in this order, in one folder
LANGUAGES = ("toml", "cmake", "c", "cpp", "rust")


def blocks(text):
    """(language, rest of the first line, body) of each fenced block."""
    return re.findall(r"^```(\w+) *(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)


def commands(body):
    """(command, what it prints) of a console block."""
    parts = re.split(r"^\$ (.*)\n", body, flags=re.MULTILINE)
    assert parts[0] == "", parts[0]
    return list(zip(parts[1::2], parts[2::2]))


def matches(expected, printed):
    pattern = ""
    for line in expected.splitlines():
        some = ".*".join(re.escape(part.rstrip() if line.endswith("…") else part) for part in line.split("…"))
        pattern += r"(?:.*\n)*?" if line == "…" else some + r" *\n"
    return re.fullmatch(pattern, printed) is not None


def program_path(cmake):
    """With the CMake of the build, an nvcc that is not on the PATH, and the rustc that rustup stands before."""
    folders = [str(pathlib.Path(cmake).parent), os.environ["PATH"], str(e2e.SOURCE / ".deps/cuda/bin"),
               "/usr/local/cuda/bin"]
    if rustc := shutil.which("rustc"):
        said = subprocess.run([rustc, "--print", "sysroot"], capture_output=True, check=True, timeout=e2e.LIMIT_S)
        folders.insert(0, said.stdout.decode().strip() + "/bin")
    return ":".join(folders)


class Guide(e2e.Case):
    @classmethod
    def setUpClass(cls):
        cls.cmake = os.environ.get("CMAKE") or shutil.which("cmake") or e2e.SOURCE / ".deps/bin/cmake"
        cls.prefix = e2e.ROOM / "prefix"
        subprocess.run([cls.cmake, "--install", e2e.MORTISE.parent.parent, "--prefix", cls.prefix], check=True,
                       capture_output=True, timeout=e2e.LIMIT_S)

    def follow(self, *names):
        """Does what the pages say, in this order, in one folder. Gives the programs that are missing, "" for none."""
        page = [block for name in names for block in blocks((GUIDE / name).read_text())]
        self.assertEqual({language for language, _, _ in page} - {"console", *LANGUAGES}, set(),
                         "such a block nobody runs")
        work = self.dir / "work"
        path = program_path(self.cmake)
        script, expected, missing = ["exec 2>&1"], [], set()
        for language, name, body in page:
            if language == "console" and name and not shutil.which(name, path=path):
                missing.add(name)
            elif language == "console":
                for command, printed in commands(body):
                    script += [command, "guide_status=$?; echo; echo ==== $guide_status"]
                    expected.append((command, printed))
            else:
                self.assertNotEqual(name, "", f"a file without a name:\n{body}")
                self.assertFalse((work / name).exists(), f"{name} stands there twice")
                self.file(work / name, body)
        self.assertGreater(len(expected) + len(missing), 0)
        done = subprocess.run(["sh", "-c", "\n".join(script)], cwd=work,
                              env=self.environment(PREFIX=str(self.prefix)) | {"PATH": path},
                              capture_output=True, timeout=2 * e2e.LIMIT_S, check=False)
        outcomes = re.split(r"\n==== (\d+)\n", done.stdout.decode())
        self.assertEqual(len(outcomes) // 2, len(expected), done.stdout.decode())
        for (command, wanted), printed, code in zip(expected, outcomes[::2], outcomes[1::2]):
            with self.subTest(command=command):
                printed += "" if printed in ("", "\n") or printed.endswith("\n") else "\n"
                self.assertEqual(code, "0", printed)
                self.assertTrue(matches(wanted, printed),
                                f"$ {command}\nthe page says:\n{wanted}\nit printed:\n{printed}")
        return ", ".join(sorted(missing))

    def test_the_comparison_itself(self):
        self.assertTrue(matches("a …\n…\nd\n", "a b\nc\nc\nd\n"))
        self.assertTrue(matches("…\nd\n", "d\n"))
        self.assertFalse(matches("a\n", "a\nb\n"))
        self.assertFalse(matches("…\nd\n", "c\n"))
        self.assertFalse(matches("", "warning\n"))

    def test_an_installation_has_what_the_guide_names(self):
        documents = self.prefix / "share/doc/mortise"
        self.assertTrue((documents / "docs/guide/writing_a_plugin.md").exists())
        self.assertTrue((documents / "examples/01_c_optimizer/lion.c").exists())
        # What the example includes is there, too; its own plugin is not built yet.
        example = subprocess.run([self.prefix / "bin/mortise", "plan", "--static", "lion.toml"], capture_output=True,
                                 cwd=documents / "examples/01_c_optimizer", env=self.environment(), check=False,
                                 timeout=e2e.LIMIT_S)
        self.assertIn(b"no plugin is called `optimizer.lion`", example.stderr)
        self.assertNotIn(b"include_missing", example.stderr)
        for plugin in re.findall(r"`(\w+/\w+)`", (GUIDE / PAGES[0]).read_text().split("## Where to look next")[1]):
            if not plugin.startswith("mortise/"):
                self.assertTrue((documents / "plugins" / plugin / (plugin.split("/")[1] + ".cpp")).exists(), plugin)

    def test_every_command_prints_what_the_page_says(self):
        self.follow(*PAGES)

    def test_a_plugin_with_kernels(self):
        left_out = self.follow("cuda_kernels.md")
        (self.dir / "work/built").mkdir()
        (self.dir / "work/built/plugins").symlink_to(self.dir / "work/heavyball/build")
        for folder in ("work/built", *(["work"] if not left_out else [])):
            subprocess.run([sys.executable, e2e.SOURCE / "scripts/check_binaries.py", "plugins", self.dir / folder],
                           check=True, timeout=e2e.LIMIT_S)
        built = self.dir / "work/heavyball/build"
        self.assertEqual(b"nv_fatbin" in (built / "optimizer.heavyball.so").read_bytes(), not left_out)
        devices = 'devices = ["cpu"]' if left_out else 'devices = ["cpu", "cuda"]'
        self.assertIn(devices, (built / "optimizer.heavyball.toml").read_text())
        if left_out:
            self.skipTest(f"what needs {left_out} was left out: there is none")

    def test_a_plugin_in_rust(self):
        if left_out := self.follow("rust.md"):
            self.skipTest(f"what needs {left_out} was left out: there is none")


def trainer_rows():
    """(names with their values, what is here) of each row of both tables in docs/coming_from_trainer.md."""
    page = (e2e.SOURCE / "docs/coming_from_trainer.md").read_text()
    for row in re.findall(r"^\| (.+?) \| (.+?) \|", page, re.MULTILINE):
        names = re.findall(r"`([a-z][a-z0-9_]*\*?)(?:=([^`]+))?`", row[0])
        if row[0] != "TrainingArguments" and names:
            yield names, row[1]


class Trainer(e2e.Case):
    def test_every_name_of_the_page_is_answered_as_the_page_says(self):
        wanted = {}  # name: what the page says
        for names, here in trainer_rows():
            for name, value in names:
                wanted.setdefault(name.replace("*", "something"), (value.lower() or "true", here))
        self.assertGreater(len(wanted), 50)
        self.file("my.toml", "".join(f"{name} = {value}\n" for name, (value, _) in wanted.items()) + TINY)
        result = self.mortise("plan", "--static", "my.toml", "--json")
        self.assertEqual(result.code, 64, result)
        said = {d["at"]["key"]: d for d in map(json.loads, result.err.splitlines())}
        self.assertEqual(said.keys(), wanted.keys())
        for name, (_, here) in wanted.items():
            with self.subTest(name=name):
                self.assertEqual(said[name]["code"], "unknown_key")
                fix = " ".join(each["text"] for each in said[name]["fix"] or [])
                # The page's first key, and one of its tables; where nothing is here, that is said.
                key = re.match(r"`\[([\w.]+)\](?: (\w+))?", here)
                if key:
                    self.assertRegex(fix, rf"\b{key[2]}\b" if key[2] else rf"\[{key[1].split('.')[0]}\.")
                    self.assertIn(f"[{key[1]}]" if key[2] else f"[{key[1].split('.')[0]}.", fix)
                else:
                    self.assertRegex(fix, r"\b(no|not|nothing|leave it out|mortise|where)\b|\[(schedule|optim|log)")


COLUMNS_TOML = """\
[plugin]
id      = "test.columns"
version = "0.1.0"
summary = "Prints name and tag of every column; provides `norm` with a metric and a parameter that nobody uses"
status  = "alpha"
abi     = "0.1"
[points]
provides = ["norm"]
listens  = [{ point = "record" }]
[norm]
attributes = ["width", "eps", "name", "kind"]
[capabilities]
before = ["guard.nonfinite"]  # without the columns that it adds
"""
COLUMNS_CPP = """\
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include "mortise/cpp/operator.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"
using namespace mortise;
struct Told : Layers {
  void record(const mortise_event* event) {
    const Columns columns(*event->record);
    std::string line = "COLUMNS " + std::string(columns.kind());
    for (const mortise_column& c : columns.all())
      line += " " + std::string(view(c.name)) + ":" + std::to_string(c.value.tag) + ":" + std::string(view(c.unit));
    std::fprintf(stderr, "%s\\n", line.c_str());
  }
};
struct Norm {
  Norm(const Builder& build, const LayerSpec& spec) {
    build.param({spec.name() + ".unused", "norm", {"width"}, {spec.integer("width")}, "constant", 1});
  }
  void forward(mortise_call* call) const {
    const Tensor one = empty(MORTISE_F32, {1}, true);
    *Info(one).as<float>() = 1;
    check(api.loop->term(api.host, MORTISE_STR("NAME"), one.get(), MORTISE_STR("one"), 0));
    give(call, 0, ops::mul(call->args[0], std::getenv("TEST_DIVERGES") ? NAN : 1.0));
  }
};
MORTISE_PLUGIN(Told, listen<&Told::record>("record"), provide("norm", operator_of<Norm, Told>()))
"""


def rows_of(page, kind):
    """(column, type, when) of each row below the heading."""
    section = re.search(rf"^## {kind}\n(.*?)(?:^## |\Z)", page, re.MULTILINE | re.DOTALL).group(1)
    return re.findall(r"^\| `([^`]+)` \| (\w+) \| ([^|]+) \|", section, re.MULTILINE)


class Tables(e2e.Case):
    def test_the_columns_of_every_record(self):
        self.file("test.columns.toml", COLUMNS_TOML)
        self.file("columns.cpp", COLUMNS_CPP)
        sdk = e2e.SOURCE / "sdk"
        subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-static-libgcc",
                        f"-Wl,--version-script={sdk}/cmake/plugin.map", f"-I{sdk}/include",
                        '-DMORTISE_PLUGIN_TOML="test.columns.toml"', "columns.cpp", "-o", "test.columns.so"],
                       cwd=self.dir, check=True, timeout=e2e.LIMIT_S)
        self.file("run.toml", e2e.TINY.replace("micro_batch_size", "validation = 0.1\nmicro_batch_size"))
        listening = ["--plugin-path", ".", "--use", "test.columns"]
        told = [self.ok("train", *listening, "--use", "sample.text", "--set", "sample.text.tokens=1",
                        "--set", "log.every=4", "--set", "run.dir=first"),
                self.mortise("train", *listening, "--set", "model.weights=first", "--set", "run.dir=second",
                             env={"TEST_DIVERGES": "1"})]
        # Of a prompt that fills all of a row nothing is learned.
        self.file("rows.csv", f"q,a\n{'x' * 90},yes\n")
        table = e2e.TINY.replace('[data.text]\npath = "notes.txt"\n',
                                 '[data.table]\npath = "rows.csv"\nprompt = "q"\ncompletion = "a"\n')
        told.append(self.mortise("train", self.file("third.toml", table), *listening))
        told.append(self.ok("train", *listening, "--ranks", "2", "--set", "run.dir=fourth"))
        page = (GUIDE / "records.md").read_text()
        tags = {"INT": "3", "FLOAT": "4", "TEXT": "6"}
        rows = {kind: rows_of(page, kind) for kind in ("run", "step", "eval", "sample", "saved", "note", "end")}
        seen = set()
        for line in "".join(result.err for result in told).splitlines():
            if not line.startswith("COLUMNS "):
                continue
            kind, *columns = line.split()[1:]
            columns = {name: (tag, unit) for name, tag, unit in (c.split(":") for c in columns)}
            wanted = {name: (tags[type_], "") for name, type_, _ in rows[kind]}
            self.assertEqual(columns, {name: wanted.get(name) for name in columns}, kind)
            self.assertEqual({name for name, _, when in rows[kind] if when == "always"} - columns.keys(), set(), kind)
            seen |= {(kind, name) for name in columns}
        of_a_gpu = {("step", "mfu"), ("step", "idle_share")}  # tests/gpu
        self.assertEqual({(kind, name) for kind in rows for name, _, _ in rows[kind]} - seen, of_a_gpu, told)

    def test_the_manifests_of_its_page(self):
        found = blocks((GUIDE / "manifest.md").read_text())
        self.assertEqual([language for language, _, _ in found], ["toml", "toml"])
        base = e2e.TINY.replace("[optimizer.adamw]\n", "").replace("layers = 1", "layers = 5")
        for _, _, body in found:
            with self.subTest(body):
                adamw = "" if "[optimizer.adamw]" in body else "[optimizer.adamw]\n"
                self.file("run.toml", base + adamw + body)
                plan = self.ok("plan").out
        # 5 blocks × 4: `*` stands for dots too
        self.assertRegex(plan, r"\n  20 tensors, .*: optimizer\.sgd, cut by element\n")
        self.assertRegex(plan, r"activation\.checkpointing +at h\.\* except h\.0 one in 2")

    def test_every_key_of_plugin_toml(self):
        page = (GUIDE / "writing_a_plugin.md").read_text()
        info = (e2e.SOURCE / "core/plugin/info.cpp").read_text()
        keys = set(re.findall(r'\{"(\w+)", (?:&|wraps\}|listens\}|conflicts\})', info))
        schema = (e2e.SOURCE / "core/manifest/schema.cpp").read_text()
        keys |= set(re.findall(r'\{"(\w+)", (?:&key|&d|Field)', schema))
        self.assertGreater(len(keys), 40)
        for path in (e2e.SOURCE / "core").rglob("*.cpp"):
            called = r'(?:fact_of|value_of_fact|text_of)\([^"\n]*"(\w+)", "(\w+)"\)'
            for table, key in re.findall(called, path.read_text()):
                if not path.name.endswith("_test.cpp"):
                    keys |= {table, key}
        facts = re.search(r"kFacts = \{(.*?)\};", info, re.DOTALL).group(1)
        mapping = (e2e.SOURCE / "formats/huggingface/mapping.cpp").read_text()
        keys |= set(re.findall(r"\w+", facts)) | set(re.findall(r'key == "(\w+)"', mapping))
        types = re.search(r"kTypes\[\] = \{(.*?)\n\};", (e2e.SOURCE / "core/manifest/check.cpp").read_text(), re.DOTALL)
        keys |= set(re.findall(r'\{"(\w+)",', types.group(1)))
        written = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
        self.assertEqual(keys - written, set(), "writing_a_plugin.md says nothing of these")


if __name__ == "__main__":
    e2e.main()
