"""What `mortise plan` answers, in its forms, and what it costs to ask."""
import json
import os
import subprocess

import e2e
from e2e import TINY


class Plan(e2e.Case):
    def test_the_sections(self):
        self.file("run.toml", TINY + "[gradient.clip]\n")
        out = self.ok("plan").out
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^run  \(run\.toml, default\.toml\) +plan [0-9a-f]{6}$")
        self.assertRegex(lines[1], r"^length   6 steps of at most 64 tokens = 384 = 0\.\d\d epochs$")
        self.assertEqual(lines[2], "batch    4 samples × 16 tokens (4 a device × 1 accumulated × 1 rank) · 6 steps")
        for line, head in zip(lines[3:6], ("model    model.gpt", "data     data.text", "device   device.cpu")):
            self.assertTrue(line.startswith(head), out)
        self.assertEqual(lines[6], "repeat   same samples in the same order; bits repeatable")
        sections = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
        self.assertEqual(
            sections[7:],
            [
                "who does what",
                "around, outermost first",
                "after backward, in order",
                "listening",
                "parameters",
                "memory, MiB, exact from the declarations",
                "advice",
            ],
        )
        self.assertRegex(out, r"(?m)^  model +model\.gpt .* run\.toml:9$")
        self.assertRegex(out, r"(?m)^  device +device\.cpu .* default\.toml:\d+$")
        order = [line.split()[1] for line in out.split("in order\n")[1].split("listening")[0].splitlines()]
        self.assertEqual(order, ["parallel.none", "guard.nonfinite", "gradient.clip", "optimizer.adamw"])

    def test_what_ranks_send(self):
        """Of two ranks, where all matrices are cut: half of each gradient goes out and half of each sum comes back."""
        def sent(more):
            self.file("run.toml", TINY + more)
            return json.loads(self.ok("plan", "--json", "--ranks", "2").out)["length"]["sent_bytes"]

        zero = "[parallel.zero]\nwhole_below = 0\nstage = {}\n"
        ddp = sent("")
        parameters = ddp // 4
        self.assertEqual(sent("[parallel.dp]\n"), ddp, "a gradient one way, a value the other")
        self.assertEqual(sent(zero.format(1)), ddp + 2 * parameters)
        # gloo sums whole gradients on every rank.
        self.assertEqual(sent(zero.format(2)), ddp + 2 * parameters)
        self.assertEqual(sent(zero.format(3)), ddp + 4 * parameters)
        self.assertEqual(sent("[step.accumulation]\ncount = 4\n"), ddp, "after the last micro-batch")
        self.assertEqual(sent(zero.format(3) + "[step.accumulation]\ncount = 4\n"), 4 * sent(zero.format(3)))
        frozen = '[parameters.f]\nwhere = "h.0.*"\nfreeze = true\n'
        self.assertEqual(2 * sent(zero.format(1) + frozen), 3 * sent(frozen), "what is frozen does not change")
        bf16, all_bf16 = (sent("[precision.bf16]\n" + more) for more in ("", 'gradients = "bf16"\n'))
        self.assertEqual(bf16, ddp)
        # All but norms and biases.
        self.assertTrue(0.5 < all_bf16 / ddp < 0.6, all_bf16 / ddp)

    def test_an_optimizer_of_matrices_refuses_what_is_none_by_name(self):
        self.file("run.toml", TINY.replace("[optimizer.adamw]", "[optimizer.muon]"))
        result = self.mortise("plan")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[refused_value]: Muon updates matrices; wte.weight has the role embedding and 2 "
                      "dimensions\n  --> run.toml:", result.err)
        self.assertIn("  fix: where = \"role:matrix\", and a second optimizer", result.err)
        self.file("run.toml", TINY.replace("[optimizer.adamw]",
                                           "[optimizer.muon]\nwhere = \"role:matrix\"\n[optimizer.adamw]"))
        self.assertRegex(self.ok("plan").out, r"(?m)^  \d+ tensors, lr .*: optimizer\.muon, cut by tensor$")

    def test_advice_is_on_what_nobody_decided(self):
        clip, rate = (
            "no gradient is clipped: [gradient.clip] norm = 1.0",
            'the learning rate stays at its peak: [schedule.cosine], with [schedule] warmup = "3%"',
        )
        self.assertTrue(self.ok("plan").out.endswith(f"\nadvice\n  {clip}\n  {rate}\n"))
        self.assertTrue(self.ok("plan", "--use", "gradient.clip").out.endswith(f"\nadvice\n  {rate}\n"))
        self.assertNotIn("advice", self.ok("plan", "--use", "gradient.clip", "--use", "schedule.constant").out)
        self.file("run.toml", TINY + "[gradient.clip]\nenabled = false\n")
        plan = json.loads(self.ok("plan", "--json", "--static").out)
        self.assertEqual((plan["advice"], plan["repeat"]), ([rate], "same samples in the same order; bits repeatable"))

    def test_the_manifest_orders_wrappers_of_one_band(self):
        for name in ("one", "two"):
            self.file(
                f"more/adapter.{name}/plugin.toml",
                f'[plugin]\nid = "adapter.{name}"\nversion = "0.1.0"\nsummary = "Changes blocks"\nstatus = "alpha"\n'
                f'abi = "0.1"\n'
                '[points]\nwraps = [{ point = "block", band = "adapt", capture = true }]\n',
            )
        both = TINY + "[adapter.one]\n[adapter.two]\n"
        static = ["plan", "--static", "--plugin-path", "more"]
        self.file("run.toml", both)
        self.refused(
            static,
            "error[unordered_wrappers]: adapter.one and adapter.two both wrap in band `adapt` at `block`, and nothing "
            "orders them\n"
            "  --> run.toml:14:1 and run.toml:15:1\n"
            "  fix: [order] block = [\"adapter.one\", \"adapter.two\"]   (the outermost first)\n"
            "       or give one of them another `where` or `modes`, so that they never meet\n"
            "       or say in the plugin.toml of adapter.two: [capabilities] after = [\"adapter.one\"]\n"
            "\n1 error; nothing was started.\n",
        )
        self.file("run.toml", both + '[order]\nblock = ["adapter.two", "adapter.one"]\n')
        self.assertRegex(self.ok(*static).out, r"(?m)^  block +adapter\.two .*\n +adapter\.one ")
        self.assertEqual(self.ok(*static, "--why", "block").out,
                         "block     adapter.two (adapt)  run.toml:15\n"
                         "  before  adapter.one          because adapter.one stands after adapter.two in [order]\n"
                         "block     adapter.one (adapt)  run.toml:14\n"
                         "  after   adapter.two          because it stands after adapter.two in [order]\n")
        self.assertRegex(
            self.ok(*static, "--set", 'order.block=["adapter.one", "adapter.two"]').out,
            r"(?m)^  block +adapter\.one .*\n +adapter\.two ",
        )
        self.refused([*static, "--without", "adapter.one"],
                     "error[wrong_order]: [order] names adapter.one at `block`, which is not on\n"
                     "  --> run.toml:17:25\n"
                     "  fix: [adapter.one] switches it on; or leave it out\n"
                     "\n1 error; nothing was started.\n")
        self.file("run.toml", both + '[order]\nblok = ["adapter.two", "adapter.one"]\n')
        self.assertIn(
            "error[unknown_point]: [order] names `blok`, which is no point\n  --> run.toml:17:8\n"
            "  fix: it is called `block`\n",
            self.mortise(*static).err,
        )

    def test_keys_name_their_sources(self):
        self.file("run.toml", TINY + "[parameters.head]\nwhere = \"wte.*\"\nlr_scale = 0.5\n")
        out = self.ok("plan", "--keys", "--set", "optimizer.lr=3e-4").out
        self.assertRegex(out, r"(?m)^  data\.micro_batch_size +4 +run\.toml:4:20$")
        self.assertRegex(out, r"(?m)^  optimizer\.lr +3e-4 +command line: --set optimizer\.lr=3e-4$")
        self.assertRegex(out, r"(?m)^  data\.shuffle +true +default of data\.shuffle$")
        self.assertRegex(out, r"(?m)^  optimizer\.adamw\.eps +1e-8 +plugin\.toml of optimizer\.adamw$")
        self.assertRegex(out, r"(?m)^  parameters\.head\.lr_scale +0\.5 +run\.toml:16:12$")
        keys = {k["key"]: k for k in json.loads(self.ok("plan", "--keys", "--json").out)["keys"]}
        self.assertEqual(keys["model.gpt.width"], {"key": "model.gpt.width", "value": "16", "from": "run.toml:12:9"})
        self.assertIsNone(keys["model.gpt.preset"]["value"])
        # What nobody stated says what it follows.
        self.assertRegex(out, r"(?m)^  model\.weights +- +default: random, from run\.seed$")
        self.assertRegex(out, r"(?m)^  optimizer\.weight_decay +0\.01 +plugin\.toml of optimizer\.adamw$")
        self.assertEqual(keys["run.dir"]["from"], "default: runs/NAME in the current folder, or NAME in $MORTISE_RUNS")

    def test_why_names_the_reasons_of_an_order(self):
        self.file("run.toml", TINY + "[gradient.clip]\n")
        out = self.ok("plan", "--why", "grad.transform").out
        self.assertIn("gradient.clip", out)
        self.assertIn("because", out)
        self.assertEqual(json.loads(self.ok("plan", "--why", "block", "--json").out)["point"], "block")
        self.refused(
            ["plan", "--why", "blok"],
            "error[unknown_point]: no point is called `blok`\n  fix: mortise plan --why block\n",
        )

    def test_static_loads_no_plugin(self):
        # A plugin without its library: the structure is known all the same.
        self.file(
            "more/optimizer.other/plugin.toml",
            (e2e.PLUGINS / "optimizer.sgd.toml").read_text().replace("optimizer.sgd", "optimizer.other"),
        )
        self.file("run.toml", TINY.replace("optimizer.adamw", "optimizer.other"))
        out = self.ok("plan", "--static", "--plugin-path", "more").out
        self.assertRegex(out, r"(?m)^  optimizer +optimizer\.other ")
        self.assertEqual(self.mortise("plan", "--plugin-path", "more").code, 71)

    def test_json_is_the_same_tree(self):
        plan = json.loads(self.ok("plan", "--json").out)
        self.assertEqual(
            plan["length"],
            {"steps": 6, "samples_per_step": 4, "tokens_per_step": 64, "micros": 1, "ranks": 1, "sent_bytes": 0,
             "parts": "", "axes": [], "proof": []},
        )
        self.assertGreater(plan["memory"]["optimizer_bytes"], plan["memory"]["weights_bytes"])
        self.assertEqual(plan["memory"]["workspaces_bytes"], 0)
        static = json.loads(self.ok("plan", "--json", "--static").out)
        self.assertEqual(plan["plan"], static["plan"])

    def test_the_copy_of_a_save_in_the_background_is_counted(self):
        self.assertNotIn("host memory", self.ok("plan").out)
        self.assertRegex(
            self.ok("plan", "--set", "checkpoint.background=true").out,
            r"\n  and in host memory \d+\.\d: the copy that \[checkpoint\] background saves from\n",
        )
        memory = json.loads(self.ok("plan", "--json", "--set", "checkpoint.background=true").out)["memory"]
        self.assertEqual(memory["copy_bytes"], memory["weights_bytes"] + memory["optimizer_bytes"])
        offloaded = self.ok("plan", "--json", "--use", "offload.optimizer", "--set", "checkpoint.background=true")
        self.assertEqual(json.loads(offloaded.out)["memory"]["copy_bytes"], memory["copy_bytes"], "wherever it lies")

    def test_advice_where_one_rank_shares_out_nothing(self):
        self.file("run.toml", TINY + "[parallel.zero]\n")
        advice = "parallel.zero is of several ranks, and there is one: --ranks N"
        self.assertIn(advice, self.ok("plan").out)
        self.assertNotIn("is of several ranks", self.ok("plan", "--ranks", "2").out)

    def test_what_lies_in_parts_is_not_gathered_twice(self):
        def gathered(more):
            self.file("run.toml", TINY + more + "[parallel.zero]\nstage = 2\nwhole_below = 0\n")
            return json.loads(self.ok("plan", "--json", "--ranks", "2").out)["memory"]["transient_bytes"]
        self.assertEqual(gathered("[precision.bf16]\n[offload.optimizer]\n"), gathered(""))

    def test_keys_of_what_a_fallback_brings(self):
        keys = self.ok("plan", "--ranks", "2", "--keys").out
        self.assertRegex(keys, r'(?m)^  comm\.gloo\.timeout +"10 min" +plugin.toml of comm\.gloo$')

    def test_ids_that_no_sample_names_are_said(self):
        advice = ("of the model's 50,257 ids the data has 256, the others are never trained: "
                  "[model.gpt] vocabulary = 256")
        large = ("--set", "model.gpt.vocabulary=50257")
        self.assertIn(f"\nadvice\n  {advice}\n", self.ok("plan", *large).out)
        self.assertIn(advice, json.loads(self.ok("plan", "--json", *large).out)["advice"])
        for fitting in ((), ("--set", "model.gpt.vocabulary=320")):
            self.assertNotIn("never trained", self.ok("plan", *fitting).out)

    def test_weights_and_layers(self):
        out = self.ok("plan", "--weights").out
        self.assertRegex(out, r"(?m)^h\.0\.attn\.c_attn\.weight .*\b16\b.*\b48\b|\b48\b.*\b16\b")
        self.assertEqual(
            len(json.loads(self.ok("plan", "--weights", "--json").out)["parameters"]), len(out.splitlines())
        )
        self.assertEqual(self.ok("plan", "--layer", "default").out, (e2e.SOURCE / "configs/default.toml").read_text())
        self.refused(
            ["plan", "--layer", "middle"],
            "error[unknown_layer]: no layer `middle` is shipped\n  fix: mortise plan --layer default\n",
        )

    def test_it_allocates_nothing(self):
        # 1.56 G parameters would be 6 GB of weights; the plan of them fits into little, and soon.
        self.file("big.toml", '[data.random]\n[model.gpt]\npreset = "gpt2_1558m"\n[optimizer.adamw]\n')
        process = subprocess.Popen(
            [e2e.MORTISE, "plan", "big.toml"], cwd=self.dir, env=self.environment(), stdout=subprocess.PIPE
        )
        out = process.stdout.read().decode()
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        self.assertRegex(out, r"(?m)^model +model\.gpt 1557\.6 M parameters")
        self.assertRegex(out, r"(?m)^  weights +5941\.8   masters, which the optimizer updates; of what is frozen "
                              r"its values$")
        self.assertLess(used.ru_utime + used.ru_stime, 5)  # of the processor: the machine may be busy
        self.assertLess(used.ru_maxrss, 500 * 1024)

    def test_the_shipped_files_are_runs(self):
        for path in sorted((e2e.SOURCE / "configs").glob("*.toml")):
            if path.name in ("default.toml", "foreign_names.toml"):
                continue
            self.file(
                "run.toml",
                f'include = ["mortise:{path.stem}"]\n'
                + ("" if "[data." in path.read_text() else "[data.random]\n")
                + ("" if "[model." in path.read_text() else "[model.gpt]\n[optimizer.adamw]\n"),
            )
            self.assertEqual(self.ok("plan").err, "", path)
        self.file("run.toml", 'include = ["mortise:gpt2_124m"]\n[data.random]\n')
        out = self.ok("plan").out
        self.assertRegex(out, r"^run  \(run\.toml, mortise:gpt2_124m, default\.toml\) +plan ")
        self.assertRegex(out, r"(?m)^model +model\.gpt 124\.4 M parameters")
        self.refused(["plan", "--include", "mortise:gpt2_124"],
                     "error[include_missing]: no shipped file `mortise:gpt2_124`\n"
                     f"  --> command line: --include mortise:gpt2_124    looked in {e2e.SOURCE}/configs\n"
                     "  fix: --include mortise:gpt2_124m\n\n1 error; nothing was started.\n")

    def test_what_a_static_plan_leaves_out_is_of_as_many_ranks(self):
        self.assertRegex(self.ok("plan", "--static").out, r"which plugins say: mortise plan run\.toml\n\Z")
        self.assertRegex(self.ok("plan", "--static", "--ranks", "2").out, r": mortise plan run\.toml --ranks 2\n\Z")

    def test_nothing_is_written(self):
        before = sorted(self.dir.rglob("*"))
        libraries = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in e2e.PLUGINS.iterdir()}
        for form in ((), ("--static",), ("--keys",), ("--weights",), ("--json",)):
            self.ok("plan", *form)
        self.assertEqual(sorted(self.dir.rglob("*")), before)
        self.assertEqual({p: (p.stat().st_mtime_ns, p.stat().st_size) for p in e2e.PLUGINS.iterdir()}, libraries)


if __name__ == "__main__":
    e2e.main()
