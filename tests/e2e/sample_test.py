"""Text from a run directory."""
import json
import shutil

import e2e
from e2e import TINY


class Sample(e2e.Case):
    def setUp(self):
        super().setUp()
        self.run_dir = self.train("small", TINY.replace("length = 6", "length = 2"))

    def sample(self, *flags, **more):
        result = self.ok("sample", "runs/small", *flags, **more)
        self.assertEqual(result.err, "")
        return result.out

    def test_a_seed_decides_the_text(self):
        flags = ("--prompt", "1 2 3", "--tokens", "24")
        one = self.sample(*flags, "--seed", "7")
        self.assertEqual(one, self.sample(*flags, "--seed", "7"))
        self.assertNotEqual(one, self.sample(*flags, "--seed", "8"))
        self.assertTrue(one.startswith("1 2 3"), one)
        greedy = self.sample(*flags, "--temperature", "0", "--seed", "1")
        self.assertEqual(greedy, self.sample(*flags, "--temperature", "0", "--seed", "2"))
        self.assertEqual(greedy, self.sample(*flags, "--top-k", "1", "--seed", "3"))

    def test_the_prompt_comes_from_standard_input_too(self):
        flags = ("--tokens", "8", "--temperature", "0")
        self.assertEqual(self.sample(*flags, stdin=b"1 2 3\n"), self.sample(*flags, "--prompt", "1 2 3"))
        self.assertTrue(self.sample(*flags).startswith("The "))  # nobody said anything: the plugin's own
        text = json.loads(self.sample(*flags, "--prompt", "1 2 3", "--json"))
        self.assertEqual(text, {"prompt": "1 2 3", "text": self.sample(*flags, "--prompt", "1 2 3")[:-1]})

    def test_several_prompts_are_several_texts(self):
        flags = ("--tokens", "8", "--seed", "3")
        one, two = (self.sample(*flags, "--temperature", "0", "--prompt", p) for p in ("1 2 3", "40 4"))
        both = one + two
        greedy = (*flags, "--temperature", "0")
        self.assertEqual(self.sample(*greedy, "--prompt", "1 2 3", "--prompt", "40 4"), both)
        self.assertEqual(self.sample(*greedy, stdin=b"1 2 3\r\n\n40 4\n"), both)
        self.file("prompts.txt", "40 4\n")
        self.assertEqual(self.sample(*greedy, "--prompt", "1 2 3", "--prompt-file", "prompts.txt", stdin=b"5\n"), both)
        lines = self.sample(*greedy, "--prompt", "1 2 3", "--prompt", "40 4", "--json").splitlines()
        self.assertEqual([json.loads(line)["prompt"] for line in lines], ["1 2 3", "40 4"])
        self.assertEqual([json.loads(line)["text"] + "\n" for line in lines], [one, two])
        first, second = (json.loads(line)["text"] for line in self.sample(
            *flags, "--prompt", "1 2 3", "--prompt", "1 2 3", "--json").splitlines())
        self.assertNotEqual(first, second, "equal prompts draw other bits")
        self.assertEqual(first + "\n", self.sample(*flags, "--prompt", "1 2 3"), "the first draws as if alone")
        own = self.sample(*flags, "--set", 'sample.text.prompts=["1","2"]', "--json").splitlines()
        self.assertEqual([json.loads(line)["prompt"] for line in own], ["1", "2"])

    def test_a_file_of_prompts_that_is_none(self):
        self.file("empty.txt", "\n")
        self.refused(["sample", "runs/small", "--prompt-file", "nowhere.txt"],
                     "error[cannot_read]: `nowhere.txt` cannot be read\n  --> command line: --prompt-file nowhere.txt\n"
                     "  fix: a file with a prompt a line\n", code=74)
        self.refused(["sample", "runs/small", "--prompt-file", "empty.txt"],
                     "error[missing_value]: `empty.txt` has no prompt\n  fix: --prompt TEXT\n")

    def test_the_share_and_the_text_to_stop_at(self):
        flags = ("--prompt", "1 2 3", "--tokens", "24")
        greedy = self.sample(*flags, "--temperature", "0")
        self.assertEqual(self.sample(*flags, "--top-p", "1e-9", "--seed", "5"), greedy)
        self.assertEqual(self.sample(*flags, "--top-p", "1", "--seed", "5"), self.sample(*flags, "--seed", "5"))
        new = greedy[len("1 2 3"):-1]
        two = new[-2:]
        self.assertTrue(two.isascii(), "a character shown for bytes that are none is in no text")
        ended = "1 2 3" + new[:new.index(two)] + "\n"
        self.assertEqual(self.sample(*flags, "--temperature", "0", "--stop", two), ended)
        self.assertEqual(self.sample(*flags, "--temperature", "0", "--stop", "@@", "--stop", two), ended)
        self.assertEqual(self.sample(*flags, "--temperature", "0", "--set", f"sample.text.stop={json.dumps([two])}"),
                         ended)
        for value in ("0", "1.5", "-0.1", "nan", "much"):
            result = self.mortise("sample", "runs/small", f"--top-p={value}")
            self.assertEqual((result.code, result.out), (64, ""), (value, result))

    def test_more_tokens_go_on_where_fewer_ended(self):
        flags = ("--prompt", "1 2", "--temperature", "0")
        short, long = self.sample(*flags, "--tokens", "3"), self.sample(*flags, "--tokens", "9")
        self.assertTrue(long.startswith(short[:-1]), (short, long))

    def test_the_sampler_is_the_one_that_the_default_names_not_the_first_of_the_alphabet(self):
        toml = (e2e.PLUGINS / "sample.text.toml").read_text().replace("sample.text", "sample.another")
        self.file("more/sample.another/plugin.toml", toml)  # without a library: to load it would be an error
        self.assertEqual(self.sample("--prompt", "1", "--tokens", "2", "--plugin-path", "more")[:1], "1")
        self.assertEqual(self.mortise("sample", "runs/small", "--plugin-path", "more", "--use", "sample.another").code,
                         71)
        self.assertNotIn("sample.text", self.ok("plan", "--static").out,
                         "a training that nobody asked for samples draws none")

    def test_a_run_on_ids_is_given_a_tokenizer(self):
        data = '[data.text]\npath = "notes.txt"\n[tokenizer.byte]\n'
        self.train("ids", TINY.replace(data, "[data.random]\nsamples = 64\nlow = 0\nhigh = 256\n"))
        self.refused(["sample", "runs/ids", "--prompt", "1"],
                     "error[no_tokenizer]: runs/ids was trained on ids; no tokenizer came with it\n"
                     "  fix: mortise sample runs/ids --prompt 1 --tokenizer FOLDER\n"
                     "\n1 error; nothing was started.\n")
        flags = ("sample", "runs/ids", "--prompt", "1", "--temperature", "0", "--tokens", "9")
        text = self.ok(*flags, "--use", "tokenizer.byte").out
        self.assertEqual(text[0], "1")
        for name in ("byte", "tokenizer.byte"):
            self.assertEqual(self.ok(*flags, "--tokenizer", name).out, text)
        # A folder comes before a plugin of its name.
        self.file("byte/tokenizer.json", json.dumps({"model": {
            "type": "WordLevel", "vocab": {str(n): n for n in range(256)}, "unk_token": "0"}}))
        self.assertIn("WordLevel", self.mortise(*flags, "--tokenizer", "byte").err)
        words = {"model": {"type": "WordPiece", "vocab": {str(n): n for n in range(256)}, "unk_token": "0",
                           "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
                 "pre_tokenizer": {"type": "WhitespaceSplit"},
                 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}}
        self.file("byte/tokenizer.json", json.dumps(words))
        said = {self.ok(*flags, "--tokenizer", name).out for name in ("byte", "byte/", "byte/tokenizer.json")}
        self.assertRegex(said.pop(), r"^1( \d{1,3}){9}\n$")
        self.assertEqual(said, set())
        self.refused([*flags, "--tokenizer", "gpt2"],
                     "error[no_tokenizer]: `gpt2` is no tokenizer that is here\n"
                     "  --> command line: --tokenizer gpt2\n"
                     "  fix: a folder with its tokenizer.json. Mortise does not download: "
                     "hf download OWNER/NAME tokenizer.json --local-dir gpt2\n"
                     "       --tokenizer byte\n")

    def test_what_is_no_run_directory(self):
        self.refused(
            ["sample", "nowhere"],
            "error[no_run]: nowhere is no run directory: it has no run.toml\n"
            "  fix: runs that are there: runs/small\n",
            code=65,
        )
        self.refused(["sample", "runs/smal", "--tokens", "3"],
                     "error[no_run]: runs/smal is no run directory: it has no run.toml\n"
                     "  fix: mortise sample runs/small --tokens 3\n", code=65)
        self.refused(
            ["sample"],
            "error[missing_word]: `mortise sample` needs a run directory\n  fix: mortise sample runs/latest\n",
        )
        self.refused(
            ["sample", "runs/small", "--tokens", "many"],
            "error[wrong_type]: --tokens is a whole number from 1 to 2147483647, this is `many`\n"
            "  fix: mortise sample --help\n",
        )
        for flag, values in (("--tokens", ("0", "0.9", "-1", "3000000000")), ("--top-k", ("1.7", "-1", "2e0")),
                             ("--seed", ("1.5", "-1", "1" + "0" * 30))):
            for value in values:
                result = self.mortise("sample", "runs/small", f"{flag}={value}")
                self.assertEqual((result.code, result.out), (64, ""), (flag, value, result))
                self.assertIn(f"error[wrong_type]: {flag} is a whole number from ", result.err)
        self.ok("sample", "runs/small", "--tokens", "1", "--seed", "5000000000")
        step = self.checkpoint(self.run_dir)
        weights = step / "model/model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-8])
        result = self.mortise("sample", "runs/small", "--tokens", "1")
        self.assertEqual(result.code, 65, result)
        self.assertIn("error[no_checkpoint]: no checkpoint of runs/small is what was saved\n", result.err)
        shutil.rmtree(step)
        self.refused(["sample", "runs/small"], "error[no_checkpoint]: runs/small has no checkpoint, and no process is "
                     "training it\n  fix: mortise resume runs/small\n", code=65)

    def test_a_run_made_before_there_was_a_cache_has_one(self):
        said = [line for line in (self.run_dir / "run.toml").read_text().splitlines()
                if line.split(" ")[0] not in ("cache", "top_p", "stop", "ignore_eos")]
        flags = ("--prompt", "1 2", "--tokens", "12")
        text = self.sample(*flags)
        (self.run_dir / "run.toml").write_text("\n".join(said) + "\n")
        self.assertEqual(self.sample(*flags), text)


