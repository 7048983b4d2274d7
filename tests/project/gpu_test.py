"""scripts/gpu.py where there is no GPU: the folder that it packs runs on a device that is emulated, and tells what failed."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop())


def gpu_script():
    """scripts/gpu.py as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import gpu
    return gpu


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        packed = tempfile.TemporaryDirectory()
        cls.addClassCleanup(packed.cleanup)
        cls.packed = pathlib.Path(packed.name) / "packed"
        subprocess.run([sys.executable, ROOT / "scripts/gpu.py", "pack", cls.packed, "--build", BUILD, "--limit", "0"], check=True)

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name) / "packed"
        self.output = pathlib.Path(self.scratch.name) / "gpu.json"
        shutil.copytree(self.packed, self.folder)

    def call(self, *command, code):
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def refused(self, *command, code):
        """The one line that it says."""
        done = self.call(*command, code=code)
        self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        return done.stderr

    def run_on(self, device, code):
        return self.call(self.folder / "gpu.py", "run", "--device", device, "--tiny", "--presets", "mlp", "--sums", "100", "--output",
                         self.output, code=code)

    def test_presets_on_an_emulated_device_are_those_of_the_cpu(self):
        done = self.run_on("emulated:a100", 0)
        told = json.loads(self.output.read_text())
        self.assertEqual(told["gpu"]["gpu"], "a100")
        self.assertTrue(told["probe"]["explained"])
        self.assertEqual([(row["preset"], row["precision"], row["calls"], row["predicted"]) for row in told["products"]],
                         [("mlp", "fp16", 8, 8), ("mlp", "bf16", 8, 8)])
        self.assertEqual([row["precision"] for row in told["presets"]], ["fp32", "fp16", "bf16"])
        for row in told["presets"]:
            self.assertTrue(row["losses_equal"] and row["weights_equal"], row)
            self.assertIsNone(row["first_different_output"])
        self.assertEqual(done.stdout.count("| equal | equal | none |"), 3)

    def test_parts_are_run_as_they_are_asked_for(self):
        done = self.call(self.folder / "gpu.py", "run", "--device", "emulated:a100", "--tiny", "--parts", "measured", "probe", "--sums",
                         "100", "--output", self.output, code=0)
        told = json.loads(self.output.read_text())
        self.assertEqual(list(told)[3:], ["gpu", "measured", "probe"])
        self.assertIn("| tests of devices | not run: not asked for |", done.stdout)
        self.assertNotIn("the time was over", done.stdout)
        told = self.call(self.folder / "gpu.py", "run", "--output", self.output, "--parts", "probe", "probe", code=2)
        self.assertIn("--parts: a part is named twice", told.stderr)

    def test_a_part_that_was_not_done_is_no_success(self):
        gpu = gpu_script()
        self.assertFalse(gpu.is_good("long_probe", {"not_run": "the time was over"}))
        self.assertFalse(gpu.is_good("products", [{"predicted": 1}, {"not_run": "lost"}]))
        self.assertFalse(gpu.is_good("steps", [{"name": "gpt_large", "error": "not done"}]))
        self.assertFalse(gpu.is_good("presets", [{"losses_equal": True, "weights_equal": False}]))
        self.assertTrue(gpu.is_good("presets", [{"losses_equal": True, "weights_equal": True}]))
        self.assertFalse(gpu.is_good("probe", {"explained": False}))

    def test_steps_are_rows_by_their_name(self):
        times = [{"name": "ours/conv_sine_512/fp32/off", "workload": "conv_sine", "precision": "fp32", "record": "off", "ms": 30.0},
                 {"name": "torch/conv_sine_512/fp32", "ms": 10.0}]
        self.assertEqual(gpu_script().rows_of_steps(times),
                         ["| step of conv_sine_512 in fp32, recording off | 30.000 ms, 3.00 of PyTorch's |"])

    def test_what_workloads_beside_pytorch_read_is_packed(self):
        listed = "import compare_torch; print(*(words[0] for words in compare_torch.EXPERIMENTS.values()))"
        done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, cwd=self.folder, check=True)
        files = [pathlib.Path(word) for word in done.stdout.split() if "/" in word]
        self.assertEqual([file.parent for file in files], [self.folder])
        self.assertTrue(files[0].exists())

    def test_presets_whose_data_a_machine_lacks_train_on_others(self):
        script = self.folder / "gpu.py"
        text = script.read_text()
        for place in ("/usr/share/datasets/fashion-mnist", "/usr/share/common-licenses"):
            self.assertIn(place, text)
            text = text.replace(place, place + "-of-nowhere")
        script.write_text(text)
        self.call(script, "run", "--device", "emulated", "--tiny", "--presets", "autoencoder", "lstm_text", "--sums", "1", "--output",
                  self.output, code=0)
        for row in json.loads(self.output.read_text())["presets"]:
            self.assertNotIn("not_run", row)

    def test_a_run_that_fails_is_no_success(self):
        program = self.folder / "bin/ulpscope"
        program.rename(self.folder / "bin/whole")
        program.write_text('#!/bin/sh\ncase "$*" in *bf16*--device\\ emulated*) echo lost >&2; exit 4;; esac\nexec "$(dirname "$0")/whole" "$@"\n')
        program.chmod(0o755)
        self.run_on("emulated", 1)
        rows = json.loads(self.output.read_text())["presets"]
        self.assertEqual(["not_run" in row for row in rows], [False, False, True])
        self.assertEqual(rows[2]["not_run"], "device: lost")

    def test_a_suite_of_tests_that_dies_or_hangs_leaves_the_others_their_results(self):
        gpu = gpu_script()
        program = self.folder / "bin/cuda_tests"
        program.write_text("""#!/bin/sh
report=$(echo "$*" | sed -n 's/.*json://p')
case "$*" in
*list_tests*) printf 'Whole.\\n  One\\nDies.\\n  One\\nHangs/Wide.  # TypeParam = float\\n  One\\nCudaProbe.\\n  One\\n' ;;
*filter=Whole*json*) cat >"$report" <<'END'
{"testsuites": [{"testsuite": [{"classname": "Whole", "name": "One", "result": "COMPLETED"},
 {"classname": "Whole", "name": "Two", "result": "SKIPPED"},
 {"classname": "Whole", "name": "Three", "result": "COMPLETED", "failures": [{"failure": "expected 1, got 2"}]}]}]}
END
exit 1 ;;
*filter=Dies*) echo '[ RUN      ] Dies.One'; echo "lost, blocking: $CUDA_LAUNCH_BLOCKING" >&2; exit 134 ;;
*filter=Hangs*) echo '[ RUN      ] Hangs/Wide.One'; exec tail -f /dev/null ;;
esac
""")
        program.chmod(0o755)
        bench = gpu.Bench(self.folder, "cuda:0", 1)
        self.addCleanup(gpu.LIMITS.update, dict(gpu.LIMITS))
        gpu.LIMITS["tests"] = 2
        told = gpu.run_tests(bench)
        self.assertEqual((told["run"], told["skipped"]), (5, 1))
        self.assertEqual([(each["test"], each["text"]) for each in told["failed"]],
                         [("Whole.Three", "expected 1, got 2"), ("Dies.One", "exit code 134: lost, blocking:"),
                          ("Hangs/Wide.One", "not done after 2 seconds")])
        self.assertEqual(told["failed"][1]["alone"].splitlines()[-1], "lost, blocking: 1")

    def test_probes_that_die_are_no_success(self):
        gpu = gpu_script()
        program = self.folder / "bin/ulpscope"
        program.write_text('#!/bin/sh\ncase "$*" in *"--seed 1"*) echo lost >&2; exit 4 ;; *) echo "{}" ;; esac\n')
        told = gpu.probe(gpu.Bench(self.folder, "cuda:0", 1), 100, 2)
        self.assertEqual((told["explained"], told["sums"], told["lost"]), (False, 50, ["lost"]))
        self.assertEqual(gpu.row_of_probe("units", told), "| units | not explained by the rows of the GPU, 50 random sums for each "
                                                          "instruction; 1 processes lost: lost |")

    def test_the_table_of_a_run_that_was_killed_has_what_there_is(self):
        kept = {"date": "2026-11-26", "device": "cuda:0", "gpu": {"description": "a GPU"}}
        self.output.write_text(json.dumps(kept))
        done = self.call(self.folder / "gpu.py", "table", self.output, code=0)
        self.assertIn("| tests of devices | not run: the time was over |", done.stdout)

    def test_a_table_of_what_is_no_result_is_refused_in_one_line(self):
        for text in ('{"date": 1, "gpu": 3, "device": "x"}', "[]", "{}", "", "[" * 10**5, '{"date": 1, "gpu": {}, "device": 1, "tests": 2}'):
            self.output.write_text(text)
            self.assertIn("is no whole result of a run", self.refused(self.folder / "gpu.py", "table", self.output, code=3))
        self.assertIn("is not a regular file", self.refused(self.folder / "gpu.py", "table", self.folder, code=3))
        self.assertIn("No such file", self.refused(self.folder / "gpu.py", "table", self.folder / "absent", code=3))

    def test_what_is_no_regular_file_is_not_replaced_and_nothing_runs(self):
        program, ran = self.folder / "bin/ulpscope", self.folder / "ran"
        program.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
        self.output.mkdir()
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for output in (self.output, pipe):
            told = self.refused(self.folder / "gpu.py", "run", "--device", "emulated", "--output", output, code=2)
            self.assertEqual(told, f"gpu.py: '{output}' is not a regular file, and is not replaced\n")
            self.assertFalse(output.with_name(output.name + ".new").exists())
        self.assertTrue(pipe.is_fifo())
        self.assertFalse(ran.exists())

    def test_a_folder_that_was_not_packed_is_told(self):
        for verb, program in ((("run", "--output", self.output), "ulpscope"), (("sanitize",), "cuda_tests")):
            told = self.refused(self.folder / "gpu.py", *verb, self.folder / "lib", code=2)
            self.assertEqual(told, f"gpu.py: no program at '{self.folder}/lib/bin/{program}': expected a folder that gpu.py pack made\n")

    def test_what_cannot_be_packed_is_a_usage_error(self):
        told = self.refused(ROOT / "scripts/gpu.py", "pack", self.folder, "--build", BUILD, code=2)
        self.assertEqual(told, f"gpu.py: '{self.folder}' is not empty\n")
        told = self.refused(ROOT / "scripts/gpu.py", "pack", self.folder / "new", "--build", self.folder / "lib", code=2)
        self.assertIn(f"gpu.py: no program at '{self.folder}/lib/bin/ulpscope': expected a build", told)

    def test_numbers_say_what_was_expected(self):
        for option, wrong, expected in (("--minutes", ("-3", "0", "nan", "inf", "x"), "minutes, 0.1 or more"),
                                        ("--sums", ("x", "0", "1.5"), "a whole number, 1 or more")):
            for value in wrong:
                done = self.call(self.folder / "gpu.py", "run", "--output", self.output, option, value, code=2)
                self.assertIn(f"argument {option}: expected {expected}, got '{value}'\n", done.stderr)

    def test_a_device_that_there_cannot_be_is_a_usage_error(self):
        told = self.refused(self.folder / "gpu.py", "run", "--device", "emulated:A100", "--output", self.output, code=2)
        self.assertIn("gpu.py: ulpscope: device: expected one of", told)
        self.assertFalse(self.output.exists())

    def test_without_a_gpu_the_reason_is_told(self):
        done = self.run_on("cuda:99", 4)
        self.assertIn("cuda:99", done.stderr)
        self.assertIn("cuda:99", json.loads(self.output.read_text())["gpu"]["error"])


if __name__ == "__main__":
    unittest.main()
