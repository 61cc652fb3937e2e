"""Weights in: folders as Hugging Face writes them, and what is said about those that do not fit."""
import json
import re
import struct

import e2e
from e2e import TINY

SHAPED = "[model.gpt]\nlayers = 1\nheads = 2\nwidth = 16\n"
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8}
CONFIG = {
    "model_type": "gpt2",
    "n_layer": 1,
    "n_head": 2,
    "n_embd": 16,
    "n_positions": 256,
    "vocab_size": 256,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "architectures": ["GPT2LMHeadModel"],
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "n_ctx": 256,
    "reorder_and_upcast_attn": False,
}

# What else transformers 4 and 5 write for a GPT-2, and the hub has in its files.
OF_TRANSFORMERS = {
    "_name_or_path": "gpt2",
    "_num_labels": 1,
    "bos_token_id": 50256,
    "dtype": "float32",
    "eos_token_id": 50256,
    "id2label": {"0": "LABEL_0"},
    "initializer_range": 0.02,
    "label2id": {"LABEL_0": 0},
    "n_inner": None,
    "n_special": 0,
    "output_past": True,
    "pad_token_id": None,
    "predict_special_tokens": True,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "torch_dtype": "float32",
    "transformers_version": "5.0.0",
    "use_cache": True,
}


def read(path):
    """name -> (dtype, shape, bytes)"""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + n]), data[8 + n:]
    return {
        name: (e["dtype"], e["shape"], body[e["data_offsets"][0] : e["data_offsets"][1]])
        for name, e in header.items()
        if name != "__metadata__"
    }


