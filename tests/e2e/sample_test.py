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
        text = json.loads(self.sample(*flags, "--prompt", "1 2 3", "--json"))["text"]
        self.assertEqual(text, self.sample(*flags, "--prompt", "1 2 3")[:-1])

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


if __name__ == "__main__":
    e2e.main()
