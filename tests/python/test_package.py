"""The package without torch: reports, errors, and that importing it brings in nothing."""

import math
import os
import re
import stat
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock
from xml.etree import ElementTree

FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(FOLDER, "..", "..", "python")
sys.path.insert(0, PACKAGE)

import ulpscope  # noqa: E402

PROGRAM = """#!{python}
import json, sys
if sys.argv[1] == "export":
    print(json.dumps([{{"step": 0, "loss": 1.5, "gradient_norm": "-Infinity", "level": "stats"}}]))
elif sys.argv[2] == "missing.h5":
    print("ulpscope: 'missing.h5': no such file", file=sys.stderr)
    sys.exit(4)
elif "json" in sys.argv:
    print(json.dumps({{"verdict": "broken", "findings": [{{"code": "nonfinite"}}]}} if sys.argv[2] == "run.h5" else {{
        "verdict": sys.argv[2], "verdict_text": "<b>said</b> & done",
        "findings": [{{"code": "a.b", "severity": "error", "title": "<i>x</i>", "suggestion": "a < b"}}] * 10}}))
else:
    print("BROKEN: a < b")
"""


class Package(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = os.path.join(folder.name, "ulpscope")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(PROGRAM.format(python=sys.executable))
        os.chmod(self.program, stat.S_IRWXU)
        self.set("ULPSCOPE_PROGRAM", self.program)

    def set(self, name, value):
        before = os.environ.get(name)
        self.addCleanup(lambda: os.environ.pop(name, None) if before is None else os.environ.update({name: before}))
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    def test_report(self):
        report = ulpscope.report("run.h5")
        self.assertEqual((report.verdict, report.findings), ("broken", [{"code": "nonfinite"}]))
        self.assertEqual(str(report), "BROKEN: a < b\n")
        self.assertEqual(ulpscope.findings("run.h5"), [{"code": "nonfinite"}])
        self.assertEqual(ulpscope.load("run.h5").table("steps"),
                         [{"step": 0, "loss": 1.5, "gradient_norm": -math.inf, "level": "stats"}])

    def test_notebooks_show_the_verdict_the_findings_and_the_report(self):
        for verdict, label in (("ok", "OK"), ("warning", "WARNING"), ("broken", "BROKEN"), ("<new>", "&lt;new&gt;")):
            shown = ulpscope.report(verdict)._repr_html_()
            ElementTree.fromstring(shown)  # all is escaped and closed
            self.assertRegex(shown, rf'^<div><p><b style="[^"]*">{label}</b> &lt;b&gt;said&lt;/b&gt; &amp; done</p><ul>')
            plain = re.sub("<[^>]*>", "", re.sub("<(li|br|pre)[^>]*>", "\n", shown))
            self.assertEqual(plain.splitlines()[1:], ["error &lt;i&gt;x&lt;/i&gt;", "a &lt; b"] * 8 + [
                "2 more" + ulpscope.report(verdict).path.replace("<", "&lt;").replace(">", "&gt;"), "BROKEN: a &lt; b"])

    def test_pandas(self):
        trace = ulpscope.load("run.h5")
        pandas = types.ModuleType("pandas")
        pandas.DataFrame = lambda rows: ("frame", rows)
        with mock.patch.dict(sys.modules, pandas=pandas):
            self.assertEqual(trace.to_pandas("steps"), ("frame", trace.table("steps")))
        with mock.patch.dict(sys.modules, pandas=None):
            with self.assertRaisesRegex(ulpscope.Error, "^to_pandas needs pandas, which is not installed"):
                trace.to_pandas("steps")

    def test_errors_of_the_program_are_told(self):
        with self.assertRaisesRegex(ulpscope.Error, "^ulpscope: 'missing.h5': no such file$"):
            ulpscope.report("missing.h5")

    def test_missing_program(self):
        self.set("ULPSCOPE_PROGRAM", self.program + "2")
        with self.assertRaisesRegex(ulpscope.Error, "cannot be run: No such file"):
            ulpscope.report("run.h5")
        self.set("ULPSCOPE_PROGRAM", None)
        self.set("PATH", os.path.dirname(os.path.dirname(self.program)))
        with self.assertRaisesRegex(ulpscope.Error, "ULPSCOPE_PROGRAM"):
            ulpscope.report("run.h5")

    def test_importing_brings_no_torch(self):
        code = f"import sys; sys.path.insert(0, {PACKAGE!r}); import ulpscope; print('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout, "False\n")


if __name__ == "__main__":
    unittest.main()