def safetensors(tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + body


def numbers(tensor):
    dtype, _, data = tensor
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // SIZES[dtype]}{ {'F64': 'd', 'F32': 'f', 'F16': 'e'}[dtype]}", data))


def converted(tensor, dtype):
    """Not rounded to the nearest: what is compared is what the file says."""
    values, shape = numbers(tensor), tensor[1]
    if dtype == "BF16":
        return dtype, shape, b"".join(struct.pack("<f", v)[2:] for v in values)
    return dtype, shape, struct.pack(f"<{len(values)}{ {'F64': 'd', 'F32': 'f', 'F16': 'e'}[dtype]}", *values)


class Weights(e2e.Case):
    def setUp(self):
        super().setUp()
        run = self.train("first", TINY, "--set", "run.length=2")
        self.model = run / "checkpoints/latest/model"
        self.tensors = read(self.model / "model.safetensors")
        self.file(
            "next.toml",
            TINY.replace("length = 6", "length = 1").replace(SHAPED, "[model]\nweights = \"hf\"\n[model.gpt]\n")
            + "[optimizer]\nlr = 0.0\n",
        )

    def folder(self, tensors=None, config=CONFIG, files=None):
        if config is not None:
            self.file("hf/config.json", json.dumps(config, indent=1))
        for name, some in (files or {"model.safetensors": self.tensors if tensors is None else tensors}).items():
            self.file(f"hf/{name}", safetensors(some))

    def taken(self, *flags):
        """Loads hf/ and trains one step at a rate of 0; what was loaded, and what was said about it."""
        result = self.ok("train", "next.toml", *flags)
        self.assertEqual(result.err, "")
        run = self.dir / re.search(r"^run     next -> (.*)$", result.out, re.M)[1]
        return (
            read(run / "checkpoints/latest/model/model.safetensors"),
            re.search(r"^weights (.*)$", result.out, re.M)[1],
        )

    def same(self, mine, theirs):
        self.assertEqual(mine.keys(), theirs.keys())
        for name in mine:
            self.assertEqual((mine[name][1], numbers(mine[name])), (theirs[name][1], numbers(theirs[name])), name)

    def test_a_checkpoints_model_is_such_a_folder(self):
        config = json.loads((self.model / "config.json").read_text())
        self.assertEqual(config, CONFIG)
        self.assertNotIn("lm_head.weight", self.tensors)
        self.assertEqual(self.tensors["h.0.attn.c_attn.weight"][1], [16, 48])  # [in, out]
        again = self.train("again", TINY, "--set", "run.length=2")
        self.assertEqual(
            (again / "checkpoints/latest/MANIFEST.json").read_bytes(),
            (self.model.parent / "MANIFEST.json").read_bytes(),
        )
        named = self.train(
            "named", TINY.replace("width = 16", "width = 16\nvocabulary = 300\ndropout = 0.25"), "--set", "run.length=1"
        )
        config = json.loads((named / "checkpoints/latest/model/config.json").read_text())
        self.assertEqual(
            (config["vocab_size"], config["resid_pdrop"], config["embd_pdrop"], config["attn_pdrop"]),
            (300, 0.25, 0.25, 0.25),
        )

    def test_a_folder_fixes_the_architecture(self):
        self.folder()
        loaded, said = self.taken()
        self.same(loaded, self.tensors)
        self.assertEqual(said, "hf: 16 tensors taken")
        keys = self.ok("plan", "next.toml", "--keys").out
        self.assertRegex(keys, r"model\.gpt\.layers +1 +hf/config\.json:3\n")
        self.assertRegex(keys, r"model\.gpt\.vocabulary +256 +hf/config\.json:7\n")
        self.assertRegex(self.ok("plan", "next.toml").out, r"\nweights  hf: 16 tensors taken\n")
        # The resolved manifest states the same once more, which is no contradiction.
        self.ok("train", "runs/next/run.toml", "--set", "run.dir=again")

    def test_a_run_goes_on_when_its_first_weights_are_gone(self):
        self.folder()
        self.ok("train", "next.toml")
        (self.dir / "hf").rename(self.dir / "away")
        self.ok("resume", "runs/next", "--set", "run.length=2")
        self.assertIn("error[no_weights]: ", self.mortise("train", "next.toml").err)

    def test_what_a_folder_says_of_tokens_and_of_drawing_stays(self):
        drawing = json.dumps({"do_sample": True, "eos_token_id": 11, "temperature": 0.7})
        self.folder(config={**CONFIG, "eos_token_id": [11, 12], "pad_token_id": 10, "bos_token_id": 50256})
        self.file("hf/generation_config.json", drawing)
        self.ok("train", "next.toml")
        (self.dir / "hf").rename(self.dir / "away")
        self.ok("resume", "runs/next", "--set", "run.length=2")
        self.ok("export", "runs/next", "-o", "out")
        config = json.loads((self.dir / "out/config.json").read_text())
        self.assertEqual(config, {**CONFIG, "eos_token_id": [11, 12], "pad_token_id": 10, "torch_dtype": "float32"})
        self.assertEqual((self.dir / "out/generation_config.json").read_text(), drawing)
        self.file("away/generation_config.json", "[]")
        self.refused(
            ["train", "next.toml", "--set", "model.weights=away", "--set", "run.dir=b"],
            "error[bad_config_json]: is no JSON object\n  at: away/generation_config.json\n",
            65,
        )

    def test_a_run_directory_is_such_a_folder_too(self):
        loaded, said = self.taken("--set", "model.weights=runs/first")
        self.same(loaded, self.tensors)
        self.assertEqual(said, "runs/first/checkpoints/step-2/model: 16 tensors taken")

    def test_a_size_that_follows_from_others_is_that_or_refused(self):
        self.folder(config={**CONFIG, "n_inner": 64})
        self.assertEqual(self.taken()[1], "hf: 16 tensors taken")
        self.folder(config={**CONFIG, "n_inner": 65})
        result = self.mortise("train", "next.toml")
        self.assertEqual(result.code, 64, result)
        self.assertRegex(result.err, r"^error\[weights_disagree\]: the weights are of n_inner `65`; "
                                     r"model\.gpt is `64`: 4\*width\n"
                                     r"  --> next\.toml:\d+:\d+ and hf/config\.json:\d+\n")

    def test_the_manifest_may_not_contradict_the_folder(self):
        self.folder()
        self.file(
            "other.toml",
            (self.dir / "next.toml").read_text().replace("[model.gpt]\n", "[model.gpt]\nwidth = 32\nheads = 2\n"),
        )
        self.refused(
            ["train", "other.toml"],
            "error[weights_disagree]: model.gpt.width is 32, the weights are of 16\n"
            "  --> other.toml:12:9 and hf/config.json:5\n"
            "  fix: leave it out: the weights fix it\n\n1 error; nothing was started.\n",
        )
        result = self.mortise("train", "next.toml", "--set", "model.gpt.preset=gpt2_124m")
        self.assertEqual(result.code, 64, result)
        self.assertIn(
            "error[weights_disagree]: model.gpt.layers is 12, the weights are of 1\n"
            "  --> preset gpt2_124m and hf/config.json:3\n",
            result.err,
        )
        self.assertEqual(result.err.count("error[weights_disagree]"), 5, result)
        # Dropout is no matter of the architecture: the folder's, unless the manifest says.
        self.folder(config={**CONFIG, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})
        self.assertRegex(self.ok("plan", "next.toml", "--keys").out, r"model\.gpt\.dropout +0\.1 +hf/config\.json:19\n")
        self.assertRegex(
            self.ok("plan", "next.toml", "--keys", "--set", "model.gpt.dropout=0").out,
            r"model\.gpt\.dropout +0\.0 +command line",
        )
        self.folder(config={**CONFIG, "resid_pdrop": 0.1})
        self.refused(
            ["train", "next.toml"],
            "error[weights_disagree]: the weights have resid_pdrop 0.1 and embd_pdrop 0.0; both are "
            "`model.gpt.dropout`\n"
            "  --> hf/config.json:19 and hf/config.json:20\n  fix: dropout = 0.1\n\n1 error; nothing was started.\n",
        )
        self.ok("plan", "next.toml", "--set", "model.gpt.dropout=0.1")
        # What is no dropout at all is no config.json of the model, whoever has the last word.
        self.folder(config={**CONFIG, "resid_pdrop": 2})
        result = self.mortise("plan", "next.toml", "--set", "model.gpt.dropout=0.1")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[out_of_range]: resid_pdrop is 0 to 1, this is 2\n  --> hf/config.json:19\n", result.err)

    def test_a_config_as_transformers_writes_it(self):
        self.folder(config={**CONFIG, **OF_TRANSFORMERS})
        self.assertEqual(self.taken()[1], "hf: 16 tensors taken")

    def test_keys_that_the_model_does_not_know(self):
        self.folder(config={**CONFIG, "rope_parameters": {"rope_type": "llama3", "factor": 8.0}, "off": False,
                            "unset": None, "sliding_window": 4096})
        self.refused(
            ["train", "next.toml"],
            "error[unknown_config]: hf/config.json has keys that model.gpt does not know\n"
            "  --> next.toml:10:11\n"
            "  hf/config.json:24  rope_parameters = {\"factor\":8.0,\"rope_type\":\"llama3\"}\n"
            "  hf/config.json:30  sliding_window = 4096\n"
            "  effect: another model would be trained\n"
            "  fix: a plugin for that model; if they change nothing, leave them out of hf/config.json\n\n"
            "1 error; nothing was started.\n",
            code=65,
        )
        self.folder(config={**CONFIG, "pruned_heads": {"0": [1]}})
        self.assertIn("error[unknown_config]: hf/config.json has a key that model.gpt does not know\n",
                      self.mortise("plan", "next.toml").err)
        self.folder(config={**CONFIG, "reorder_and_upcast_attn": True, "n_ctx": 255})
        err = self.mortise("train", "next.toml").err
        self.assertIn("the weights are of reorder_and_upcast_attn `true`; model.gpt is `false`\n", err)
        self.folder(config={**CONFIG, "n_ctx": 255})
        self.assertIn("error[weights_disagree]: the weights have n_positions 256 and n_ctx 255; both are "
                      "`model.gpt.context`\n", self.mortise("train", "next.toml").err)

    def test_the_file_of_a_folder_lacks_its_config(self):
        self.folder()
        result = self.mortise("train", "next.toml", "--set", "model.weights=hf/model.safetensors")
        self.assertRegex(result.err, r"^error\[wrong_tensor\]: ")
        self.assertIn("\n  fix: name its folder, whose config.json says the sizes: [model] weights = \"hf\"\n",
                      result.err)

    def test_weights_of_another_tokenizer(self):
        self.train("large", TINY.replace("[tokenizer.byte]\n", "").replace(
            "[data.text]\npath = \"notes.txt\"", "[data.random]\nhigh = 1000"), "--set", "run.length=1")
        asked = ("next.toml", "--set", "model.weights=runs/large")
        text = ("[other_vocabulary]: of the model's 1,000 ids the data has 256: an id need not mean what it meant to "
                "the weights\n")
        for verb in ("plan", "train"):
            self.assertIn("warning" + text, self.ok(verb, *asked).err)
        self.assertIn("error" + text, self.mortise("train", *asked, "--strict").err)
        self.folder()
        self.assertNotIn("other_vocabulary", self.ok("plan", "next.toml").err)

    def test_weights_of_another_model(self):
        self.folder(config={**CONFIG, "model_type": "bert"})
        self.refused(
            ["train", "next.toml"],
            "error[weights_disagree]: the weights are of model_type `bert`; model.gpt is `gpt2`\n"
            "  --> next.toml:10:11 and hf/config.json:2\n"
            "  fix: [model.bert]\n\n1 error; nothing was started.\n",
        )
        self.folder(config={**CONFIG, "activation_function": "relu", "layer_norm_epsilon": 1e-6})
        err = self.mortise("train", "next.toml").err
        self.assertIn("the weights are of activation_function `relu`; model.gpt is `gelu_new`\n", err)
        self.assertIn("the weights are of layer_norm_epsilon `1e-06`; model.gpt is `1e-05`\n", err)
        self.folder(config={**CONFIG, "n_layer": "one"})
        self.assertIn("error[wrong_type]: n_layer is ", self.mortise("train", "next.toml").err)
        self.folder(config={**CONFIG, "n_layer": 2**64 - 1})
        self.assertIn("error[wrong_type]: n_layer is ", self.mortise("train", "next.toml").err)
        for text in ("", "[]", "{", "\xff", '{"a":' + "[" * 200000 + "]" * 200000 + "}"):
            self.file("hf/config.json", text)
            result = self.mortise("train", "next.toml")
            self.assertEqual(
                (result.code, result.err.splitlines()[0]),
                (65, "error[bad_config_json]: hf/config.json is no JSON object"),
                result,
            )

    def test_shards_prefixes_and_dtypes(self):
        names = list(self.tensors)
        prefixed = {f"transformer.{n}": self.tensors[n] for n in names}
        files = {
            "model-00001-of-00002.safetensors": dict(list(prefixed.items())[:7]),
            "model-00002-of-00002.safetensors": dict(list(prefixed.items())[7:]),
        }
        self.folder(files=files)
        self.file(
            "hf/model.safetensors.index.json",
            json.dumps(
                {"metadata": {"total_size": 1}, "weight_map": {n: f for f, some in files.items() for n in some}}
            ),
        )
        loaded, said = self.taken()
        self.same(loaded, self.tensors)
        self.assertEqual(said, "hf: 16 tensors taken")
        for dtype in ("F64", "F16", "BF16"):
            other = {n: converted(t, dtype) for n, t in self.tensors.items()}
            self.folder(other)
            self.same(self.taken()[0], {n: converted(t, "F32") for n, t in other.items()})

    def test_names_that_mean_nothing_here(self):
        mask = {
            "h.0.attn.bias": ("F32", [1, 1, 4, 4], bytes(64)),
            "transformer.h.0.attn.masked_bias": ("F32", [], bytes(4)),
        }
        self.folder({**self.tensors, **mask, "lm_head.weight": self.tensors["wte.weight"]})
        self.assertEqual(self.taken()[1], "hf: 16 tensors taken")
        self.folder({**self.tensors, "score.weight": ("F32", [1], bytes(4)), "extra\u00e9": ("I64", [1], bytes(8))})
        self.assertEqual(self.taken()[1], "hf: 16 tensors taken; unused extra\u00e9, score.weight")
        other = bytearray(self.tensors["wte.weight"][2])
        other[0] ^= 1
        self.folder({**self.tensors, "lm_head.weight": ("F32", [256, 16], bytes(other))})
        self.refused(
            ["train", "next.toml"],
            "error[wrong_tensor]: `lm_head.weight` differs from `wte.weight`; in model.gpt `lm_head.weight` is "
            "`wte.weight`\n"
            "  --> next.toml:10:11\n  at: hf\n\n1 error; nothing was started.\n",
            code=65,
        )
        self.folder({**self.tensors, "transformer.ln_f.bias": self.tensors["ln_f.bias"]})
        self.refused(
            ["train", "next.toml"],
            "error[two_tensors]: `transformer.ln_f.bias` and `ln_f.bias` are both `ln_f.bias` of model.gpt\n"
            "  --> next.toml:10:11\n  at: hf\n\n1 error; nothing was started.\n",
            code=65,
        )

    def test_what_is_missing_and_what_may_be(self):
        short = {n: t for n, t in self.tensors.items() if not n.startswith("h.0.ln")}
        self.folder(short)
        self.refused(
            ["train", "next.toml"],
            "error[missing_tensors]: the weights lack 4 of 16 tensors that model.gpt needs\n  --> next.toml:10:11\n"
            "  at: hf: no h.0.ln_1.weight, h.0.ln_1.bias, h.0.ln_2.weight, h.0.ln_2.bias\n"
            "  fix: is the file of another model? or let them start anew: [model] new = [\"h.0.ln_*\"]\n\n"
            "1 error; nothing was started.\n",
            code=65,
        )
        self.assertEqual(self.mortise("plan", "next.toml").code, 65)  # before anything is allocated
        loaded, said = self.taken("--set", "model.new=[\"h.0.ln_*\"]")
        self.assertEqual(
            said,
            "hf: 12 tensors taken; new h.0.ln_1.weight, h.0.ln_1.bias, h.0.ln_2.weight, h.0.ln_2.bias (from run.seed)",
        )
        self.assertEqual(set(numbers(loaded["h.0.ln_1.weight"])), {1.0})
        self.assertEqual(numbers(loaded["wte.weight"]), numbers(self.tensors["wte.weight"]))
        self.refused(
            ["train", "next.toml", "--set", "model.new=[\"h.0.ln_*\",\"classifier.*\"]"],
            "error[matches_nothing]: `classifier.*` of model.new matches no parameter of model.gpt\n"
            "  --> command line: --set model.new=[\"h.0.ln_*\",\"classifier.*\"]\n"
            "  fix: all names: mortise plan next.toml --weights\n\n1 error; nothing was started.\n",
            code=65,
        )

    def test_wrong_shapes_and_kinds(self):
        turned = ("F32", [48, 16], self.tensors["h.0.attn.c_attn.weight"][2])
        self.folder({**self.tensors, "h.0.attn.c_attn.weight": turned})
        self.refused(
            ["train", "next.toml"],
            "error[wrong_tensor]: `h.0.attn.c_attn.weight` is [48, 16] in the weights, [16, 48] in model.gpt\n"
            "  --> next.toml:10:11\n  at: hf\n"
            "  fix: is the file of another model? or let it start anew: [model] new = [\"h.0.attn.c_attn.*\"]\n"
            "\n1 error; nothing was started.\n",
            code=65,
        )
        self.folder({**self.tensors, "ln_f.bias": ("I64", [16], bytes(128))})
        self.assertIn(
            "`ln_f.bias` is of I64; weights are F32, F64, BF16 or F16\n", self.mortise("train", "next.toml").err
        )

    def test_hostile_folders(self):
        self.folder(files={"a.safetensors": self.tensors})
        self.file("outside.safetensors", safetensors(self.tensors))
        for name in ("../outside.safetensors", str(self.dir / "outside.safetensors"), "..", "a.safetensors/", ""):
            self.file("hf/model.safetensors.index.json", json.dumps({"weight_map": {"wte.weight": name}}))
            result = self.mortise("train", "next.toml")
            self.assertEqual(result.code, 65, result)
            self.assertTrue(
                result.err.startswith(
                    "error[bad_index]: the file of `wte.weight` is no name of a file beside the index: "
                ),
                result,
            )
        self.file("hf/model.safetensors.index.json", json.dumps({"weight_map": {"wte.weight": "b.safetensors"}}))
        self.refused(
            ["train", "next.toml"],
            "error[not_read]: cannot be opened: No such file or directory\n  --> next.toml:10:11\n"
            "  at: hf/b.safetensors\n\n1 error; nothing was started.\n",
            code=65,
        )
        self.file("hf/model.safetensors.index.json", '{"weight_map":{"a":' + "[" * 200000 + "]" * 200000 + "}}")
        self.assertIn("error[bad_index]: ", self.mortise("train", "next.toml").err)
        (self.dir / "hf/model.safetensors.index.json").unlink()
        self.assertEqual(self.mortise("train", "next.toml").code, 65)
        self.file("hf/pytorch_model.bin", b"\x80\x04.")
        self.refused(
            ["train", "next.toml"],
            "error[pickle_only]: hf holds pytorch_model.bin only; Mortise reads no pickles\n  --> next.toml:10:11\n"
            "  fix: python -c 'from transformers import AutoModel as A; "
            "A.from_pretrained(\"hf\").save_pretrained(\"hf\")'\n"
            "\n1 error; nothing was started.\n",
            code=65,
        )


if __name__ == "__main__":
    e2e.main()
