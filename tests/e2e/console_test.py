"""What training shows on a terminal, and that a pipe sees nothing of it."""
import fcntl
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import termios
import time

import e2e
from e2e import TINY
from refusals_test import Fixtures

LONG = TINY.replace("length = 6", "length = 150") + "[log]\nevery = 50\n"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
STEP = re.compile(r"step +(\d+)/150 ")


class Screen:
    """What a person sees of a stream: lines, with what `\\r` and `\\x1b[K` do to them. Anything else that moves the
    cursor is a mistake."""

    def __init__(self, stream, columns):
        self.lines, self.drawn, column = [""], [], 0
        for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\r\n|\r|\n|[^\x1b\r\n]+", stream):
            if piece == "\r":
                column = 0
            elif piece in ("\n", "\r\n"):
                self.lines.append("")
                column = 0
            elif piece == "\x1b[K":
                self.lines[-1] = self.lines[-1][:column]
                if column:
                    assert column < columns, f"{self.lines[-1]!r} in {columns} columns"
                    self.drawn.append(self.lines[-1])
            elif not COLOUR.fullmatch(piece):
                assert "\x1b" not in piece, repr(piece)
                self.lines[-1] = self.lines[-1][:column] + piece + self.lines[-1][column + len(piece):]
                column += len(piece)
        self.text = "\n".join(self.lines)


class Terminal(e2e.Case):
    def setUp(self):
        super().setUp()
        self.file("run.toml", LONG)

    def open(self, columns=100):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        return ours, theirs

    def read(self, ours):
        """Until nobody writes any more, which Linux tells as an error."""
        all = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            all += piece
        os.close(ours)
        return all.decode()

    def on_terminal(self, *args, columns=100, err_only=False, env=None, before=None):
        """Exit, what the terminal got, and what a pipe on stdout got."""
        ours, theirs = self.open(columns)
        environment = self.environment(**{"TERM": "xterm", **(env or {})})
        process = subprocess.Popen(
            [e2e.MORTISE, *args],
            cwd=self.dir,
            env=environment,
            stdin=theirs,
            stdout=subprocess.PIPE if err_only else theirs,
            stderr=theirs,
            preexec_fn=before,
        )
        self.addCleanup(process.kill)
        os.close(theirs)
        seen = self.read(ours)
        out = process.stdout.read().decode() if err_only else ""
        if err_only:
            process.stdout.close()
        return process.wait(e2e.LIMIT_S), seen, out

    def steps(self, lines):
        return [int(STEP.match(line)[1]) for line in lines if STEP.match(line)]


