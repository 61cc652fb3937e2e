"""A classifier from a folder, through the program: its classes by name, what is new in a run, and who learns."""
import json
import subprocess

import e2e
from guide_test import GUIDE, blocks
from weights_test import numbers, read, safetensors

DATA = ('[run]\nlength = 6\n[data]\nmicro_batch_size = 4\nsequence_length = 16\n[data.table]\npath = "train.csv"\n'
        'validation_path = "test.csv"\ntext = "text"\nlabel = "mood"\n[tokenizer.byte]\n[optimizer]\nlr = 0.02\n'
        "[optimizer.adamw]\n[metric.accuracy]\n")
SIZES = "[model.bert]\nlayers = 1\nheads = 2\nwidth = 16\ninner = 16\ncontext = 32\ndropout = 0.0\n"
FROM = DATA + '[model]\nweights = "hf"\n[model.bert]\n'
LORA = '[adapter.lora]\nwhere = "*.query"\nrank = 2\n'
HEAD = {"classifier.weight", "classifier.bias"}
POOLER = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}


def rows(moods):
    return "text,mood\n" + "".join(f"{'xyz'[n % 3] * 5},{moods[n % 3]}\n" for n in range(24))


class Classifier(e2e.Case):
    def setUp(self):
        super().setUp()
        self.write(["bad", "good", "good"])
        self.train("first", DATA + SIZES, "--set", "run.length=20")
        self.ok("export", "runs/first", "-o", "hf")
        self.folder = self.dir / "hf"
        self.names = json.loads((self.folder / "config.json").read_text())["id2label"]
        self.tensors = read(self.folder / "model.safetensors")

    def write(self, moods):
        for name in ("train.csv", "test.csv"):
            self.file(name, rows(moods))

    def change(self, names=None, tensors=None):
        """The folder as another program may have written it."""
        if names:
            config = json.loads((self.folder / "config.json").read_text())
            config["id2label"] = {str(i): name for i, name in enumerate(names)}
            config["label2id"] = {name: i for i, name in enumerate(names)}
            (self.folder / "config.json").write_text(json.dumps(config))
        if tensors is not None:
            (self.folder / "model.safetensors").write_bytes(safetensors(tensors))

    def swapped(self):
        """The same classifier, whose classes stand the other way round."""
        def other(tensor):
            dtype, shape, data = tensor
            half = len(data) // 2
            return dtype, shape, data[half:] + data[:half]
        self.change(["good", "bad"], {n: other(t) if n in HEAD else t for n, t in self.tensors.items()})

    def measured(self, text=FROM):
        answer = json.loads(self.ok("eval", self.file("eval.toml", text), "--json").out)
        return {name: answer[name] for name in ("samples", "eval.loss", "eval.accuracy")}

    def test_the_order_of_classes_is_that_of_the_weights(self):
        self.assertEqual(self.names, {"0": "bad", "1": "good"})
        before = self.measured()
        self.assertEqual(before["eval.accuracy"], 1)
        self.swapped()
        after = self.measured()
        self.assertEqual(after["eval.accuracy"], 1)
        self.assertLess(abs(after["eval.loss"] - before["eval.loss"]), 1e-6)  # sums of two, the other way round
        # Numbers instead of words are theirs.
        self.write(["1", "0", "0"])
        self.assertEqual(self.measured(), after)
        # A run from them goes on with them, and hands them on.
        self.write(["bad", "good", "good"])
        run = self.train("tuned", FROM, "--set", "run.length=1")
        self.ok("resume", run, "--set", "run.length=2")
        config = json.loads((self.checkpoint(run) / "model/config.json").read_text())
        self.assertEqual(config["id2label"], {"0": "good", "1": "bad"})

    def test_another_order_is_refused_and_other_classes_are_named(self):
        stated = FROM.replace('label = "mood"\n', 'label = "mood"\nclasses = ["good", "bad"]\n')
        refused = self.mortise("eval", self.file("eval.toml", stated))
        self.assertIn("error[weights_disagree]: data.table.classes is [\"good\", \"bad\"], the weights have these in "
                      "another order: bad, good\n", refused.err)
        self.assertIn("eval.toml:11:11 and hf/config.json\n  fix: leave it out: the weights fix it\n", refused.err)
        self.assertEqual(refused.code, 64)
        self.write(["bad", "good", "so so"])
        refused = self.mortise("train", self.file("eval.toml", FROM))
        self.assertIn("the label `so so` is none of `classes`", refused.err)
        self.assertIn("classes: bad, good", refused.err)
        # A head of its own for them.
        three = FROM.replace('label = "mood"\n', 'label = "mood"\nclasses = ["bad", "good", "so so"]\n')
        refused = self.mortise("train", self.file("three.toml", three))
        self.assertIn("`classifier.weight` is [2, 16] in the weights, [3, 16] in model.bert", refused.err)
        self.assertIn('  fix: is the file of another model? or let it start anew: [model] new = ["classifier.*"]\n',
                      refused.err)
        anew = self.train("anew", three.replace("[model]\n", '[model]\nnew = ["classifier.*"]\n'))
        self.assertEqual(read(self.checkpoint(anew) / "model/model.safetensors")["classifier.bias"][1], [3])

    def test_a_folder_without_its_config_is_told(self):
        (self.folder / "config.json").unlink()
        wide = FROM.replace("[model.bert]\n", SIZES.replace("width = 16", "width = 32"))
        self.assertIn("fix: hf has no config.json, which says the sizes: put it there, or state them in the model's "
                      "table\n", self.mortise("plan", self.file("eval.toml", wide)).err)
        self.ok("plan", self.file("eval.toml", FROM.replace("[model.bert]\n", SIZES)))

    def test_what_the_weights_do_not_have_learns_beside_an_adapter(self):
        base = {n: t for n, t in self.tensors.items() if n not in HEAD | POOLER}
        self.change(tensors=base)
        saved = ("--set", "checkpoint.every=1", "--set", "checkpoint.keep=9")
        run = self.train("tuned", FROM + LORA, *saved)
        after, first = (read((run / "checkpoints" / step).resolve() / "model/model.safetensors")
                        for step in ("latest", "step-1"))
        for name, tensor in base.items():
            self.assertEqual(after[name], tensor, name)
        for name in HEAD | POOLER:
            self.assertNotEqual(numbers(after[name]), numbers(first[name]), name)
        # A run that goes on has no weights to ask, and knows it.
        half = self.train("half", FROM + LORA, "--set", "run.length=3")
        (self.folder / "model.safetensors").rename(self.dir / "kept")
        self.ok("resume", half, "--set", "run.length=6")
        self.assertEqual(self.weights(half), self.weights(run))
        # What is new is nowhere but in the adapter's folder.
        (self.dir / "kept").rename(self.folder / "model.safetensors")
        self.ok("export", run, "-o", "added", "--to", "peft")
        config = json.loads((self.dir / "added/adapter_config.json").read_text())
        self.assertEqual(config["modules_to_save"], ["bert.pooler.dense", "classifier"])
        added = read(self.dir / "added/adapter_model.safetensors")
        for name in HEAD | POOLER:
            self.assertEqual(added[f"base_model.model.{name}"], after[name])

    def test_a_folder_of_the_model_without_a_head_is_taken(self):
        """BertModel names its tensors without the `bert.` that models with a head have."""
        base = {n: t for n, t in self.tensors.items() if n not in HEAD}
        self.change(tensors={n.removeprefix("bert."): t for n, t in base.items()})
        after = read(self.checkpoint(self.train("tuned", FROM + LORA)) / "model/model.safetensors")
        for name, tensor in base.items():
            self.assertEqual(after[name], tensor, name)

    def test_a_head_that_the_weights_have_is_frozen_by_an_adapter(self):
        run = self.train("tuned", FROM + LORA)
        after = read(self.checkpoint(run) / "model/model.safetensors")
        for name in HEAD | POOLER:
            self.assertEqual(after[name], self.tensors[name], name)
        self.assertFalse((self.checkpoint(run) / "new.json").exists())


