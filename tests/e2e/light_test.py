"""The verbs that compute nothing start at once, and on a machine without LibTorch."""
import os
import pathlib
import re
import shutil
import subprocess

import e2e

LIBRARY = e2e.MORTISE.parent.parent / "lib/libmortise.so"
LIGHT = (["--help"], ["--version"], ["help", "train"], ["help", "flags"], ["points"], ["points", "--json"],
         ["plugin", "list"], ["plugin", "info", "optimizer.adamw"],
         ["plan", "--static"], ["plan", "--static", "--json"], ["plan", "--keys"], ["plan", "--why", "block"],
         ["plan", "--layer", "default"], ["plan"], ["plan", "--json"], ["explain", "unknown_key"],
         ["keys"], ["init", "--list"], ["init", "gpt_from_text", "-o", "-"])
HEAVY = (["train"], ["resume", "runs/run"], ["sample", "runs/run"], ["eval", "runs/run"], ["data"])


class Alone(e2e.Case):
    """bin/mortise in a folder of its own: the program and the plugins, nothing else of the build."""

    def setUp(self):
        super().setUp()
        (self.dir / "prefix/bin").mkdir(parents=True)
        self.program = shutil.copy(e2e.MORTISE, self.dir / "prefix/bin/mortise")
        shutil.copy(e2e.MORTISE.parent / "mortise-probe", self.dir / "prefix/bin/mortise-probe")
        os.symlink(e2e.PLUGINS, self.dir / "prefix/plugins")

    def alone(self, *args):
        environment = {k: v for k, v in self.environment().items() if k != "LD_LIBRARY_PATH"}
        return e2e.Result(subprocess.run([self.program, *args], cwd=self.dir, env=environment, capture_output=True,
                                         timeout=e2e.LIMIT_S, check=False))

    def without_libtorch(self):
        """libmortise.so beside it, and the folder of LibTorch that it knows is not there."""
        library = LIBRARY.read_bytes()
        known = re.search(r"RPATH.*\[([^\]]+)\]", subprocess.run(["readelf", "-d", "-W", LIBRARY], check=True,
                                                                 capture_output=True, text=True).stdout)[1]
        gone = "/nowhere".ljust(len(known), "_")
        (self.dir / "prefix/lib").mkdir(exist_ok=True)
        (self.dir / "prefix/lib/libmortise.so").write_bytes(library.replace(known.encode() + b"\0",
                                                                            gone.encode() + b"\0"))

    def test_what_computes_nothing_works(self):
        self.train("run")
        for verb in (*LIGHT, ["checkpoint", "verify", "runs/run"], ["export", "runs/run", "-o", "out"]):
            result = self.alone(*verb)
            self.assertEqual((result.code, result.err), (0, ""), (verb, result))
        self.assertEqual(self.alone("plan", "--static").out, self.ok("plan", "--static").out)

    def test_the_others_say_that_the_library_is_missing(self):
        self.train("run")
        for verb in HEAVY:
            result = self.alone(*verb)
            self.assertEqual(result.code, 69, result)
            self.assertEqual(result.err,
                             f"error[no_library]: `mortise {verb[0]}` needs libmortise.so, which is not there\n"
                             f"  at: {self.dir}/prefix/lib/libmortise.so\n"
                             "  fix: install all of Mortise: make install PREFIX=DIR\n")

    def test_the_others_say_that_libtorch_is_missing(self):
        self.train("run")
        self.without_libtorch()
        for verb in HEAVY:
            result = self.alone(*verb)
            self.assertEqual((result.code, result.out), (69, ""), result)
            self.assertRegex(result.err,
                             rf"^error\[no_libtorch\]: `mortise {verb[0]}` needs LibTorch, which cannot be loaded\n"
                             r"  at: libtorch_cpu\.so: cannot open shared object file: .*\n"
                             r"  effect: nothing was started; .*\n"
                             r"  fix: export LD_LIBRARY_PATH=DIR   where DIR holds libtorch_cpu\.so of LibTorch "
                             r"[\d.]+\n"
                             r"       .*\n$")
        self.assertEqual(self.alone("plan", "--static").code, 0)

    def test_words_that_are_wrong_need_no_library(self):
        result = self.alone("train", "--sett", "a=1")
        self.assertEqual((result.code, result.err),
                         (64, "error[unknown_flag]: `mortise train` has no flag `--sett`\n  fix: --set\n"))

    def test_a_manifest_that_is_wrong_needs_no_library(self):
        self.file("run.toml", e2e.TINY.replace("length = 6", "lenth = 6"))
        for more in ([], ["--resume"], ["--json"]):
            result = self.alone("train", *more)
            self.assertEqual((result.code, result.out), (64, ""), result)
            self.assertEqual(result.err, self.mortise("train", *more).err)
            self.assertIn("lenth", result.err)


class Needs(e2e.Case):
    def test_the_program_knows_nothing_of_libtorch(self):
        needed = subprocess.run(["readelf", "-d", "-W", e2e.MORTISE], check=True, capture_output=True, text=True).stdout
        self.assertNotIn("torch", needed)
        self.assertNotIn("libc10", needed)


class Static(e2e.Case):
    def test_it_says_what_it_leaves_out(self):
        out = self.ok("plan", "--static").out
        self.assertRegex(out, r"^run  \(run\.toml, default\.toml\)   plan [0-9a-f]{6}\n\nwho does what ")
        self.assertTrue(out.endswith("\nleft out: length, batch, data, device, parameters and memory, "
                                     "which plugins say: mortise plan run.toml\n"), out)
        self.assertEqual(self.ok("plan").out.split("   plan ")[1][:6], out.split("   plan ")[1][:6], "the same plan")

    def test_a_path_with_a_space_can_be_typed_again(self):
        pathlib.Path(self.dir / "my run.toml").write_text(e2e.TINY)
        self.assertTrue(self.ok("plan", "--static", "my run.toml").out.endswith(": mortise plan 'my run.toml'\n"))


if __name__ == "__main__":
    e2e.main()
