"""Errors that no shipped plugin causes yet, caused by plugins of the test's own: real folders, real libraries, the real
program."""
import json
import os
import resource
import shutil
import subprocess

import e2e
from e2e import TINY

REBUILD = ("rebuild it against this installation: "
           "cmake -B build -DCMAKE_PREFIX_PATH=$(mortise --prefix) && cmake --build build")
NOTHING = "\n1 error; nothing was started.\n"
MANIFEST = """\
[plugin]
id      = "{id}"
version = "1.2.0"
summary = "A fixture of the end-to-end tests"
status  = "alpha"
tier    = "portable"
abi     = "0.1"
"""
HALVES = '\n[points]\nprovides = ["dropout"]\n[dropout]\nattributes = ["p"]\n'
BUILT = {}  # what a compiler was given: the library that it made
LISTENS = '\n[points]\nlistens = [{ point = "run.end" }]\n'


class Fixtures(e2e.Case):
    def described(self, name, rest):
        """A folder with a plugin.toml alone: what is decided from manifests needs no library."""
        self.file(f"more/{name}/plugin.toml", MANIFEST.format(id=name) + rest)

    def built(self, name, rest, *definitions, source="listener.c"):
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.skipTest("no C compiler")
        self.described(name, rest)
        folder = self.dir / "more" / name
        key = (rest, definitions, source, name)
        if key not in BUILT:
            self.compile(compiler, folder, f"{name}.so", definitions, source)
            BUILT[key] = (folder / f"{name}.so").read_bytes()
        (folder / f"{name}.so").write_bytes(BUILT[key])
        return folder / f"{name}.so"

    def compile(self, compiler, folder, library, definitions, source):
        subprocess.run([compiler, "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{e2e.SOURCE}/sdk/include",
                        f"-Wl,--version-script={e2e.SOURCE}/sdk/cmake/plugin.map",
                        '-DMORTISE_PLUGIN_TOML="plugin.toml"', *definitions,
                        e2e.SOURCE / "tests/e2e/fixtures" / source, "-o", library],
                       cwd=folder, check=True, timeout=e2e.LIMIT_S)

    def train(self, *args):
        return ["train", "--plugin-path", "more", *args]

    def refused_alike(self, args, err, code):
        """Refused so, by `plan` too, and nothing is left behind."""
        self.refused(self.train(*args), err, code)
        self.refused(["plan", "--plugin-path", "more", *args], err, code)
        self.assertFalse((self.dir / "runs").exists() and list((self.dir / "runs").iterdir()))

    def error(self, *args):
        return json.loads(self.mortise(*self.train("--json", *args)).err)


class Hollow(Fixtures):
    def test_a_function_that_a_table_lacks_is_named_not_called(self):
        self.file("run.toml", TINY)
        for size, fault in (("sizeof(mortise_schedule)", "has no function `factor`"),
                            ("8", "says that its object at `schedule` is 8 bytes long")):
            self.built("schedule.fixture", '\n[points]\nprovides = ["schedule"]\n', f"-DFIXTURE_HOLLOW={size}")
            result = self.mortise(*self.train("--use", "schedule.fixture"))
            self.assertEqual(result.code, 71, result)
            self.assertIn(f"error[plugin_failed]: schedule.fixture {fault}\n", result.err)


class Prints(Fixtures):
    def test_records_on_standard_output_stay_lines_of_json(self):
        self.file("run.toml", TINY)
        self.built("log.fixture", LISTENS, "-DFIXTURE_PRINTS")
        result = self.ok(*self.train("--use", "log.fixture", "--json"))
        self.assertEqual([json.loads(line)["event"] for line in result.out.splitlines()][-1], "end")
        self.assertIn("hello\n", result.err)
        self.assertIn("hello\n", self.ok(*self.train("--use", "log.fixture")).out)