class Images(e2e.Case):
    def setUp(self):
        super().setUp()
        page = (GUIDE / "writing_a_plugin.md").read_text()
        files = {name: body for _, name, body in blocks(page) if name in ("bars/plugin.toml", "bars/bars.cpp")}
        self.file("data.bars.toml", files["bars/plugin.toml"])
        self.file("bars.cpp", files["bars/bars.cpp"])
        sdk = e2e.SOURCE / "sdk"
        subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-static-libgcc",
                        "-static-libstdc++", f"-Wl,--version-script={sdk}/cmake/plugin.map", f"-I{sdk}/include",
                        '-DMORTISE_PLUGIN_TOML="data.bars.toml"', "bars.cpp", "-o", "data.bars.so"], cwd=self.dir,
                       check=True, timeout=e2e.LIMIT_S)

    def test_a_folder_of_the_model_without_a_head_is_taken(self):
        """ViTModel names its tensors without the `vit.` that the model with a head has, and may have a pooler."""
        data = ("[run]\nlength = 1\n[data]\nmicro_batch_size = 4\n[data.bars]\n[optimizer]\nlr = 0.0\n"
                "[optimizer.adamw]\n")
        sizes = ("[model.vit]\nimage_size = 8\npatch_size = 4\nchannels = 1\nlayers = 1\nheads = 2\nwidth = 16\n"
                 "inner = 32\n")
        own = ("--plugin-path", ".")
        self.ok("export", self.train("first", data + sizes, *own), "-o", "hf")
        tensors = read(self.dir / "hf/model.safetensors")
        base = {n: t for n, t in tensors.items() if n not in HEAD}
        self.assertEqual({n.split(".")[0] for n in base}, {"vit"})
        bare = {n.removeprefix("vit."): t for n, t in base.items()}
        bare["pooler.dense.weight"] = ("F32", [16, 16], bytes(4 * 256))
        (self.dir / "hf/model.safetensors").write_bytes(safetensors(bare))
        run = self.train("next", data + '[model]\nweights = "hf"\n[model.vit]\n', *own)
        after = read(self.checkpoint(run) / "model/model.safetensors")
        for name, tensor in base.items():
            self.assertEqual(after[name], tensor, name)
        self.assertEqual(set(after), set(tensors))

    def test_shared_experts_have_room_for_all_patches(self):
        """Data of images has no sequence length; the patches of an image are as many on every rank."""
        text = ("[run]\nlength = 8\n[log]\nevery = 1\n[data]\nmicro_batch_size = 4\n[data.bars]\n[optimizer]\n"
                "lr = 1e-2\n[optimizer.adamw]\n[model.vit]\nimage_size = 8\npatch_size = 2\nchannels = 1\nlayers = 1\n"
                'heads = 2\nwidth = 16\ninner = 32\n{}[layer.moe]\nwhere = "*.mlp"\nexperts = 4\n'
                "capacity_factor = 1.25\n")
        own = ("--plugin-path", ".")
        one = self.train("one", text.format("[step.accumulation]\ncount = 2\n"), *own)
        two = self.train("two", text.format("") + "expert_parallel = 2\n", *own, "--ranks", "2")
        for a, b in zip(self.records(one, "step"), self.records(two, "step"), strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5)


if __name__ == "__main__":
    e2e.main()
