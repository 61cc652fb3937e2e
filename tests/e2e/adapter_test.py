"""Adapters and experts through the program: [adapter.lora], [layer.moe]."""
import json
import math

import e2e
from e2e import TINY
from weights_test import numbers, read

FROM = TINY.replace("[model.gpt]\nlayers = 1\nheads = 2\nwidth = 16\n", "[model]\nweights = \"base\"\n[model.gpt]\n")
LORA = """\
[adapter.lora]
where = ["h.*.attn.c_attn", "h.*.mlp.c_fc"]
rank = 2
alpha = 6.0
dropout = 0.1
"""
MOE = "[layer.moe]\nwhere = { match = \"h.*.mlp\", every = 2, from = 1 }\nexperts = 3\ntop_k = 2\n"
SAVED = ("--set", "checkpoint.every=1", "--set", "checkpoint.keep=9", "--set", "log.every=1")
A, B = "lora_A.weight", "lora_B.weight"


def product(left, right, rank):
    rows, columns = len(left) // rank, len(right) // rank
    return [[sum(left[i * rank + r] * right[r * columns + j] for r in range(rank)) for j in range(columns)]
            for i in range(rows)]


class Lora(e2e.Case):
    def setUp(self):
        super().setUp()
        base = self.train("first", TINY, "--set", "run.length=2")
        self.ok("export", "runs/first", "-o", "base")
        self.base = read(self.checkpoint(base) / "model/model.safetensors")

    def tensors(self, run, step="latest"):
        return read((run / "checkpoints" / step).resolve() / "model/model.safetensors")

    def test_only_the_adapters_learn(self):
        run = self.train("tuned", FROM + LORA, *SAVED, "--set", "optimizer.lr=1e-2")
        after, first = self.tensors(run), self.tensors(run, "step-1")
        added = {f"h.0.{module}.{part}" for module in ("attn.c_attn", "mlp.c_fc") for part in (A, B)}
        self.assertEqual(set(after) - set(self.base), added)
        for name, tensor in self.base.items():
            self.assertEqual(after[name], tensor, name)
        for name in added:
            self.assertNotEqual(after[name], first[name], name)
        self.assertEqual(after[f"h.0.attn.c_attn.{A}"][1], [2, 16])
        self.assertEqual(after[f"h.0.attn.c_attn.{B}"][1], [48, 2])
        losses = [r["loss"] for r in self.records(run, "step")]
        self.assertLess(losses[-1], losses[0])
        plan = self.ok("plan", "tuned.toml").out
        self.assertRegex(plan, r"(?m)^  linear +adapter\.lora .*around operators\.aten")
        self.assertRegex(plan, r"(?m)^  params\.declared +adapter\.lora (?!.*around)")

    def test_a_resumed_run_has_the_same_bits(self):
        whole = self.train("whole", FROM + LORA, *SAVED)
        half = self.train("half", FROM + LORA, *SAVED, "--set", "run.length=3")
        self.ok("resume", "runs/half", "--set", "run.length=6")
        self.assertEqual(self.weights(whole), self.weights(half))

    def test_checkpointing_changes_no_bit(self):
        plain = self.train("plain", FROM + LORA)
        again = self.train("again", FROM + LORA + "[activation.checkpointing]\n")
        self.assertEqual(self.weights(plain), self.weights(again))

    def test_an_export_is_the_model_with_the_products_in_it(self):
        run = self.train("tuned", FROM + LORA, "--set", "optimizer.lr=1e-2")
        tensors = self.tensors(run)
        config = json.loads((self.checkpoint(run) / "model/config.json").read_text())
        self.assertNotIn("architectures", config)
        self.assertIn(f"h.0.attn.c_attn.{A} is added", config["parameters_differ"])
        out = self.ok("export", "runs/tuned", "-o", "merged").out
        self.assertIn("\nmerged  2 added to the weights of the model        load: GPT2LMHeadModel.", out)
        merged = read(self.dir / "merged/model.safetensors")
        self.assertEqual(set(merged), set(self.base))
        config = json.loads((self.dir / "merged/config.json").read_text())
        self.assertEqual((config["architectures"], config["model_type"]), (["GPT2LMHeadModel"], "gpt2"))
        self.assertEqual({"parameters_differ", "parameters_merge"} & set(config), set())
        for module in ("attn.c_attn", "mlp.c_fc"):
            name = f"h.0.{module}.weight"
            delta = product(numbers(tensors[f"h.0.{module}.{B}"]), numbers(tensors[f"h.0.{module}.{A}"]), 2)
            was, now = numbers(self.base[name]), numbers(merged[name])
            columns = len(delta)  # GPT-2 keeps its matrices the other way round
            for i in range(columns):
                for j in range(16):
                    want = was[j * columns + i] + 6 / 2 * delta[i][j]
                    self.assertTrue(math.isclose(now[j * columns + i], want, rel_tol=1e-6, abs_tol=1e-9), name)
            del merged[name]
        for name, tensor in merged.items():
            self.assertEqual(tensor, self.base[name], name)

    def test_what_was_added_is_exported_by_itself(self):
        run = self.train("tuned", FROM + LORA + 'also = ["ln_f.weight"]\n', "--set", "optimizer.lr=1e-2")
        base = self.dir / "base"
        out = self.ok("export", "runs/tuned", "-o", "added", "--to", "peft").out
        self.assertRegex(out, r"^wrote   added/  adapter_config\.json adapter_model\.safetensors README\.md    ")
        self.assertIn("\nnames   PEFT's; no tokenizer files: tokenizer.byte has none        load: PeftModel."
                      f'from_pretrained(GPT2LMHeadModel.from_pretrained("{base}"), "added")\n', out)
        modules = ["h.0.attn.c_attn", "h.0.mlp.c_fc"]
        self.assertEqual(json.loads((self.dir / "added/adapter_config.json").read_text()), {
            "base_model_name_or_path": str(base), "bias": "none", "fan_in_fan_out": True, "inference_mode": True,
            "lora_alpha": 6.0, "lora_dropout": 0.1, "r": 2, "peft_type": "LORA",
            "modules_to_save": ["transformer.ln_f"],
            "target_modules": [f"transformer.{m}" for m in modules], "task_type": "CAUSAL_LM"})
        tensors = self.tensors(run)
        names = [f"{m}.{part}" for m in modules for part in (A, B)] + ["ln_f.weight", "ln_f.bias"]
        self.assertEqual(read(self.dir / "added/adapter_model.safetensors"),
                         {f"base_model.model.transformer.{n}": tensors[n] for n in names})
        self.assertIn("from peft import PeftModel\n", (self.dir / "added/README.md").read_text())
        half = ("-o", "half", "--to", "peft", "--dtype", "bf16", "--json")
        answer = json.loads(self.ok("export", "runs/tuned", *half).out)
        self.assertEqual((answer["base"], answer["merged"], answer["dtype"]), (str(base), 0, "bf16"))
        self.assertEqual({dtype for dtype, *_ in read(self.dir / "half/adapter_model.safetensors").values()}, {"BF16"})

    def test_a_run_may_be_the_base(self):
        self.train("tuned", FROM.replace('"base"', '"runs/first"') + LORA)
        answer = json.loads(self.ok("export", "runs/tuned", "-o", "added", "--to", "peft", "--json").out)
        self.assertEqual(answer["base"], str(self.dir / "runs/first/checkpoints/step-2/model"))
        self.ok("resume", "runs/first", "--set", "run.length=4")
        self.refused(["export", "runs/tuned", "-o", "again", "--to", "peft"], self.no_adapter(
            "runs/tuned", "`wte.weight` of "
            f"{self.dir}/runs/first/checkpoints/step-4/model is no longer what it was when the run began"), 65)

    @staticmethod
    def no_adapter(run, why):
        return (f"error[no_adapter]: {run} has no adapter to export: {why}\n"
                f"  fix: the whole model: mortise export {run} -o OUT\n")

    def test_what_is_no_adapter(self):
        export = ["-o", "added", "--to", "peft"]
        self.refused(["export", "runs/first", *export],
                     self.no_adapter("runs/first", "the run added nothing to its model"), 65)
        self.train("alone", TINY + LORA)
        self.refused(["export", "runs/alone", *export], self.no_adapter(
            "runs/alone", "it began with weights of its own, which are nowhere else ([model] weights names none)"), 65)
        self.train("both", FROM + LORA + 'also = ["h.0.mlp.c_fc.bias"]\n')
        self.refused(["export", "runs/both", *export], self.no_adapter(
            "runs/both", "of `h.0.mlp.c_fc` both the adapter and what it is added to learned"), 65)
        self.train("tied", FROM + LORA + 'also = ["wte.weight"]\n')
        self.refused(["export", "runs/tied", *export], self.no_adapter(
            "runs/tied", "`wte.weight` learned, and stands in two places of the model: PEFT would bring it to one of "
                         "them"), 65)
        self.assertFalse((self.dir / "added").exists())

    # Both compute the same sums in fp32, one of them with the product in W: 2^-24 of some hundred roundings.
    def test_the_export_is_measured_as_the_run(self):
        text = FROM.replace("sequence_length = 16", "sequence_length = 16\nvalidation = 0.1")
        self.train("tuned", text + LORA, "--set", "optimizer.lr=1e-2")
        self.ok("export", "runs/tuned", "-o", "merged")
        self.file("merged.toml", text.replace('"base"', '"merged"'))
        own = json.loads(self.ok("eval", "runs/tuned", "--json").out)["eval.loss"]
        merged = json.loads(self.ok("eval", "merged.toml", "--json").out)["eval.loss"]
        base = json.loads(self.ok("eval", "merged.toml", "--json", "--set", "model.weights=base").out)["eval.loss"]
        self.assertTrue(math.isclose(own, merged, rel_tol=1e-5), (own, merged))
        self.assertGreater(abs(own - base), 1e-3)

    def test_what_else_learns(self):
        run = self.train("also", FROM + LORA + 'also = ["ln_f.*", "wpe.weight"]\n')
        after = self.tensors(run)
        changed = {name for name, tensor in self.base.items() if after[name] != tensor}
        self.assertEqual(changed, {"ln_f.weight", "ln_f.bias", "wpe.weight"})
        self.file("none.toml", FROM + LORA + 'also = ["score.*"]\n')
        result = self.mortise("plan", "none.toml")
        self.assertEqual(result.code, 64, result)
        self.assertIn("`score.*` of adapter.lora.also matches no parameter\n  --> none.toml:18:9\n", result.err)
        ruled = FROM + LORA + '[parameters.head]\nwhere = "ln_f.*"\nfreeze = false\n'
        after = self.tensors(self.train("ruled", ruled))
        self.assertEqual({name for name, tensor in self.base.items() if after[name] != tensor},
                         {"ln_f.weight", "ln_f.bias"})

    def test_what_is_refused(self):
        for tables, code, text in (
            (LORA.replace("rank = 2", "rank = 17"), 64, "a rank of 17 is above what a matrix of 48 x 16 can have"),
            (LORA.replace("h.*.attn.c_attn", "h.9.*"), 0, ""),
            ('[adapter.lora]\nwhere = "h.9.*"\n', 64, "error[matches_nothing]: `h.9.*` matches no layer"),
            ('[adapter.lora]\nwhere = "h.0.attn"\n', 64, "error[matches_nothing]"),
            ("[adapter.lora]\n", 64, "inside adapter.lora"),
        ):
            self.file("run.toml", FROM + tables)
            result = self.mortise("plan")
            self.assertEqual(result.code, code, result)
            self.assertIn(text, result.err)


