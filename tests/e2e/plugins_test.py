"""Points and plugins as the program knows them, and folders of plugins that are broken."""
import json
import os
import shutil
import subprocess

import e2e
from e2e import TINY


class Known(e2e.Case):
    def test_the_page_of_points_is_what_the_program_says(self):
        page = e2e.SOURCE / "docs/guide/points.md"
        self.assertEqual(page.read_text(), self.ok("points", "--markdown").out,
                         f"make it again: {e2e.MORTISE} points --markdown > {page}")
        rows = json.loads(self.ok("points", "--json").out)
        names = {row["name"] for row in rows}
        self.assertGreaterEqual(names, {"block", "forward", "record", "optimizer", "attention"})
        self.assertIn("block", self.ok("points").out)

    def test_the_page_of_errors_is_what_the_tables_say(self):
        page = e2e.SOURCE / "docs/errors.md"
        self.assertEqual(page.read_text(), self.ok("explain", "--markdown").out,
                         f"make it again: {e2e.MORTISE} explain --markdown > {page}")

    def test_the_page_of_the_manifest_is_what_the_schemas_say(self):
        page = e2e.SOURCE / "docs/manifest.md"
        self.assertEqual(page.read_text(), self.ok("keys", "--markdown").out,
                         f"make it again: {e2e.MORTISE} keys --markdown > {page}")
        rows = json.loads(self.ok("keys", "--json").out)["keys"]
        keys = {(row["table"], row["key"]) for row in rows}
        self.assertGreaterEqual(keys, {("run", "length"), ("parameters.NAME", "where"), ("order", "POINT"),
                                       ("FAMILY.NAME", "enabled"), ("optimizer.adamw", "betas")})
        self.assertRegex(self.ok("keys").out,
                         r"\noptimizer\.adamw\.eps +float +1e-8 +from 1e-30 to 1000000 +numeric +\w")

    def test_list_and_info(self):
        self.assertRegex(self.ok("plugin", "list", "optimizer").out,
                         r"\noptimizer\.adamw +\d\S* +\w+ +.+\n(optimizer\..*\n)*$")
        everything = json.loads(self.ok("plugin", "list", "--json").out)["plugins"]
        self.assertGreater(len(everything), 20)
        self.assertEqual({os.path.dirname(p["library"]) for p in everything}, {str(e2e.PLUGINS)})
        out = self.ok("plugin", "info", "optimizer.adamw").out
        for text in ("optimizer.adamw 0.1.0  ", "\nsource   ", "\npoints   optimizer\n", "\n[optimizer.adamw]\n",
                     "  betas ", "[0.9, 0.999]", "  family default: [optimizer] lr = "):
            self.assertIn(text, out)
        for text in ('says     [optimizer] cut = ', 'says     [optimizer] devices = ["cpu", "cuda"]'):
            self.assertIn(text, out)
        self.assertEqual(json.loads(self.ok("plugin", "info", "model.gpt", "--json").out)["id"], "model.gpt")
        self.refused(["plugin", "info", "optimizer.adam"],
                     "error[unknown_plugin]: no plugin is called `optimizer.adam`\n"
                     "  fix: mortise plugin info optimizer.adamw\n")
        self.refused(["plugin", "info", "adamw"], "error[unknown_plugin]: no plugin is called `adamw`\n"
                     "  fix: mortise plugin info optimizer.adamw\n")
        self.refused(["plugin", "list", "optimiser"],
                     "error[unknown_family]: no plugin of the family `optimiser` is installed\n"
                     "  fix: mortise plugin list optimizer\n")

    def test_every_shipped_plugin_explains_itself(self):
        for plugin in json.loads(self.ok("plugin", "list", "--json").out)["plugins"]:
            self.assertGreater(len(plugin["summary"]), 8, plugin)
            self.assertIn(plugin["status"], ("alpha", "beta", "stable", "experimental"), plugin)


