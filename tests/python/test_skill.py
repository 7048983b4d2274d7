"""The commands of SKILL.md run, and give what it says."""

import json
import os
import re
import subprocess
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = os.environ.get("ULPSCOPE_PROGRAM")


@unittest.skipIf(not PROGRAM, "ULPSCOPE_PROGRAM is not set")
class Skill(unittest.TestCase):
    def run_program(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, encoding="utf-8", check=False,
                              cwd=os.path.join(ROOT, "examples", "traces"))
        return done.returncode, done.stdout, done.stderr

    def test_commands(self):
        with open(os.path.join(ROOT, "SKILL.md"), encoding="utf-8") as file:
            text = file.read()
        rows = [row for row in text.splitlines() if row.startswith("| ")]
        commands = [command for row in rows for command in re.findall(r"`ulpscope ([^`]*)`", row)]
        verbs = {command.split()[0] for command in commands} - {"train"}
        self.assertEqual(verbs, {"report", "nan", "whatif", "scale", "updates", "compare", "export", "findings"})
        for command in commands:
            if command == "train":
                continue
            arguments = re.sub(r"\b\w+\.h5\b", "nan_at_step_9.h5", command).split()
            arguments += ["--no-trials"] if arguments[0] == "nan" else []
            with self.subTest(command):
                code, out, err = self.run_program(*arguments)
                self.assertEqual((code, err), (0, ""))
                if "--json" in arguments:
                    data = json.loads(out, parse_constant=lambda name: self.fail(f"{name} is no JSON"))
                    self.assertTrue(data)

    def test_what_is_said_of_reports(self):
        report = json.loads(self.run_program("report", "nan_at_step_9.h5", "--json")[1])
        self.assertEqual(report["verdict"], "broken")
        self.assertTrue(report["verdict_text"] and report["checked"])
        self.assertLessEqual({"code", "severity", "title", "module", "op"}, set(report["causes"][0]))
        self.assertLessEqual({"suggestion", "changes"}, set(report["findings"][0]))

    def test_exit_codes(self):
        for code, arguments in ((0, ("report", "nan_at_step_9.h5")), (1, ("report", "nan_at_step_9.h5", "--fail-on", "warning")),
                                (1, ("report", "nan_at_step_9.h5", "--fail-on", "error")), (2, ("report", "--nope")), (3, ("report", "none.h5"))):
            got, _, err = self.run_program(*arguments)
            self.assertEqual((got, len(err.splitlines())), (code, int(code > 1)))


if __name__ == "__main__":
    unittest.main()
