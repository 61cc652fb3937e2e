"""The program with each of generate.py's plugins: never exit 0, never a silent death, one error that names the plugin
and the place.

By default the ones that stand for a kind each; MORTISE_HOSTILE=all takes every one (make soak), MORTISE_HOSTILE=NAME
that one.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402
import generate  # noqa: E402

WANTED = os.environ.get("MORTISE_HOSTILE", "")
# What nobody must see: the words of the loader's, the C++ runtime's and LibTorch's own ends.
TRACES = re.compile(r"terminate called|Exception raised from|frame #\d|FATAL|basic_string|std::")


class Hostile(e2e.Case):
    def judge(self, each):
        """What is wrong with how the program met this plugin; "" if nothing."""
        folder = self.dir / "bad" / each.name
        result = self.mortise("train", "--plugin-path", folder, "--use", each.id, "--set", "run.length=3",
                              "--set", f"run.dir=runs/{each.name}", *each.args)
        found = []
        if result.code != each.code:
            found.append(f"exit {result.code}, not {each.code}")
        errors = re.findall(r"^error\[\w+\]: .*(?:\n  .*)*", result.err, re.MULTILINE)
        if len(errors) != 1:
            found.append(f"{len(errors)} errors, not 1")
        elif each.id not in errors[0] and not each.name.startswith("thread_exit"):
            found.append(f"the error does not name {each.id}")
        elif each.place not in errors[0]:
            found.append(f"the error does not say `{each.place}`")
        if TRACES.search(result.err.replace("std::runtime_error", "")):
            found.append("a trace")
        status = self.dir / "runs" / each.name / "status.json"
        if "exit" in each.name and status.exists() and json.loads(status.read_text())["state"] != "failed":
            found.append("status.json does not say that it failed")
        return f"{each.id}: {', '.join(found)}\n{result!r}" if found else ""

    def test_every_one_is_refused_by_its_name(self):
        cases = [each for each in generate.CASES if WANTED in ("all", each.name) or (not WANTED and each.quick)]
        generate.build_all(self.dir / "bad", cases)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [found for found in pool.map(self.judge, cases) if found]
        self.assertEqual(len(wrong), 0, f"{len(wrong)} of {len(cases)}:\n\n" + "\n\n".join(wrong))

    def test_a_crash_says_how_to_go_on(self):
        generate.build_all(self.dir / "bad", [each for each in generate.CASES if each.name == "record_overflow"])
        self.train("good", e2e.TINY.replace("length = 6", "length = 2"))
        result = self.mortise("resume", "runs/good", "--plugin-path", "bad/record_overflow",
                              "--use", "bad.record_overflow", "--set", "run.length=4")
        self.assertEqual(result.code, generate.SEGV, result)
        self.assertIn("; step 3; last checkpoint is step 2; "
                      f"fix: mortise resume runs/good --plugin-path {self.dir}/bad/record_overflow\n", result.err)

    def test_a_plan_names_it_with_and_without_libtorch(self):
        makes_a_tensor = ("int64_t one = 1; mortise_tensor *t; mortise_status s = "
                          "TABLE(mortise_tensor_api, \"mortise.tensor/0\")->empty(host, MORTISE_F32, &one, 1, 1, &t); "
                          "if (s) return s;")
        cases = [generate.Case("light", create="segv();"), generate.Case("heavy", create=makes_a_tensor + " segv();"),
                 generate.Case("heavy_exit", create=makes_a_tensor + " exit(0);")]
        generate.build_all(self.dir / "bad", cases)
        for each, code, said in zip(cases, (generate.SEGV, generate.SEGV, 71),
                                    ("crashed in `create`", "crashed in `create`", "called exit(0) in `create`"),
                                    strict=True):
            result = self.mortise("plan", "--plugin-path", f"bad/{each.name}", "--use", each.id)
            self.assertEqual(result.code, code, result)
            self.assertIn(f"{each.id} {said}", result.err)
            self.assertEqual(result.err.count("error["), 1, result)

    def test_a_model_cannot_go_on_without_a_layer_that_it_was_refused(self):
        declare = """
