"""profile.calls: where the time goes, and what it costs where it is off."""
import re

import e2e
from e2e import TINY


class Profile(e2e.Case):
    def test_says_where_the_time_went_and_changes_no_bit(self):
        plain = self.train("plain")
        watched = self.train("watched", TINY + "[profile.calls]\n")
        self.assertEqual(self.weights(watched), self.weights(plain))
        self.assertFalse((plain / "profile.txt").exists())
        table = (watched / "profile.txt").read_text()
        for row in (r"(?m)^linear  operators\.aten  train +\d+ ", r"(?m)^-  backward  core  train +\d+ ",
                    r"(?m)^-  load  core  train +\d+ ",
                    r"(?m)^h\.0\.attn\.attention  attention  attention\.\w+  train "):
            self.assertRegex(table, row)
        whole = table[:table.index("\n\n")]
        shares = [float(share) for share in re.findall(r"([\d.]+)%", whole)]
        self.assertAlmostEqual(sum(shares), 100, delta=0.5)
        self.assertEqual(shares, sorted(shares, reverse=True))
        end = self.records(watched, "end")[0]
        self.assertRegex(end["profile"], r"^\w+ \d+%(, \w+ \d+%)+$")
        due = [step for step in self.records(watched, "step") if "step_ms" in step]
        self.assertTrue(due)
        for step in due:
            self.assertLessEqual(step["forward_ms"] + step["backward_ms"], step["step_ms"])
            self.assertLessEqual(step["gradients_ms"], step["step_ms"])

    def test_is_one_row_of_the_plan_and_one_line_at_the_end(self):
        self.file("run.toml", TINY + "[profile.calls]\n")
        self.assertRegex(self.ok("plan").out, r"(?m)^  every call +profile\.calls ")
        self.assertRegex(self.ok("train", "run.toml").out, r"(?m)^profile \w+ \d+%, ")

    def test_only_where_its_table_says(self):
        run = self.train("some", TINY + '[profile.calls]\nwhere = "h.0.mlp*"\nmodes = ["train"]\n')
        layers = (run / "profile.txt").read_text().split("\n\n")[1]
        paths = {line.split()[0] for line in layers.splitlines()[1:]}
        self.assertEqual({path for path in paths if path != "-"}, {"h.0.mlp", "h.0.mlp.c_fc", "h.0.mlp.c_proj"})

    def test_cannot_be_recorded(self):
        self.file("more/step.graph/plugin.toml",
                  '[plugin]\nid = "step.graph"\nversion = "0.1.0"\nsummary = "Records"\nstatus = "alpha"\nabi = "0.2"\n'
                  '[points]\nwraps = [{ point = "step", band = "capture" }]\n[capabilities]\ndevices = ["cuda"]\n')
        self.file("run.toml", TINY + "[profile.calls]\n[step.graph]\n")
        refused = self.mortise("plan", "--static", "--plugin-path", "more")
        self.assertNotEqual(refused.code, 0)
        self.assertIn("error[wrong_device]: step.graph works on cuda, this run on device.cpu", refused.err)
        self.assertIn("error[not_recordable]: step.graph records `step`, and profile.calls wraps every call, "
                      "and hears of none that is replayed", refused.err)


if __name__ == "__main__":
    e2e.main()