class Broken(e2e.Case):
    def test_a_plugin_whose_toml_is_refused_is_not_called_unknown_too(self):
        self.folder("log.broken", '[plugin]\nid = "log.broken"\nsumary = "?"\n')
        result = self.mortise("plugin", "info", "log.broken", "--plugin-path", "more")
        self.assertEqual(result.code, 71, result)
        self.assertIn("error[unknown_key]: [plugin] has no key `sumary`\n", result.err)
        self.assertNotIn("unknown_plugin", result.err)

    def folder(self, name, toml, library=None):
        self.file(f"more/{name}/plugin.toml", toml)
        if library is not None:
            self.file(f"more/{name}/{name}.so", library)

    def sgd(self, name):
        return (e2e.PLUGINS / "optimizer.sgd.toml").read_text().replace("optimizer.sgd", name)

    def test_a_broken_neighbour_stops_nobody_who_does_not_use_it(self):
        self.folder("optimizer.broken", "[plugin\n")
        result = self.ok("train", "--set", "run.length=1", env={"MORTISE_PLUGIN_PATH": str(self.dir / "more")})
        self.assertRegex(result.err, r"^warning\[\w+\]: .*\n")
        self.assertIn("optimizer.broken", result.err)
        self.assertIn("  effect: ", result.err)
        listed = self.mortise("plugin", "list", "optimizer", "--plugin-path", "more")
        self.assertEqual(listed.code, 0)
        self.assertIn("optimizer.adamw", listed.out)
        self.assertIn("optimizer.broken", listed.err)

    def test_its_user_hears_what_is_wrong_with_it(self):
        self.folder("optimizer.broken", "[plugin\n")
        self.file("run.toml", TINY.replace("optimizer.adamw", "optimizer.broken"))
        result = self.mortise("train", "--plugin-path", "more")
        self.assertNotEqual(result.code, 0)
        self.assertRegex(result.err, r"^error\[\w+\]: ")
        self.assertIn("more/optimizer.broken/plugin.toml", result.err)
        self.assertNotIn("no plugin is called", result.err)
        self.assertTrue(result.err.endswith("1 error; nothing was started.\n"), result.err)

    def test_an_attachment_that_does_not_fit_its_point(self):
        self.folder("guard.odd", '[plugin]\nid = "guard.odd"\nversion = "0.1.0"\nsummary = "Listens wrongly"\n'
                                 'status = "alpha"\nabi = "0.1"\n'
                                 '[points]\nlistens = [\n  { point = "step.window", writes = ["count"] },\n'
                                 '  { point = "record", capture = true },\n]\n')
        result = self.mortise("plan", "--static", "--plugin-path", "more", "--use", "guard.odd")
        toml = "plugin.toml of guard.odd"
        self.assertEqual((result.code, result.out), (71, ""))
        self.assertEqual(result.err,
                         "error[unknown_field]: guard.odd writes `count` at `step.window`, which has no such field\n"
                         f"  --> command line: --use guard.odd\n  at: {toml}:9:3\n  fix: its fields: micros\n"
                         "\n"
                         "error[capture_outside_step]: guard.odd says `capture` at `record`, "
                         "which is not inside `step`\n"
                         f"  --> command line: --use guard.odd\n  at: {toml}:10:3\n  fix: leave `capture` out there\n"
                         "\n2 errors; nothing was started.\n")

    def test_libraries_that_are_none(self):
        text = TINY.replace("optimizer.adamw", "optimizer.other")
        self.file("run.toml", text)
        real = (e2e.PLUGINS / "optimizer.sgd.so").read_bytes()
        for library in (b"", b"not a library", real[:4096], real[: len(real) // 2]):
            self.folder("optimizer.other", self.sgd("optimizer.other"), library)
            result = self.mortise("train", "--plugin-path", "more")
            self.assertEqual(result.code, 71, result)
            self.assertRegex(result.err, r"^error\[\w+\]: ")
            self.assertIn("optimizer.other", result.err)
            self.assertEqual([p for p in self.dir.glob("runs/*")], [])
        shutil.rmtree(self.dir / "more/optimizer.other")
        os.makedirs(self.dir / "more/optimizer.other")
        self.assertEqual(self.mortise("train", "--plugin-path", "more").code, 64)

    def test_a_library_under_another_name_is_not_taken(self):
        # The descriptor says optimizer.sgd.
        self.folder("optimizer.other", self.sgd("optimizer.other"), (e2e.PLUGINS / "optimizer.sgd.so").read_bytes())
        self.file("run.toml", TINY.replace("optimizer.adamw", "optimizer.other"))
        result = self.mortise("train", "--plugin-path", "more")
        self.assertEqual(result.code, 71, result)


class Added(e2e.Case):
    """The example's optimizer, in C, built as its author would."""

    def test_a_plugin_from_outside_the_tree_trains_and_is_found_again(self):
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.skipTest("no C compiler")
        source, more = e2e.SOURCE / "examples/01_c_optimizer", self.dir / "more"
        more.mkdir()
        shutil.copy(source / "plugin.toml", more / "optimizer.lion.toml")
        subprocess.run([compiler, "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{e2e.SOURCE}/sdk/include",
                        f"-Wl,--version-script={e2e.SOURCE}/sdk/cmake/plugin.map",
                        '-DMORTISE_PLUGIN_TOML="plugin.toml"', "lion.c", "-o", more / "optimizer.lion.so"],
                       cwd=source, check=True, timeout=e2e.LIMIT_S)
        run = self.train("first", TINY, "--plugin-path", "more", "--use", "optimizer.lion")
        self.assertRegex((run / "plan.txt").read_text(),
                         r"replaced +optimizer\.adamw \(first\.toml:13\) by optimizer\.lion\n")
        self.assertIn(f'path = ["{more}"]', (run / "run.toml").read_text())
        self.ok("train", run / "run.toml", "--set", "run.dir=again", "--plugin-path", "more")
        self.assertEqual(self.weights(run), self.weights(self.dir / "again"))
        self.assertIn("error[foreign_plugins]", self.mortise("sample", run, "--tokens", "1").err)
        # a folder named twice holds nothing twice
        self.assertEqual(self.ok("sample", run, "--tokens", "1", "--plugin-path", "more").err, "")

    def test_one_id_in_two_folders_is_an_error_for_its_users(self):
        more = self.dir / "more"
        more.mkdir()
        for suffix in ("so", "toml"):
            shutil.copy(e2e.PLUGINS / f"schedule.cosine.{suffix}", more)
        result = self.mortise("plan", "--static", "--plugin-path", "more", "--use", "schedule.cosine")
        self.assertNotEqual(result.code, 0)
        self.assertIn("schedule.cosine", result.err)
        result = self.ok("plan", "--static", "--plugin-path", "more")
        self.assertRegex(result.err, r"^warning\[\w+\]: .*schedule\.cosine")


if __name__ == "__main__":
    e2e.main()