class Moe(e2e.Case):
    TEXT = TINY.replace("layers = 1", "layers = 2").replace("sequence_length = 16",
                                                            "sequence_length = 16\nvalidation = 0.1")

    def test_it_stands_in_every_second_block_and_learns(self):
        run = self.train("experts", self.TEXT + MOE, *SAVED, "--set", "optimizer.lr=1e-2")
        names = set(read(self.checkpoint(run) / "model/model.safetensors"))
        self.assertIn("h.0.mlp.c_fc.weight", names)
        self.assertNotIn("h.1.mlp.c_fc.weight", names)
        self.assertIn("h.1.mlp.router.weight", names)
        self.assertEqual({n for n in names if n.endswith("c_fc.weight") and "experts" in n},
                         {f"h.1.mlp.experts.{e}.c_fc.weight" for e in range(3)})
        steps = self.records(run, "step")
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])
        for step in steps:
            self.assertGreaterEqual(step["moe_load"], 1)
            self.assertLessEqual(step["moe_load"], 1.5)  # of 2 choices among 3 an expert has half at most
            self.assertNotIn("moe_dropped", step)
        for name, moe in (("tight", MOE), ("both", MOE.replace(", every = 2, from = 1", ""))):  # their mean
            tight = self.train(name, self.TEXT + moe + "capacity_factor = 0.5\n", *SAVED)
            for step in self.records(tight, "step"):
                self.assertTrue(0.45 <= step["moe_dropped"] <= 0.75, step)
                self.assertTrue(1 <= step["moe_load"] <= 1.5, step)

    def test_bits_are_those_of_a_resumed_run_and_of_checkpointing(self):
        for name, more in (("all", ""), ("some", "capacity_factor = 0.7\n"), ("groups", 'products = "grouped"\n')):
            with self.subTest(name):
                text = self.TEXT + MOE + "jitter = 0.1\nz_loss = 0.001\n" + more
                whole = self.train(f"{name}_whole", text, *SAVED)
                half = self.train(f"{name}_half", text, *SAVED, "--set", "run.length=3")
                self.ok("resume", half, "--set", "run.length=6")
                self.assertEqual(self.weights(whole), self.weights(half))
                again = self.train(f"{name}_again", text + "[activation.checkpointing]\n", *SAVED)
                self.assertEqual(self.weights(whole), self.weights(again))
                self.assertEqual([r["loss"] for r in self.records(whole, "step")],
                                 [r["loss"] for r in self.records(again, "step")])

    def test_experts_in_groups_are_the_same_model(self):
        groups = ("--set", 'layer.moe.products="grouped"')
        each, grouped = self.train("each", self.TEXT + MOE, *SAVED), self.train("all", self.TEXT + MOE, *SAVED, *groups)
        one, other = (read(self.checkpoint(run) / "model/model.safetensors") for run in (each, grouped))
        self.assertEqual({name: sizes for name, (_, sizes, _) in one.items()},
                         {name: sizes for name, (_, sizes, _) in other.items()})
        steps, same = self.records(each, "step"), self.records(grouped, "step")
        for a, b in zip(steps, same, strict=True):  # sums of as many numbers in another order, over 6 steps
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5)
            self.assertAlmostEqual(a["flop_per_s"] * a["tokens"] / a["tokens_per_s"],
                                   b["flop_per_s"] * b["tokens"] / b["tokens_per_s"], delta=1)
        self.ok("resume", each, "--set", "run.length=8", *groups)
        lora = self.TEXT + MOE + 'products = "grouped"\n[adapter.lora]\nwhere = "*.c_fc"\nrank = 2\n'
        self.file("run.toml", lora)
        refused = self.mortise("plan")
        self.assertEqual(refused.code, 64, refused)
        self.assertIn("adapter.lora cannot run at h.1.mlp.experts.c_fc: it knows no attribute `groups` of linear",
                      refused.err)
        self.file("run.toml", self.TEXT + MOE + 'products = "grouped"\n[parameters.all]\nwhere = "*"\ndtype = "fp64"\n')
        refused = self.mortise("train", "run.toml")
        self.assertIn("LibTorch has no grouped products in fp64", refused.err)
        self.assertIn('fix: another dtype, or experts one by one: `products = "each"`', refused.err)

    def test_an_evaluation_has_no_terms_of_balance(self):
        run = self.train("experts", self.TEXT + MOE)
        heavy = self.ok("eval", "runs/experts", "--json", "--set", "layer.moe.balance=1.0").out
        self.assertEqual(json.loads(heavy)["eval.loss"], json.loads(self.ok("eval", run, "--json").out)["eval.loss"])

    # What padding is, the batch says: as a mask or by positions.
    def test_padding_takes_no_expert(self):
        self.file("rows.csv", "q,a\n" + "".join(f"{'xyz'[n % 3] * (n % 7 + 1)},{'ab'[n % 2]}\n" for n in range(24)))
        table = ('[run]\nlength = 4\n[data]\nmicro_batch_size = 6\nsequence_length = 16\n'
                 '[data.table]\npath = "rows.csv"\n%s[tokenizer.byte]\n[layer.moe]\nwhere = "*.mlp"\nexperts = 3\n'
                 'capacity_factor = 0.8\nz_loss = 0.01\nbalance = 1.0\n')
        bert = ('text = "q"\nlabel = "a"\n[model.bert]\nlayers = 1\nheads = 2\nwidth = 16\ninner = 16\n'
                'dropout = 0.0\nattention_dropout = 0.0\n')
        gpt = 'prompt = "q"\ncompletion = "a"\n[model.gpt]\nlayers = 1\nheads = 2\nwidth = 16\n'
        for name, model in (("bert", bert), ("gpt", gpt)):
            text = table % model + "[optimizer.adamw]\n"
            runs = [self.train(f"{name}{multiple}", text, "--set", f"data.pad_to_multiple={multiple}", *SAVED)
                    for multiple in (1, 16)]
            tight, wide = ([[r["loss"], r["moe_load"], r["moe_dropped"]] for r in self.records(run, "step")]
                           for run in runs)
            self.assertGreater(max(dropped for *_, dropped in tight), 0)
            for one, other in zip(tight, wide, strict=True):
                for a, b in zip(one, other):
                    self.assertAlmostEqual(a, b, delta=1e-5, msg=name)  # sums of other lengths

    def test_a_frozen_router_has_no_losses(self):
        text = self.TEXT + '[layer.moe]\nwhere = "h.*.mlp"\n[adapter.lora]\nwhere = "*.c_fc"\nrank = 2\n'
        first = []
        for name, balance in (("light", "0.01"), ("heavy", "100.0")):
            run = self.train(name, text, *SAVED, "--set", f"layer.moe.balance={balance}")
            first.append(self.records(run, "step")[0]["loss"])
            names = set(read(self.checkpoint(run) / "model/model.safetensors"))
            self.assertIn("h.1.mlp.experts.0.c_fc.lora_A.weight", names)
        self.assertEqual(*first)

    def test_its_experts_are_mlps_of_another_table(self):
        run = self.train("all", self.TEXT + MOE.replace('{ match = "h.*.mlp", every = 2, from = 1 }', '"h.*"'))
        names = set(read(self.checkpoint(run) / "model/model.safetensors"))
        self.assertIn("h.0.mlp.experts.2.c_fc.weight", names)
        self.assertFalse([n for n in names if n.count("experts") > 1])
        self.file("run.toml", self.TEXT + "[layer.moe]\n")
        result = self.mortise("plan")
        self.assertEqual(result.code, 64, result)
        self.assertIn("nothing provides `mlp` at h.0.mlp.experts.0 inside layer.moe\n  --> run.toml:", result.err)

    def test_more_choices_than_experts_are_refused(self):
        self.file("run.toml", self.TEXT + MOE.replace("top_k = 2", "top_k = 4"))
        result = self.mortise("plan")
        self.assertEqual(result.code, 64, result)
        self.assertIn("a token cannot take more experts than there are, 3", result.err)


if __name__ == "__main__":
    e2e.main()