LLAMA = """\
[model.llama]
layers = 2
heads = 4
kv_heads = 2
width = 32
inner = 48
context = 48
"""
GPT = "[model.gpt]\nlayers = 2\nheads = 2\nwidth = 32\ncontext = 48\n"


def manifest(model, more=""):
    start = TINY[:TINY.index("[model.gpt]")].replace("sequence_length = 16", "sequence_length = 40")
    return start + model + "[optimizer]\nlr = 1e-2\n[optimizer.adamw]\n" + more


class Cache(e2e.Case):
    """The text with kept keys and values is the text without. Nothing on stderr but that a prompt is longer than the
    window: the cache was not given up."""

    def both(self, run, *flags):
        kept, whole = (self.ok("sample", run, *flags, "--set", f"sample.text.cache={on}") for on in ("true", "false"))
        for line in (kept.err + whole.err).splitlines():
            self.assertRegex(line, r"^sample.text: the prompt has \d+ tokens; the model sees the last \d+ of them ")
        self.assertEqual(kept.out, whole.out, flags)
        return kept.out

    def check_run(self, model, more=""):
        self.train("kept", manifest(model, more), "--set", "run.length=20")
        for flags in (("--temperature", "0"), ("--seed", "1", "--temperature", "1", "--top-k", "0"),
                      ("--seed", "2", "--top-p", "0.8")):
            # Three texts, of which the first begins with one token, and all go on beyond the window of 40.
            text = self.both("runs/kept", "--tokens", "60", "--prompt", "1", "--prompt", "40 41", "--prompt",
                             " ".join(str(n) for n in range(20)), *flags)
            self.assertGreater(len(text), 3 * 60)

    def test_of_gpt(self):
        self.check_run(GPT)

    def test_of_llama_with_shared_heads(self):
        self.check_run(LLAMA)

    def test_over_attention_by_hand(self):
        self.check_run(LLAMA, "[attention.math]\n")

    def test_over_flash_attention(self):
        self.check_run(GPT, "[attention.flash]\n")

    def test_in_bf16_where_the_model_is_sure(self):
        # In bf16 a token may have another text where two stand within rounding of each other; where the model is sure
        # none does. That the logits agree is checked by the plugin, which would say so.
        self.file("notes.txt", "abcdefgh " * 200)
        for name, table in (("mixed", "[precision.bf16]\n"), ("half", "[precision.half]\n")):
            run = f"runs/{name}"
            optimizer = "[optimizer.adamw]" if name == "mixed" else "[optimizer.adamw_anyprecision]"
            self.train(name, manifest(LLAMA, table).replace("[optimizer.adamw]", optimizer), "--set", "run.length=60")
            text = self.both(run, "--tokens", "60", "--temperature", "0", "--prompt", "abc")
            self.assertIn("abcdefgh abcdefgh ", text)
            drawn = [self.ok("sample", run, "--tokens", "60", "--temperature", "2", "--seed", "4") for _ in range(2)]
            self.assertEqual(drawn[0].out, drawn[1].out)
            self.assertEqual(drawn[0].err, "")

    def test_while_training(self):
        texts = []
        for on in ("true", "false"):
            more = f"[activation.checkpointing]\n[sample.text]\ncache = {on}\nprompts = [\"1 2\"]\ntokens = 30\n"
            run = self.train(f"run_{on}", manifest(GPT, more), "--set", "run.length=8")
            texts += [record["text"] for record in self.records(run, "sample")]
        self.assertEqual(len(texts), 2)
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(self.weights(self.dir / "runs/run_true"), self.weights(self.dir / "runs/run_false"))

    def test_is_given_up_aloud_over_a_provider_that_wants_as_many_queries_as_keys(self):
        toml = (e2e.PLUGINS / "attention.math.toml").read_text().replace("attention.math", "attention.as_many")
        folder = self.file("more/attention.as_many/plugin.toml", toml).parent
        self.compiled(folder, e2e.SOURCE / "tests/e2e/fixtures/as_many.cpp")
        more = ("--plugin-path", "more")
        self.train("kept", manifest(GPT, '[attention.as_many]\nwhere = "h.*"\n'), *more)
        flags = ("sample", "runs/kept", *more, "--prompt", "1 2", "--prompt", "3", "--tokens", "9")
        kept, whole = self.ok(*flags), self.ok(*flags, "--set", "sample.text.cache=false")
        self.assertEqual(kept.out, whole.out)
        self.assertEqual(whole.err, "")
        self.assertEqual(kept.err, "sample.text: each token computes the whole text again: h.0.attn.attention cannot "
                         "have fewer queries than keys; with [sample.text] cache = false nobody says so\n")

    def test_training_and_evaluation_have_no_wrapper(self):
        self.file("run.toml", manifest(GPT, "[sample.text]\n"))
        self.assertRegex(self.ok("plan").out, r"attention +sample\.text +in sample +run\.toml")


if __name__ == "__main__":
    e2e.main()
