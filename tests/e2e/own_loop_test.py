"""Programs that run the loop themselves, over mortise/runtime.hpp: built in a folder of their own against an installed
Mortise, and the examples, built with it."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import e2e

BUILD = e2e.MORTISE.parent.parent
EXAMPLES = e2e.SOURCE / "examples"
RUN = """\
[run]
length = 8
[model.host]
[data]
micro_batch_size = 2
sequence_length = 16
validation = 0.2
[data.text]
path = "notes.txt"
[tokenizer.byte]
[step.accumulation]
count = 2
[optimizer.adamw]
[checkpoint]
every = 2
"""


class OwnLoop(e2e.Case):
    @classmethod
    def setUpClass(cls):
        cmake = os.environ.get("CMAKE") or shutil.which("cmake") or e2e.SOURCE / ".deps/bin/cmake"
        prefix, folder = e2e.ROOM / "installed", e2e.ROOM / "loops"
        env = os.environ | e2e.COMPILES | {"PATH": f"{pathlib.Path(cmake).parent}:{os.environ['PATH']}"}
        for command in ([cmake, "--install", BUILD, "--prefix", prefix],
                        [cmake, "-S", e2e.SOURCE / "tests/e2e/fixtures/loops", "-B", folder, "-G", "Ninja",
                         f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"],
                        [cmake, "--build", folder]):
            done = subprocess.run(command, capture_output=True, timeout=e2e.LIMIT_S, env=env, check=False)
            assert done.returncode == 0, (done.stdout + done.stderr).decode()
        cls.program = folder / "loops"

    def setUp(self):
        super().setUp()
        self.file("run.toml", RUN)

    def run_loop(self, *args, loop="", program=None):
        done = subprocess.run([program or self.program, *map(str, args)], cwd=self.dir, capture_output=True,
                              env=self.environment(LOOP=loop), timeout=e2e.LIMIT_S, check=False)
        return e2e.Result(done)

    def finished(self, *args, **more):
        result = self.run_loop(*args, **more)
        self.assertEqual(result.code, 0, result)
        return result

    def test_it_learns_and_shows_what_train_shows(self):
        result = self.finished("--set", "optimizer.lr=0.03", "--set", "run.length=40", "--set", "log.every=1",
                               "--set", "checkpoint.every=40")
        self.assertRegex(result.out, r"model   model.host 65,792 parameters\n")
        losses = [r["loss"] for r in self.records(self.dir / "runs/run", "step")]
        self.assertEqual(len(losses), 40)
        self.assertLess(losses[-1], losses[0] - 1)
        self.assertTrue(all("bias" in r for r in self.records(self.dir / "runs/run", "step")))
        evaluated = self.records(self.dir / "runs/run", "eval")[-1]["eval.loss"]
        again = self.finished("eval", "runs/run", "--checkpoint", "latest", "--json")
        self.assertEqual(json.loads(again.out)["eval.loss"], evaluated)

    def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(self):
        whole = self.finished() and self.dir / "runs/run"
        self.finished("--set", "run.name=two", "--set", "run.length=4")
        self.finished("resume", "runs/two", "--set", "run.length=8")
        for name in os.listdir(self.checkpoint(whole)):
            if name.endswith(".safetensors"):
                self.assertEqual((self.checkpoint(whole) / name).read_bytes(),
                                 (self.checkpoint(self.dir / "runs/two") / name).read_bytes(), name)
        self.assertEqual(self.weights(whole), self.weights(self.dir / "runs/two"))
        self.assertIn(b"mean", self.weights(whole), "buffers are saved, too")

    def test_accumulation_and_one_large_micro_batch_are_one_step(self):
        short = ["--set", "run.length=3", "--set", "checkpoint.every=3", "--set", "log.every=1"]
        self.finished(*short, "--set", "run.name=two", loop="no dropout")
        self.finished(*short, "--set", "run.name=one", "--set", "step.accumulation.count=1",
                      "--set", "data.micro_batch_size=4", loop="no dropout")
        two, one = (self.records(self.dir / "runs" / name, "step") for name in ("two", "one"))
        self.assertEqual([r["tokens"] for r in two], [r["tokens"] for r in one])
        for a, b in zip(two, one):  # sums of 64 losses in fp32, in another order
            self.assertAlmostEqual(a["loss"], b["loss"], delta=64 * 2**-24 * 6)

    def test_a_signal_saves_and_it_goes_on_from_there(self):
        whole = self.finished("--set", "run.name=whole", "--set", "run.length=60") and self.dir / "runs/whole"
        # It waits in step 30 for a line, so that the signal comes to it in the midst of a step, and before the end.
        process = subprocess.Popen([self.program, "--set", "run.length=60"], cwd=self.dir, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(LOOP="waits"))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        next(line for line in process.stdout if line.startswith(b"step "))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(b"\n", timeout=e2e.LIMIT_S)
        self.assertEqual(process.returncode, 75, err)
        self.assertIn(f"next    {self.program} resume runs/run\n", err.decode())
        self.finished("resume", "runs/run")
        self.assertEqual(self.weights(whole), self.weights(self.dir / "runs/run"))

    def test_who_leaves_after_an_update_has_a_whole_run(self):
        result = self.finished(loop="leaves after a step")
        self.assertIn("done    4 steps", result.out)
        self.assertIn("the program ended its loop\n", result.out)
        self.assertEqual(self.checkpoint(self.dir / "runs/run").name, "step-4")

    def test_who_leaves_inside_a_step_loses_that_step_alone(self):
        result = self.run_loop(loop="leaves in a step")
        self.assertEqual(result.code, 71, result)
        self.assertIn("the program left its loop inside a step\n", result.err)
        self.assertIn("step 4 was not applied; the run stopped; last checkpoint is step 2\n", result.err)
        thrown = self.run_loop("--set", "run.name=thrown", loop="throws in a step")
        self.assertEqual((thrown.code, thrown.out.splitlines()[-1]), (3, "caught of the program"))
        self.assertIn("last checkpoint is step 2\n", thrown.err)

    def test_a_lack_of_memory_is_said_where_nobody_catches_it(self):
        result = self.run_loop(loop="has no memory where nobody catches")
        self.assertEqual(result.code, 69, result)
        self.assertRegex(result.err, r"^error\[out_of_memory\]: not enough memory: a tensor of [\d.]+ PiB was wanted\n"
                                     r"  at: step 4\n")
        self.assertIn("last checkpoint is step 2\n", result.err)
        self.assertEqual(json.loads((self.dir / "runs/run/status.json").read_text())["exit"], 69)

    def test_mistakes_in_a_loop_are_said(self):
        for loop, text in (("forgets backward", "a micro-batch was left out"),
                           ("forgets update", "a step was not ended"),
                           ("backward twice", "micro.backward was called twice"),
                           ("calls backward itself", "a backward that is not the run's reaches the parameter table"),
                           ("goes on elsewhere", "a run goes on where it was opened: all of it is on one thread"),
                           ("asks for no field", "the data has no field `pixels`")):
            with self.subTest(loop=loop):
                result = self.run_loop(loop=loop)
                self.assertIn(f"caught {text}", result.out)
                self.assertEqual(result.code, 71, result)

    def test_mistakes_before_a_loop_are_said(self):
        for loop, text in (("opens two", "a second run is opened before the first has ended"),
                           ("adopts integers", "what is adopted as `steps` is no tensor of floating-point numbers")):
            with self.subTest(loop=loop):
                self.assertIn(f"caught {text}\n", self.finished("--set", "run.length=1", loop=loop).out)

    def test_a_term_that_is_none_ends_the_run(self):
        result = self.run_loop(loop="gives no sum")
        self.assertEqual(result.code, 71, result)
        self.assertIn("the term `loss`, summed over the micro-batch, is a tensor of one number\n", result.err)
        self.assertIn("step 1 was not applied", result.err)

    def test_a_run_that_cannot_begin_ends_the_program(self):
        for args, loop, code, text in (
                (["--set", "optimizer.lt=1"], "", 64, "error[unknown_key]"), (["--help"], "", 0, ""),
                ([], "adopts nothing", 71, "declared no segments or no parameters"),
                ([], "does not evaluate", 64, "there is data to evaluate on, and the program does not say how")):
            with self.subTest(text=text):
                result = self.run_loop(*args, loop=loop)
                self.assertEqual(result.code, code, result)
                self.assertIn(text, result.err)

    def test_what_wraps_blocks_is_refused_where_there_are_none(self):
        result = self.run_loop("--use", "activation.checkpointing")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[nothing_to_wrap]: activation.checkpointing wraps `block`, and the model has none\n",
                      result.err)

    def test_mortise_alone_has_no_model_of_a_program(self):
        self.refused(["train", "run.toml"], """\