class Returned(Fixtures):
    def test_a_status_of_a_plugin_decides_the_exit(self):
        self.file("run.toml", TINY)
        for status, code, exit_code in (("DATA", "bad_data", 65), ("IO", "io_failed", 74),
                                        ("MEMORY", "out_of_memory", 69)):
            self.built("log.fixture", LISTENS, f"-DFIXTURE_CREATE=MORTISE_E_{status}")
            for verb in ("plan", "train"):
                result = self.mortise(verb, "--plugin-path", "more", "--use", "log.fixture")
                self.assertEqual(result.code, exit_code, result)
                self.assertRegex(result.err, rf"^error\[{code}\]: [^\n]*\n  at: in plugin log\.fixture, create\n")

    def test_a_fingerprint_that_a_checkpoint_could_not_hold(self):
        self.file("run.toml", TINY)
        self.built("data.fixture", '\n[points]\nprovides = ["data"]\n', source="talkative.c")
        result = self.mortise(*self.train("--use", "data.fixture"))
        self.assertEqual(result.code, 65, result)
        self.assertRegex(result.err, r"error\[too_large\]: data\.json would have 140,\d{3} bytes; it is read up to")

    def test_a_layer_with_an_attribute_that_its_provider_does_not_know(self):
        self.file("run.toml", TINY.replace("width = 16\n", "width = 16\ndropout = 0.1\n") + "[operators.halves]\n")
        self.built("operators.halves", HALVES.replace('"p"', '"q"'), source="halves.c")
        self.refused_alike([], "error[cannot_run_here]: operators.halves cannot run at drop: it knows no attribute `p` "
                               "of dropout\n  --> run.toml:15:1\n  fix: another provider, or operators.halves's "
                               "plugin.toml lists it: [dropout] attributes\n" + NOTHING, 64)

    def test_a_provider_that_refuses_its_layer(self):
        self.file("run.toml", TINY.replace("width = 16\n", "width = 16\ndropout = 0.1\n") + "[operators.halves]\n")
        self.built("operators.halves", HALVES, "-DFIXTURE_REFUSES", source="halves.c")
        self.refused_alike([], "error[cannot_run_here]: operators.halves cannot run at drop: it halves nothing here\n"
                               "  --> run.toml:15:1\n  fix: [model.gpt] dropout = 0.0\n" + NOTHING, 64)

    def test_a_provider_that_declares_itself_inside_itself(self):
        model = TINY.replace("width = 16\n", "width = 16\ndropout = 0.1\n")
        self.file("run.toml", model + "[operators.halves]\n")
        self.built("operators.halves", HALVES, "-DFIXTURE_NESTS", source="halves.c")
        self.refused_alike([], "error[nothing_provides]: nothing provides `dropout` at drop.base inside "
                               "operators.halves\n  --> run.toml:15:1\n  fix: [operators.halves] where = "
                               "\"drop\", or others: inside its own layers it needs what another table "
                               "provides\n" + NOTHING, 64)
        self.file("run.toml", model + '[operators.halves]\nwhere = "drop*"\n')
        self.ok("plan", "--plugin-path", "more")

    def test_a_checkpoint_in_a_format_of_its_own_is_not_exported(self):
        self.file("run.toml", TINY)
        self.built("checkpoint.forgets", '\n[points]\nprovides = ["checkpoint.format"]\n', source="forgets.c")
        self.ok(*self.train("--use", "checkpoint.forgets"))
        result = self.mortise("export", "runs/run", "-o", "out")
        self.assertEqual(result.code, 65, result)
        self.assertRegex(result.err, r"^error\[not_exported\]: \S+step-6 has no model/model\.safetensors\n")
        self.assertFalse((self.dir / "out").exists())


class Noted(Fixtures):
    def test_what_a_plugin_notes_of_computing_is_said_where_something_computes(self):
        self.built("log.fixture", LISTENS, source="notes.c")
        self.file("run.toml", TINY + "[log.fixture]\n")
        noted = "log.fixture: much goes on here\n"
        self.assertEqual(self.ok("plan", "--plugin-path", "more").err, "")
        self.assertEqual(self.ok(*self.train()).err, noted)
        self.assertEqual(self.ok("sample", "runs/run", "--plugin-path", "more", "--tokens", "1").err, noted)
        finished = self.ok("resume", "runs/run", "--plugin-path", "more").err
        self.assertTrue(finished.startswith("runs/run is finished, at step 6; longer: "), finished)