static mortise_status declare(void *s, mortise_builder *b) {
  (void)s;
  const mortise_build_api *build = mortise_get(host, "mortise.build/0");
  const mortise_attr attrs[] = {{MORTISE_STR("heads"), {.tag = MORTISE_INT, .v.i = 2}},
                                {MORTISE_STR("head_dim"), {.tag = MORTISE_INT, .v.i = 8}},
                                {MORTISE_STR("dropout"), {.tag = MORTISE_FLOAT, .v.f = 0.5}}};
  const mortise_layer_spec spec = {sizeof spec, 3, MORTISE_STR("attention"), MORTISE_STR("attn"), attrs};
  const int64_t size = 4;
  const mortise_param_spec w = {.struct_size = sizeof w, .rank = 1, .name = MORTISE_STR("w"), .sizes = &size,
                                .role = MORTISE_STR("vector"), .init = MORTISE_STR("constant")};
  mortise_layer *layer;
  mortise_param *param;
  build->segment(host, b, MORTISE_STR("body"), 0);
  build->layer(host, b, &spec, &layer); /* and whatever it said */
  return build->param(host, b, &w, &param);
}
static mortise_status segment(void *s, mortise_call *c, uint32_t i) { (void)s; (void)c; (void)i; return 0; }
static const mortise_model object = {sizeof(mortise_model), 0, declare, segment};
"""
        deaf = generate.Case("deaf", family="model", points='provides = ["model"]', functions=declare,
                             attach='{ .struct_size = sizeof(mortise_attachment), .point = { "model", 5 }, '
                                    '.object = &object }')
        generate.build_all(self.dir / "bad", [deaf])
        for verb in ("plan", "train"):
            result = self.mortise(verb, "--plugin-path", "bad/deaf", "--use", deaf.id, "--use", "attention.flash")
            self.assertEqual(result.code, 64, result)
            self.assertEqual(result.err.count("error["), 1, result)
            self.assertIn("error[cannot_run_here]: attention.flash", result.err)

    def test_a_run_that_ended_without_a_word_is_not_over(self):
        silent = generate.Case("silent",
                               functions=generate.Case("x").functions.replace("return 0", "_exit(0)"),
                               attach=generate.Case("x").attach.replace('"run.begin", 9', '"step.end", 8'),
                               points='listens = [{ point = "step.end" }]')
        generate.build_all(self.dir / "bad", [silent])
        self.assertEqual(self.mortise("train", "--resume", "--plugin-path", "bad/silent", "--use", "bad.silent").code,
                         0)  # nobody can see this
        status = self.dir / "runs/run/status.json"
        self.assertEqual(json.loads(status.read_text())["state"], "running")
        again = self.mortise("train", "--resume", "--plugin-path", "bad/silent")
        self.assertNotEqual((again.code, json.loads(status.read_text())["state"]), (0, "running"), again)

    # As libraries do that start threads of their own, and forget to set it back.
    def test_a_training_whose_signals_a_plugin_blocked_is_stopped_all_the_same(self):
        deaf = generate.Case("deaf", create="sigset_t all; sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, NULL);")
        generate.build_all(self.dir / "bad", [deaf])
        process = self.start("train", "--plugin-path", "bad/deaf", "--use", deaf.id, "--set", "run.length=1000000",
                             "--set", "log.every=1")
        while b"step " not in process.stdout.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(e2e.LIMIT_S), 75)

    # What a compiler puts into a library that is linked with -ffast-math.
    def test_a_library_that_flushes_subnormal_numbers_at_load_changes_nothing(self):
        looks = ('if (__builtin_ia32_stmxcsr() & 0x8040) return say(MORTISE_E_PLUGIN, "flushed", 7);')
        fast = generate.Case("fast", before="static void at_load(void) __attribute__((constructor));",
                             functions="static void at_load(void) { "
                                       "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); }\n"
                                       + generate.Case("x").functions.replace("return 0;", looks + " return 0;"))
        generate.build_all(self.dir / "bad", [fast])
        self.ok("train", "--plugin-path", "bad/fast", "--use", "bad.fast")

    # Nobody knows who put it there, so the data are said to be wrong, and what the table has.
    def test_an_id_that_a_table_has_no_row_for_is_said(self):
        wrap = """static mortise_status wrap(void *s, mortise_call *c, mortise_next *next) {
  mortise_tensor *t; mortise_tensor_info info; mortise_str name = { "input_ids", 9 };
  info.struct_size = sizeof info;
  if (TABLE(mortise_call_api, "mortise.call/0")->next(host, next, c)
      || TABLE(mortise_batch_api, "mortise.batch/0")->get(host, c->results[0].v.b, name, &t)
      || TABLE(mortise_tensor_api, "mortise.tensor/0")->info(host, t, &info)) return 1;
  ((int64_t *)info.data)[3] = %s;
  return 0;
}"""
        for name, number in ("far", "256"), ("below", "-1"):
            case = generate.Case(name, points='wraps = [{ point = "load", band = "adapt" }]', functions=wrap % number,
                                 attach='{ .struct_size = sizeof(mortise_attachment), .point = { "load", 4 }, '
                                        '.wrap = wrap }')
            generate.build_all(self.dir / "bad", [case])
            result = self.mortise("train", "--plugin-path", f"bad/{name}", "--use", case.id)
            self.assertEqual(result.code, 65, result)
            self.assertIn(f"error[bad_data]: wte has rows for 0 to 255, the batch asks for {number}\n", result.err)

    def test_a_checkpoint_records_what_was_loaded(self):
        # It puts something else where its file lies, as an upgrade in the middle of a run would.
        exchanged = generate.Case("exchanged",
                                  create='FILE *f; unlink(getenv("PLACE")); f = fopen(getenv("PLACE"), "w"); '
                                         'fputs("another", f); fclose(f);',
                                  before="#include <stdio.h>")
        generate.build_all(self.dir / "bad", [exchanged])
        library = self.dir / "bad/exchanged/bad.exchanged.so"
        loaded = hashlib.sha256(library.read_bytes()).hexdigest()
        result = self.mortise("train", "--plugin-path", "bad/exchanged", "--use", "bad.exchanged",
                              env={"PLACE": str(library)})
        self.assertEqual(result.code, 0, result)
        self.assertEqual(library.read_text(), "another")
        self.assertIn(loaded, (self.checkpoint(self.dir / "runs/run") / "MANIFEST.json").read_text())

    def test_machines_get_objects(self):
        cases = [each for each in generate.CASES if each.name in ("record_overflow", "create_exit", "attachments_null")]
        generate.build_all(self.dir / "bad", cases)
        for each in cases:
            result = self.mortise("train", "--json", "--plugin-path", f"bad/{each.name}", "--use", each.id)
            errors = [json.loads(line) for line in result.err.splitlines() if '"level":"error"' in line]
            self.assertEqual([e["plugin"] for e in errors], [each.id], result)


if __name__ == "__main__":
    e2e.main()
