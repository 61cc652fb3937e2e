"""The example.toml of every plugin runs as it is, or says in its first line why it cannot."""
import re

import e2e

EXAMPLES = sorted((e2e.SOURCE / "plugins").glob("*/*/example.toml"))
CANNOT = "# Cannot run as it is: "


class Examples(e2e.Case):
    def test_every_plugin_has_one(self):
        plugins = {path.parent for path in (e2e.SOURCE / "plugins").glob("*/*/plugin.toml")}
        self.assertEqual(plugins, {path.parent for path in EXAMPLES})

    def test_those_that_can_run(self):
        for path in EXAMPLES:
            text = path.read_text()
            plugin = ".".join(path.parts[-3:-1])
            with self.subTest(plugin):
                self.assertRegex(text, rf"(?m)^\[{re.escape(plugin)}\]", "it shows its own plugin")
                if text.startswith(CANNOT):
                    self.assertNotEqual(self.mortise("plan", path).code, 0, "it can run")
                else:
                    result = self.ok("train", path, "--set", "run.length=1")
                    self.assertEqual(result.err, "", path)


if __name__ == "__main__":
    e2e.main()