class Conflict(Fixtures):
    NOT_ON_CPU = ('\n[capabilities]\nconflicts = [{ with = "optimizer.adamw", why = "it has no CPU implementation", '
                  'fix = "[optimizer.sgd]" }]\n')

    def test_names_both_sides_the_reason_and_the_fix(self):
        self.built("offload.fixture", LISTENS + self.NOT_ON_CPU)
        self.file("run.toml", TINY + "[offload.fixture]\n")
        refusal = ("error[conflict]: offload.fixture and optimizer.adamw cannot be on together: "
                   "it has no CPU implementation\n"
                   "  --> {}\n"
                   "  fix: [optimizer.sgd]\n" + NOTHING)
        self.refused_alike([], refusal.format("run.toml:14:1 and run.toml:13:1"), 64)
        error = self.error()
        self.assertEqual((error["code"], error["exit"], error["at"]["line"], error["also"][0]["line"]),
                         ("conflict", 64, 14, 13))
        # The sides may come from different layers.
        self.file("base.toml", TINY)
        self.file("run.toml", 'include = ["base.toml"]\n[offload.fixture]\n')
        self.refused_alike([], refusal.format("run.toml:2:1 and base.toml:13:1"), 64)
        self.refused_alike(["base.toml", "--use", "offload.fixture"],
                           refusal.format("command line: --use offload.fixture and base.toml:13:1"), 64)
        # What the fix says is a run.
        self.ok(*self.train("--use", "optimizer.sgd"))


class Secret(Fixtures):
    def test_a_key_in_the_place_of_the_name_of_a_variable(self):
        self.built("log.fixture", LISTENS + '\n[config.key_env]\ntype = "env"\ndefault = "FIXTURE_API_KEY"\n'
                                            'change = "free"\ndoc = "Where the key is."\n')
        key = "0c1d2e3f" * 5
        self.file("run.toml", TINY + f'[log.fixture]\nkey_env = "{key}"\n')
        result = self.mortise(*self.train())
        self.assertEqual(result.err, "error[secret_in_manifest]: log.fixture.key_env is the name of an environment "
                                     "variable; this looks like a key\n"
                                     "  --> run.toml:15:11\n"
                                     '  fix: key_env = "FIXTURE_API_KEY", exported where the run starts; '
                                     'revoke this key if the file was shared\n' + NOTHING)
        self.assertEqual((result.code, result.out), (64, ""))
        self.assertNotIn(key, json.dumps(self.error()))
        self.assertFalse((self.dir / "runs").exists(), "no run directory holds a copy")
        self.file("run.toml", TINY + '[log.fixture]\nkey_env = "MY_API_KEY"\n')
        self.ok(*self.train())


class Device(Fixtures):
    def setUp(self):
        super().setUp()
        self.described("device.fixture", '\n[points]\nprovides = ["device"]\n\n[needs]\nfile = "/dev/mortise_fixture"\n'
                                         'why = "no fixture driver"\n')

    def test_that_cannot_run_here_is_an_error_with_another_to_use(self):
        self.file("run.toml", TINY + "[device.fixture]\n")
        self.refused_alike([], "error[device_unusable]: device.fixture cannot run: no fixture driver\n"
                               "  --> run.toml:14:1\n"
                               "  fix: --use device.cpu\n" + NOTHING, 69)
        error = self.error()
        self.assertEqual((error["code"], error["plugin"], error["exit"]), ("device_unusable", "device.fixture", 69))
        self.assertIn("device  device.cpu,", self.ok(*self.train("--use", "device.cpu")).out)

    def test_that_cannot_run_here_falls_back_where_the_layer_says_so(self):
        self.file("run.toml", TINY + '[device.fixture]\nfallback = ["device.cpu"]\n')
        out = self.ok(*self.train()).out
        self.assertRegex(out, r"\ndevice  device\.cpu, .*device\.fixture cannot run here: no fixture driver; "
                              r"fallback of run\.toml:14\n")