error[host_missing]: [model.host] means that a program of yours brings the model; `mortise` has none
  --> run.toml:3:1
  fix: run that program, or name a model: [model.gpt]

1 error; nothing was started.
""")

    def test_it_computes_in_the_precision_of_the_run(self):
        self.finished("--set", "run.name=bf16", "--use", "precision.bf16")
        self.finished("--set", "run.name=fp32")
        losses = [[r["loss"] for r in self.records(self.dir / "runs" / name, "step")] for name in ("bf16", "fp32")]
        self.assertNotEqual(losses[0], losses[1])
        for rounded, exact in zip(*losses):  # 8 bits of mantissa, in logits below 8
            self.assertAlmostEqual(rounded, exact, delta=8 * 2**-8)


class Examples(e2e.Case):
    def example(self, folder, program, *args):
        for file in (EXAMPLES / folder).iterdir():
            shutil.copy(file, self.dir / file.name)
        text = (self.dir / "run.toml").read_text().replace("../../README.md", str(e2e.SOURCE / "README.md"))
        self.file("run.toml", text)
        done = subprocess.run([BUILD / "bin" / program, *args], cwd=self.dir, capture_output=True,
                              env=self.environment(), timeout=e2e.LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, e2e.Result(done))
        return self.records(self.dir / "runs/run", "step")

    def test_the_own_loop_learns(self):
        losses = [r["loss"] for r in self.example("02_own_loop", "own_loop")]
        self.assertLess(losses[-1], losses[0] - 0.7)

    def test_in_the_alternating_loop_each_step_trains_one_model(self):
        steps = self.example("03_alternating_loop", "alternating_loop", "--set", "run.length=6",
                             "--set", "log.every=1", "--set", "checkpoint.every=1", "--set", "checkpoint.keep=6")
        self.assertEqual(len(steps), 6)
        before = None
        for step in range(1, 7):
            header, body = parts_of(self.dir / f"runs/run/checkpoints/step-{step}/model/model.safetensors")
            now = {name: body[at["data_offsets"][0]:at["data_offsets"][1]] for name, at in header.items()
                   if name != "__metadata__"}
            if before:
                changed = {name.split(".")[0] for name in now if now[name] != before[name]}
                self.assertEqual(changed, {"generator" if step % 2 == 0 else "discriminator"})
            before = now

    def test_the_bert_loop_has_the_sizes_of_its_manifest(self):
        steps = self.example("04_bert_loop", "mortise-bert-loop", "--set", "model.host.sizes=[1, 2, 32, 64]")
        self.assertTrue(all(0.3 < r["loss"] < 1.5 for r in steps), steps)  # classes that nobody can tell
        header, _ = parts_of(self.checkpoint(self.dir / "runs/run") / "model/model.safetensors")
        self.assertEqual(header["layers.0.up.weight"]["shape"], [64, 32])
        self.assertNotIn("layers.1.up.weight", header)

    def test_the_page_shows_the_example(self):
        page = (e2e.SOURCE / "docs/guide/own_loop.md").read_text()
        shown = dict(re.findall(r"^```(?:cpp|toml|cmake) (\S+)\n((?:.*\n)*?)```$", page, re.MULTILINE))
        self.assertEqual(shown.keys(), {"own_loop.cpp", "run.toml", "CMakeLists.txt"})
        for name, text in shown.items():
            self.assertEqual(text, (EXAMPLES / "02_own_loop" / name).read_text(), name)


def parts_of(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + size]), data[8 + size:]


if __name__ == "__main__":
    e2e.main()