class LiveLine(Terminal, Fixtures):
    """Of a training whose every step sleeps for some milliseconds: there is time to draw on any machine."""

    def setUp(self):
        super().setUp()
        self.built("guard.sleeps", '\n[points]\nlistens = [{ point = "step.commit" }]\n', source="sleeps.c")
        self.file("run.toml", LONG + "[guard.sleeps]\n")

    def environment(self, **more):
        return super().environment(MORTISE_PLUGIN_PATH=str(self.dir / "more"), **more)

    def test_is_redrawn_in_place_and_leaves_what_a_pipe_would_have(self):
        began = time.monotonic()
        code, seen, _ = self.on_terminal("train")
        seconds = time.monotonic() - began
        self.assertEqual(code, 0, seen)
        screen = Screen(seen, 100)
        self.assertEqual(self.steps(screen.lines), [50, 100, 150], screen.text)
        words = [line.split()[0] for line in screen.lines[:-1]]
        self.assertEqual(
            words, ["run", "model", "data", "device", "batch", "step", "step", "step", "saved", "done"], screen.text
        )
        self.assertEqual(screen.lines[-1], "", "the prompt comes at the beginning of a line")

        between = self.steps(screen.drawn)
        self.assertGreater(len(between), 0, seen)
        self.assertEqual(between, sorted(between))
        self.assertNotIn(50, between, "what scrolls is not drawn as well")
        self.assertLessEqual(len(between), 10 * seconds + 1)
        later = [line for line in screen.drawn if self.steps([line])[0] > 50]
        self.assertGreater(len(later), 0, seen)
        for line in later:
            self.assertRegex(
                line,
                r"^step    \d+/150  loss [\d.]+  lr \d\.\de-\d\d  grad [\d.]+  \S+ tok/s  mem \S+ [GM]iB(  \S+ "
                r"left)?$",
            )

    def test_fits_the_terminal(self):
        code, seen, _ = self.on_terminal("train", columns=30)
        self.assertEqual(code, 0, seen)
        screen = Screen(seen, 30)
        between = [line for line in screen.drawn if STEP.match(line)]
        self.assertGreater(len(between), 0, seen)
        for line in between:
            self.assertRegex(line, r"^step    \d+/150(  loss [\d.]+)?$")

    def test_does_not_stand_in_the_way_of_an_error(self):
        text = (self.dir / "run.toml").read_text()
        self.file("run.toml", text.replace("[optimizer.adamw]", "[optimizer]\nlr = 1e6\n[optimizer.adamw]"))
        code, seen, _ = self.on_terminal("train")
        self.assertEqual(code, 76, seen)
        screen = Screen(seen, 100)
        at = screen.lines.index("error[diverged]: the gradient was not finite in 3 steps in a row")
        self.assertTrue(screen.lines[at - 1].startswith("stopped "), screen.text)
        self.assertIn("\x1b[1;31merror[diverged]", seen)
        self.assertRegex(seen, r"\x1b\[33m  skipped: gradient of [^\x1b]*\x1b\[0m")

    def test_does_not_run_into_a_line_of_the_log(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        code, seen, _ = self.on_terminal(
            "train",
            "--set",
            "log.every=2",
            "--set",
            "run.length=300",
            "--set",
            "checkpoint.at_end=false",
            env={"MORTISE_PLUGINS_FROM_FILES": "1"},  # not copied into memory files, which count too
            before=small_files,
        )
        self.assertEqual(code, 0, seen)
        self.assertIn("\x1b[K", seen)
        warned = [line for line in Screen(seen, 100).lines if "cannot write" in line]
        self.assertEqual(len(warned), 1, seen)
        self.assertTrue(warned[0].startswith("log.jsonl: "), warned)
        self.assertIn("\r\x1b[Klog.jsonl: ", seen)

    def test_makes_room_for_the_last_lines_after_control_c(self):
        ours, theirs = self.open()
        process = subprocess.Popen(
            [e2e.MORTISE, "train", "--set", "run.length=100000000", "--set", "log.every=100000000"],
            cwd=self.dir,
            env=self.environment(TERM="xterm"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.addCleanup(process.kill)
        os.close(theirs)
        seen = ""
        while seen.count("\x1b[K") < 3:
            seen += os.read(ours, 65536).decode()
        os.write(ours, b"\x03")
        seen += self.read(ours)
        self.assertEqual(process.wait(e2e.LIMIT_S), 130, seen)
        screen = Screen(seen, 100)
        self.assertEqual([line.split()[0] for line in screen.lines[5:-1]],
                         ["step", "stopping", "saved", "stopped", "next"], screen.text)
        self.assertEqual(screen.lines[-1], "")

    def test_is_there_when_the_lines_go_elsewhere(self):
        code, seen, out = self.on_terminal("train", err_only=True)
        self.assertEqual(code, 0, seen)
        self.assertEqual(self.steps(out.splitlines()), [50, 100, 150])
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\r", out)
        screen = Screen(seen, 100)
        self.assertEqual(screen.text, "")
        self.assertGreater(len(self.steps(screen.drawn)), 0, seen)

    def test_goes_together_with_tee(self):
        for _ in range(3):  # on a busy machine tee may come so late that the live line is there again
            ours, theirs = self.open()
            process = subprocess.Popen(
                ["bash", "-c", '"$0" train | tee lines', e2e.MORTISE],
                cwd=self.dir,
                env=self.environment(TERM="xterm"),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
            )
            self.addCleanup(process.kill)
            os.close(theirs)
            seen = self.read(ours)
            self.assertEqual(process.wait(e2e.LIMIT_S), 0, seen)
            screen, lines = Screen(seen, 100), (self.dir / "lines").read_text()
            self.assertEqual(self.steps(lines.splitlines()), [50, 100, 150])
            self.assertGreater(len(self.steps(screen.drawn)), 0, seen)
            if screen.text == lines:
                break
        self.assertEqual(screen.text, lines)

    def test_is_not_drawn_where_it_cannot_be_or_nobody_wants_it(self):
        for args, env in (((), {"TERM": "dumb"}), (("--without", "log.console"), {}), (("-q",), {})):
            code, seen, _ = self.on_terminal("train", "--set", "run.length=50", *args, env=env)
            self.assertEqual(code, 0, seen)
            self.assertNotIn("\x1b", seen)
            self.assertEqual(seen.count("\r"), seen.count("\r\n"), seen)
        self.assertEqual(seen, "")
        code, seen, _ = self.on_terminal("train", "--set", "run.length=50", "--json")
        self.assertEqual([line[:9] for line in seen.splitlines()], ['{"event":'] * 4, seen)

    def test_leaves_the_terminal_of_another_job_alone(self):
        ours, theirs = self.open()
        # A shell with job control, as people have: what it starts with & is a group of its own, which the terminal does
        # not belong to.
        process = subprocess.Popen(
            ["bash", "-c", 'set -m; "$0" train & wait "$!"', e2e.MORTISE],
            cwd=self.dir,
            env=self.environment(TERM="xterm"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.addCleanup(process.kill)
        os.close(theirs)
        seen = self.read(ours)
        self.assertEqual(process.wait(e2e.LIMIT_S), 0, seen)
        self.assertEqual(self.steps(COLOUR.sub("", seen).splitlines()), [50, 100, 150])
        self.assertNotIn("\x1b[K", seen)


class Colour(Terminal):
    def test_is_on_a_terminal_and_never_the_only_sign(self):
        short = ("train", "--set", "run.length=2", "--set", "log.every=1", "--set", "run.seed=1")
        dim = "\x1b[2mstep    \x1b[0m1/2\x1b[2m  loss \x1b[0m"
        seen = {}
        for name, args, env in (
            ("on", (), {}),
            ("never", ("--color", "never"), {"CLICOLOR_FORCE": "1"}),
            ("no", (), {"NO_COLOR": "1"}),
            ("empty", (), {"NO_COLOR": ""}),
            ("both", (), {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}),
            ("always", ("--color=always",), {"NO_COLOR": "1"}),
        ):
            code, seen[name], _ = self.on_terminal(*short, *args, env=env)
            self.assertEqual(code, 0, seen[name])
            self.assertEqual(dim in seen[name], name in ("on", "empty", "always"), (name, seen[name]))
            self.assertEqual("\x1b[2m" in seen[name], name in ("on", "empty", "always"), (name, seen[name]))
        # A busy machine may wait for data, and says so.
        words = {
            re.sub(r"\d\S*", "N", COLOUR.sub("", text))
            .split("batch")[1]
            .split("saved")[0]
            .replace("  waiting for data N", "")
            for text in seen.values()
        }
        self.assertEqual(len(words), 1, words)

    def test_a_pipe_gets_colour_only_if_it_is_asked_for_and_no_live_line_then_either(self):
        short = ("train", "--set", "run.length=150", "--set", "log.every=100")
        for args, env, coloured in (
            ((), {}, False),
            (("--color", "auto"), {}, False),
            (("--color", "always"), {}, True),
            ((), {"CLICOLOR_FORCE": "1"}, True),
            ((), {"CLICOLOR_FORCE": "0"}, False),
            (("--color", "never"), {"CLICOLOR_FORCE": "1"}, False),
        ):
            result = self.mortise(*short, *args, env={"TERM": "xterm", **env})
            self.assertEqual((result.code, result.err), (0, ""), result)
            self.assertNotIn("\r", result.out)
            self.assertNotIn("\x1b[K", result.out)
            self.assertEqual("\x1b[" in result.out, coloured, (args, env, result.out))
            self.assertEqual(re.findall(r"(?m)^step +(\d+)/150 ", COLOUR.sub("", result.out)), ["100", "150"], result)


if __name__ == "__main__":
    e2e.main()