class OpenedDevice(Fixtures):
    """One that is there, and says when it is opened that it cannot be used, as with a driver that is too old."""

    WARNING = ("warning[device_unusable]: device.fixture cannot run: the fixture driver is too old\n"
               "  at: in plugin device.fixture, open\n"
               "  effect: the run is on device.cpu\n"
               "  fix: a newer one, or --use device.cpu\n")
    WHY = r"\ndevice +device\.cpu, .* device\.fixture cannot run here: the fixture driver is too old; " \
          r"fallback of run\.toml:14\n"

    def setUp(self):
        super().setUp()
        self.built("device.fixture", '\n[points]\nprovides = ["device"]\n[device]\nkind = "cuda"\n',
                   source="old_driver.c")
        self.default = TINY + '[device.fixture]\nfallback = ["device.cpu"]\n'

    def test_gives_its_place_to_its_fallback_with_one_warning(self):
        self.file("run.toml", self.default)
        result = self.ok(*self.train())
        self.assertEqual(result.err, self.WARNING)
        self.assertRegex(result.out, self.WHY)
        run = self.dir / "runs/run"
        plan = (run / "plan.txt").read_text()
        self.assertRegex(plan, self.WHY)
        self.assertTrue(json.loads((run / "env.json").read_text())["device"].startswith("device.cpu, 1 thread, "))
        # The very run that names the processor; and what was recorded asks for the device again, as the manifest does.
        self.file("cpu.toml", TINY + "[device.cpu]\n")
        self.assertEqual(self.ok(*self.train("cpu.toml")).err, "")
        self.assertEqual(self.weights(run), self.weights(self.dir / "runs/cpu"))
        for verb in ("eval", "sample"):
            self.assertEqual(self.ok(verb, "runs/run", "--plugin-path", "more", *(
                ["--data", "notes.txt"] if verb == "eval" else [])).err, self.WARNING)
        self.assertIn(self.WARNING, self.ok("resume", "runs/run", "--plugin-path", "more", "--set", "run.length=8").err)
        self.assertEqual(self.ok("resume", "runs/run", "--plugin-path", "more", "--use", "device.cpu",
                                 "--set", "run.length=9").err.count("warning"), 0)

    def test_is_an_error_where_it_is_named(self):
        self.file("run.toml", TINY + "[device.fixture]\n")
        result = self.mortise(*self.train())
        self.assertEqual(result.code, 69, result)
        self.assertEqual(result.err, self.WARNING.replace("warning", "error").replace(
            "  effect: the run is on device.cpu\n", "") + NOTHING)

    def test_is_no_matter_of_a_plan(self):
        self.file("run.toml", self.default)
        for verb in (["plan"], ["plan", "--static"]):
            result = self.ok(*verb, "--plugin-path", "more")
            self.assertEqual(result.err, "")
            self.assertRegex(result.out, r"(?m)^  device +device\.fixture .* run\.toml:14$")

    def test_is_missed_by_who_works_on_no_other(self):
        self.built("guard.fast", LISTENS + '\n[capabilities]\ndevices = ["cuda"]\n')
        self.file("run.toml", self.default + "[guard.fast]\n")
        result = self.mortise(*self.train())
        self.assertEqual(result.code, 69, result)
        self.assertEqual(result.err, "error[wrong_device]: guard.fast works on cuda, this run on device.cpu: "
                                     "device.fixture cannot run here: the fixture driver is too old; fallback of "
                                     "run.toml:14\n"
                                     "  --> run.toml:16:1 and run.toml:14:1\n"
                                     "  fix: leave out [guard.fast]\n" + NOTHING)
        self.assertFalse((self.dir / "runs").exists())

    def test_is_not_opened_where_somebody_works_on_another(self):
        self.described("guard.slow", LISTENS + '\n[capabilities]\ndevices = ["cpu"]\n')
        self.file("run.toml", self.default + "[guard.slow]\n")
        self.assertRegex(self.ok("plan", "--static", "--plugin-path", "more").out,
                         r"(?m)^  device +device\.cpu +device\.fixture is not taken: guard\.slow works on cpu "
                         r" +fallback of run\.toml:14$")


