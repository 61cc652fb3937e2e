"""docs/guide/writing_a_plugin.md, followed to the letter in an empty folder against an installed Mortise.

A block "```LANGUAGE FILE" is a file; a block "```console" holds commands and what they print. In what is printed `…`
stands for anything in a line; alone on a line, for any lines."""
import os
import pathlib
import re
import shutil
import subprocess

import e2e

PAGE = e2e.SOURCE / "docs/guide/writing_a_plugin.md"
LANGUAGES = ("toml", "cmake", "c", "cpp")


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


class Guide(e2e.Case):
    def test_the_comparison_itself(self):
        self.assertTrue(matches("a …\n…\nd\n", "a b\nc\nc\nd\n"))
        self.assertTrue(matches("…\nd\n", "d\n"))
        self.assertFalse(matches("a\n", "a\nb\n"))
        self.assertFalse(matches("…\nd\n", "c\n"))
        self.assertFalse(matches("", "warning\n"))

    def test_every_command_prints_what_the_page_says(self):
        page = blocks(PAGE.read_text())
        self.assertEqual({language for language, _, _ in page} - {"console", *LANGUAGES}, set(),
                         "such a block nobody runs")
        work = self.dir / "work"
        script, expected = ["exec 2>&1"], []
        for language, name, body in page:
            if language == "console":
                for command, printed in commands(body):
                    script += [command, "guide_status=$?; echo; echo ==== $guide_status"]
                    expected.append((command, printed))
                continue
            self.assertNotEqual(name, "", f"a file without a name:\n{body}")
            self.assertFalse((work / name).exists(), f"{name} stands there twice")
            self.file(work / name, body)
        self.assertGreater(len(expected), 10)

        build = e2e.MORTISE.parent.parent
        cmake = os.environ.get("CMAKE") or shutil.which("cmake") or e2e.SOURCE / ".deps/bin/cmake"
        prefix = self.dir / "prefix"
        subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, capture_output=True,
                       timeout=e2e.LIMIT_S)
        self.assertTrue((prefix / "share/doc/mortise/docs/guide/writing_a_plugin.md").exists())
        path = f"{pathlib.Path(cmake).parent}:{os.environ['PATH']}"
        done = subprocess.run(["sh", "-c", "\n".join(script)], cwd=work,
                              env=self.environment(PREFIX=str(prefix)) | {"PATH": path},
                              capture_output=True, timeout=2 * e2e.LIMIT_S, check=False)
        outcomes = re.split(r"\n==== (\d+)\n", done.stdout.decode())
        self.assertEqual(len(outcomes) // 2, len(expected), done.stdout.decode())
        for (command, wanted), printed, code in zip(expected, outcomes[::2], outcomes[1::2]):
            with self.subTest(command=command):
                printed += "" if printed in ("", "\n") or printed.endswith("\n") else "\n"
                self.assertEqual(code, "0", printed)
                self.assertTrue(matches(wanted, printed),
                                f"$ {command}\nthe page says:\n{wanted}\nit printed:\n{printed}")


if __name__ == "__main__":
    e2e.main()
