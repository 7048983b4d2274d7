"""The commands of SKILL.md run, and give what it says."""

import json
import os
import re
import struct
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = os.environ.get("ULPSCOPE_PROGRAM")


@unittest.skipIf(not PROGRAM, "ULPSCOPE_PROGRAM is not set")
class Skill(unittest.TestCase):
    def run_program(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, encoding="utf-8", check=False,
                              cwd=os.path.join(ROOT, "examples", "traces"))
        return done.returncode, done.stdout, done.stderr

    def array(self, name):
        """A file of numpy.save with three numbers, of FP64 where they are to be the exact ones."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, kind = os.path.join(folder.name, name), "d" if name == "c.npy" else "f"
        header = f"{{'descr': '<f{struct.calcsize(kind)}', 'fortran_order': False, 'shape': (3,), }}".ljust(117) + "\n"
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<3" + kind, 1, 2, 3))
        return path

    def test_commands(self):
        with open(os.path.join(ROOT, "SKILL.md"), encoding="utf-8") as file:
            text = file.read()
        rows = [row for row in text.splitlines() if row.startswith("| ")]
        commands = [command for row in rows for command in re.findall(r"`ulpscope ([^`]*)`", row)]
        verbs = {command.split()[0] for command in commands} - {"train"}
        self.assertEqual(verbs, {"report", "nan", "whatif", "scale", "updates", "compare", "export", "findings", "diff", "opcheck"})
        for command in commands:
            if command == "train":
                continue
            arguments = re.sub(r"\b\w+\.h5\b", "nan_at_step_9.h5", command).split()
            arguments = [self.array(each) if each.endswith(".npy") else each for each in arguments]
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