class DeviceByDefault(e2e.Case):
    """What is shipped, on a machine without a GPU or with one that is hidden. With one: tests/gpu."""

    WHY = "device.cuda cannot run here: CUDA_VISIBLE_DEVICES hides it"

    def test_is_the_processor_where_there_is_no_gpu(self):
        self.assertRegex(self.ok("plan").out, r"(?m)^device   device\.cpu, 1 thread, .*        " + self.WHY +
                         r"; fallback of default\.toml:\d+$")
        self.assertRegex(self.ok("plan", "--static").out,
                         rf"(?m)^  device +device\.cpu +{self.WHY[:-3]}… +fallback of default\.toml:\d+$")
        result = self.ok("train")
        self.assertEqual(result.err, "")
        self.assertRegex(result.out, rf"(?m)^device  device\.cpu, 1 thread, .*{self.WHY}; fallback")

    def test_is_not_for_who_names_one(self):
        for name in ("--use", "--set"):
            out = self.ok("plan", name, "device.cpu" if name == "--use" else "device.cpu.threads=1").out
            self.assertRegex(out, r"(?m)^device   device\.cpu, 1 thread, (?!.*cuda)")
            self.assertRegex(out, rf"(?m)^  device +device\.cpu .* command line: {name} device\.cpu")
        result = self.mortise("plan", "--use", "device.cuda")
        self.assertEqual(result.code, 69, result)
        self.assertIn("error[device_unusable]: device.cuda cannot run: CUDA_VISIBLE_DEVICES hides it\n", result.err)


class Ranks(e2e.Case):
    def test_several_ranks_are_not_several_runs(self):
        self.file("run.toml", TINY)
        for variable in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
            result = self.mortise("train", env={variable: "2"})
            self.assertEqual(result.code, 64, result)
            self.assertIn("error[ranks_not_started]: ", result.err)
            self.assertIn(f"{variable}=2", result.err)
        self.ok("train", env={"WORLD_SIZE": "1"})

    def test_no_more_ranks_than_this_host_has_memory_for(self):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        ranks = memory // (100 << 20) + 1
        if ranks > 1024:
            self.skipTest("this host has room for as many ranks as may be started")
        self.file("run.toml", TINY)
        # Started all the same, they would end at once, and not take this host.
        result = self.mortise("train", "--ranks", str(ranks),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (512 << 20,) * 2))
        self.assertEqual(result.code, 69, result)
        self.assertRegex(result.err, (
            rf"^error\[ranks_not_started\]: {ranks:,} ranks need \S+ GiB of memory before they train anything, and "
            r"this host has \S+ GiB\n"
            r"  effect: nothing was started\n"
            rf"  fix: --ranks {min(ranks - 1, len(os.sched_getaffinity(0)))}, or ranks on several hosts\n$"))
        self.assertFalse((self.dir / "runs").exists())


class Abi(Fixtures):
    def test_a_plugin_built_for_another_is_not_loaded(self):
        library = self.built("guard.fixture", LISTENS, "-DFIXTURE_MINOR=99")
        self.file("run.toml", TINY + "[guard.fixture]\n")
        refusal = ("error[built_for_another]: guard.fixture is built for ABI 0.99; this is 0.2\n"
                   f"  at: {library}\n"
                   "  effect: it was not loaded\n"
                   f"  fix: install a newer Mortise, or {REBUILD}\n" + NOTHING)
        self.refused_alike([], refusal, 71)
        self.assertEqual(self.error()["plugin"], "guard.fixture")
        # Nobody else is stopped by it, and rebuilt it runs.
        self.ok(*self.train("--without", "guard.fixture"))
        self.built("guard.fixture", LISTENS)
        self.ok(*self.train())

    def test_a_library_of_another_major_is_named_by_what_it_exports(self):
        library = self.built("guard.fixture", LISTENS)
        library.write_bytes(library.read_bytes().replace(b"mortise_plugin_v0", b"mortise_plugin_v9"))
        self.file("run.toml", TINY + "[guard.fixture]\n")
        self.refused_alike([], "error[built_for_another]: guard.fixture exports `mortise_plugin_v9`; "
                               "this host asks for `mortise_plugin_v0`\n"
                               f"  at: {library}\n"
                               "  effect: it was not loaded\n"
                               f"  fix: {REBUILD}\n" + NOTHING, 71)


if __name__ == "__main__":
    e2e.main()
