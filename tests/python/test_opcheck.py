"""`ulpscope diff` and opcheck(): that their numbers are those of numpy in FP64, and what they say of arrays and functions that do not fit."""

import contextlib
import io
import json
import math
import os
import re
import subprocess
import tempfile
import unittest

from recorded import NEEDS_TORCH, torch

import ulpscope
from ulpscope._library import Error, find_program
from ulpscope.opcheck import main

if torch is not None:
    import numpy

try:
    PROGRAM = find_program()
except Error:
    PROGRAM = None
NOT_BUILT = "the program ulpscope is not built"

# Exponent of the smallest normal number, fraction bits and largest number of formats.
LIMITS = {"fp16": (-14, 10, 65504.0), "bf16": (-126, 7, 2.0**127 * (2 - 2.0**-7)), "fp32": (-126, 23, float(2.0**127 * (2 - 2.0**-23))),
          "e4m3": (-6, 3, 448.0), "e5m2": (-14, 2, 57344.0)}


def ulp(x, name):
    smallest, fraction_bits, largest = LIMITS[name]
    exponent = math.frexp(min(abs(x), largest))[1] - 1 if x else smallest
    return 2.0 ** (max(exponent, smallest) - fraction_bits)


def diff(*arguments):
    return subprocess.run([PROGRAM, "diff", *arguments], capture_output=True, text=True, check=False)


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def save(self, name, array):
        path = os.path.join(self.folder, name + ".npy")
        numpy.save(path, array)
        return path


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(PROGRAM is None, NOT_BUILT)
class Diff(InFolder):
    def found(self, *arguments):
        done = diff(*arguments, "--json", "--limit", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        return report, {table["name"]: [row["values"] for row in table["rows"]] for table in report["tables"]}

    def assert_errors(self, row, computed, against, name):
        """The row is of these errors, each computed by itself."""
        errors = numpy.abs(computed - against)
        ulps = numpy.array([error / ulp(x, name) for error, x in zip(errors, against)])
        norm, signal = math.sqrt(math.fsum(errors**2)), math.sqrt(math.fsum(against**2))
        count = len(errors)
        bound = count * 2.0**-52  # of sums of `count` FP64 numbers above 0
        self.assertAlmostEqual(row["relative_error"], norm / signal, delta=bound * norm / signal)
        self.assertEqual(row["largest_ulps"], ulps.max())
        self.assertAlmostEqual(row["mean_ulps"], math.fsum(ulps) / count, delta=bound * ulps.mean())
        return norm

    def test_of_each_format(self):
        """Errors of two roundings of the same numbers: to nearest, and towards zero."""
        generator = torch.Generator().manual_seed(1)
        types = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
        for name, dtype in types.items():
            with self.subTest(name):
                spread = torch.randn(600, generator=generator, dtype=torch.float64)
                exact = spread * 2.0 ** torch.randint(-8, 3, (600,), generator=generator)
                rounded = exact.to(torch.float32).to(dtype)
                # Towards zero: where rounding went away from it, the number before.
                size = rounded.element_size()
                bits = rounded.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]).clone()
                away = rounded.double().abs() > exact.abs()
                bits[away] -= 1
                cut = bits.view(dtype)
                self.assertTrue(bool((cut.double().abs() <= exact.abs()).all()))
                arrays = [self.save("cut", bits.numpy().view(f"u{size}") if size < 4 and name != "fp16" else cut.numpy()),
                          self.save("rounded", rounded.view(bits.dtype).numpy().view(f"u{size}") if size < 4 and name != "fp16" else rounded.numpy()),
                          self.save("exact", exact.numpy())]
                report, tables = self.found(arrays[0], arrays[1], "--exact", arrays[2], "--format", name)
                wide, near, zero = exact.numpy(), rounded.double().numpy(), cut.double().numpy()
                noise = self.assert_errors(tables["errors"][0], zero, wide, name)
                reference_noise = self.assert_errors(tables["errors"][1], near, wide, name)
                half = math.sqrt(math.fsum((ulp(x, name) / 2) ** 2 for x in wide))
                self.assertEqual(report["format"], name)
                self.assertAlmostEqual(report["error_ratio"], noise / reference_noise, delta=1e-12)
                self.assertAlmostEqual(report["judged_ratio"], noise / max(half, reference_noise), delta=1e-12)
                self.assertEqual(report["equal"], int((zero == near).sum()))
                self.assertEqual(sum(row["candidate"] for row in tables["ulps"]), 600)
                halves = sum(abs(a - b) / ulp(b, name) <= 0.5 for a, b in zip(zero, wide))
                self.assertEqual(sum(row["candidate"] for row in tables["ulps"][:2]), halves)
                # Rounding once is what the reference did, but for that through FP32.
                self.assertAlmostEqual(tables["errors"][1]["over_rounded"], 1, delta=1e-3)
                worst = max(range(600), key=lambda i: (abs(zero[i] - wide[i]) / ulp(wide[i], name), -i))
                self.assertEqual(tables["worst"][0]["element"], f"[{worst}]")

    def test_nan_and_infinities_are_counted_apart(self):
        nan, inf = math.nan, math.inf
        exact = numpy.array([[1.0, 2.0, 70000.0, nan], [3.0, 1e-6, -70000.0, 5.0]])
        candidate = numpy.array([[1.0, nan, inf, nan], [2.998, 1e-6, 65504.0, -inf]], dtype="f2")
        reference = numpy.array([[1.0, 2.0, inf, nan], [3.002, 1e-6, -inf, 5.0]], dtype="f2")
        report, tables = self.found(self.save("a", candidate), self.save("b", reference), "--exact", self.save("c", exact))
        row, other, rounded = tables["errors"]
        self.assertEqual((row["nan"], row["infinite"], row["subnormal"], row["mismatched"]), (2, 2, 1, 3))
        self.assertEqual((other["nan"], other["infinite"], other["subnormal"], other["mismatched"]), (1, 2, 1, 0))
        self.assertEqual((rounded["nan"], rounded["infinite"]), (1, 2))
        self.assertEqual(report["made_nonfinite"], 2)
        self.assertEqual(report["equal"], 4)
        finite = [(0, 0), (1, 0), (1, 1)]
        for side, errors in ((row, candidate), (other, reference)):
            self.assert_errors(side, numpy.array([float(errors[at]) for at in finite]), numpy.array([exact[at] for at in finite]), "fp16")
        self.assertEqual([each["element"] for each in tables["worst"][:3]], ["[0, 1]", "[1, 2]", "[1, 3]"])

    def test_without_exact_numbers(self):
        a, b = numpy.array([1.0, 2.0, 3.5, 4.0], dtype=">f4"), numpy.array([1.0, 2.0, 3.0, 4.0], dtype="f8")
        report, tables = self.found(self.save("a", a), self.save("b", b))
        self.assertEqual((report["format"], report["equal"], report["shape"]), ("fp32", 3, "4"))
        self.assertNotIn("error_ratio", report)
        self.assertEqual(tables["errors"][0]["largest_ulps"], 0.5 / 2.0**-22)
        self.assertEqual([row["element"] for row in tables["worst"]], ["[2]"])
        self.assertIn("--format bf16", diff(self.save("a", a), self.save("b", b)).stdout)
        single = self.save("single", numpy.float32(2))
        self.assertEqual(self.found(single, single)[0]["shape"], "a single value")
        nothing = self.save("nothing", numpy.zeros((0, 3), dtype="f2"))
        self.assertEqual(self.found(nothing, nothing)[0]["elements"], 0)

    def test_gate(self):
        exact = self.save("exact", numpy.full(100, 1 + 2.0**-12))
        near, far = self.save("near", numpy.full(100, 1.0, dtype="f2")), self.save("far", numpy.full(100, 1 + 2.0**-10, dtype="f2"))
        wide = self.save("wide", numpy.full(100, 1 + 2.0**-12, dtype="f4"))
        broken = numpy.full(100, 1.0, dtype="f2")
        broken[7] = math.inf
        for candidate, reference, code in ((near, far, 0), (far, near, 1), (near, near, 0), (self.save("broken", broken), near, 1),
                                           (near, wide, 0), (far, wide, 1)):  # the last two: no error beside half an ulp
            done = diff(candidate, reference, "--exact", exact, "--format", "fp16", "--fail-above", "1.01")
            self.assertEqual(done.returncode, code, done.stdout)

    def test_what_does_not_fit(self):
        plain = self.save("plain", numpy.zeros((3, 4), dtype="f4"))
        refused = {
            (self.save("other", numpy.zeros((4, 3), dtype="f4")), plain): (2, "other.npy is 4 x 3, and .*plain.npy is 3 x 4: expected arrays of one shape"),
            (self.save("whole", numpy.zeros((3, 4), dtype="i8")), plain): (3, "whole.npy: expected float16, float32 or float64, found the type '<i8'"),
            (self.save("bytes", numpy.zeros((3, 4), dtype="V2")), plain): (3, "found the type '.V2'; --format bf16 reads it as encodings"),
            (self.save("complex", numpy.zeros((3, 4), dtype="c8")), plain): (3, "found the type '<c8'"),
            (self.save("fortran", numpy.zeros((3, 4), dtype="f4", order="F")), plain): (3, "in Fortran order"),
            (os.path.join(self.folder, "missing.npy"), plain): (3, "missing.npy"),
            (plain, plain, "--fail-above", "2"): (2, "--fail-above compares errors, which --exact EXACT is needed for"),
            (plain, plain, "--exact", plain, "--fail-above", "0"): (2, "--fail-above: expected a number above 0, found '0'"),
            (plain, plain, "--exact", plain, "--fail-above", "nan"): (2, "--fail-above: expected a number above 0, found 'nan'"),
            (plain, plain, "--exact", plain): (2, "plain.npy has numbers of fp32: expected exact ones of a wider type than fp32"),
            (plain, plain, "--format", "bf16,fp16"): (2, "--format takes one number format, got bf16 and 'fp16'"),
            (plain, plain, "--format", "fp17"): (2, "fp17"),
        }
        with open(plain, "rb") as file:
            whole = file.read()
        for name, data in {"cut": whole[:-1], "header": whole[:20], "empty": b"", "text": b"no array"}.items():
            path = os.path.join(self.folder, name + ".npy")
            with open(path, "wb") as file:
                file.write(data)
            refused[path, plain] = (3, f"{name}.npy: ")
        for arguments, (code, line) in refused.items():
            with self.subTest(line):
                done = diff(*arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, line)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


def product(x, w):
    return x @ w


def in_sixteen_bits(x, w):
    """Partial sums of 16 terms are added up in the inputs' type."""
    total = x[:, :16] @ w[:16]
    for k in range(16, x.shape[1], 16):
        total = total + x[:, k:k + 16] @ w[k:k + 16]
    return total


def changes_input(x, w):
    result = x @ w
    x.zero_()
    return result


def fails(x, w):
    raise RuntimeError("no kernel for this shape")


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(PROGRAM is None, NOT_BUILT)
class OpCheck(InFolder):
    def setUp(self):
        super().setUp()
        torch.manual_seed(2)
        self.inputs = [torch.randn(24, 256).bfloat16(), torch.randn(256, 12).bfloat16()]

    def test_ratios_are_those_of_runs_by_hand(self):
        made = ulpscope.opcheck(in_sixteen_bits, product, self.inputs)
        self.assertEqual([each["name"] for each in made.tensors], ["output 0", "gradient of input 0", "gradient of input 1"])
        start = torch.randn(24, 12, generator=torch.Generator().manual_seed(0)).bfloat16()
        results = []
        for function, wide in ((in_sixteen_bits, False), (product, False), (product, True)):
            inputs = [(each.double() if wide else each.clone()).requires_grad_() for each in self.inputs]
            output = function(*inputs)
            output.backward(start.to(output.dtype))
            results.append([each.detach().double() for each in (output, *(each.grad for each in inputs))])
        for each, ours, theirs, exact in zip(made.tensors, *results):
            expected = float((ours - exact).norm() / (theirs - exact).norm())
            self.assertAlmostEqual(each["error_ratio"], expected, delta=1e-9 * expected)
            self.assertEqual((each["format"], each["differs"], each["made_nonfinite"]), ("bf16", 0, 0))
        self.assertGreater(made.tensors[0]["error_ratio"], 2)
        with self.assertRaisesRegex(AssertionError, "(?s)worse than the reference:\n  output 0 is off by"):
            made.assert_no_worse()
        made.assert_no_worse(most=1000)
        self.assertTrue(made.text.startswith("WORSE: output 0"))

    def test_equal_and_better_ones_are_no_worse(self):
        for candidate, reference in ((product, product), (product, in_sixteen_bits)):
            made = ulpscope.opcheck(candidate, reference, self.inputs)
            made.assert_no_worse()
            self.assertEqual(made.worse(), [])
            self.assertTrue(made.text.startswith("OK: "))

    def test_correct_rounding_is_no_worse_than_luck(self):
        """The reference happens to be exact, and the candidate is off by less than half an ulp."""
        made = ulpscope.opcheck(lambda x: (x.double() * (1 + 2.0**-9 / 3)).bfloat16(), lambda x: x * (1 + 2.0**-9 / 3),
                                [torch.ones(1).bfloat16()], grad=False)
        made.assert_no_worse()

    def test_what_a_candidate_does_wrong(self):
        counter = []

        def differs(x, w):
            counter.append(1)
            result = x @ w
            result[0, :len(counter)] = 0
            return result

        for candidate, line in (
                (fails, "The candidate raises RuntimeError: no kernel for this shape"),
                (changes_input, "The candidate changes input 0."),
                (lambda x, w: (x @ w)[:3], r"Output 0 is \[3, 12\] of bfloat16, and the reference's \[24, 12\] of bfloat16."),
                (lambda x, w: (x @ w).float(), r"Output 0 is \[24, 12\] of float32, and the reference's \[24, 12\] of bfloat16."),
                (lambda x, w: (x @ w, x), "The candidate returns 2 tensors, and the reference 1."),
                (lambda x, w: (x @ w.detach()), "Gradient of input 1: the candidate gives none."),
                (lambda x, w: torch.full_like(x @ w, math.nan), "output 0 has NaN or Inf in 288 of 288 elements where the reference has none."),
        ):
            with self.subTest(line):
                made = ulpscope.opcheck(candidate, product, self.inputs)
                self.assertTrue(any(re.fullmatch(line, said) for said in made.worse()), made.worse())
                self.assertRaises(AssertionError, made.assert_no_worse)
        made = ulpscope.opcheck(differs, product, self.inputs, grad=False)
        self.assertEqual(made.tensors[0]["differs"], 1)
        self.assertIn("output 0: 1 of 288 elements have other bits when the candidate runs again.", made.text)

    def test_inputs_stay_as_they_are(self):
        before = [each.clone() for each in self.inputs]
        ulpscope.opcheck(changes_input, product, self.inputs)
        for each, was in zip(self.inputs, before):
            self.assertTrue(torch.equal(each, was))
            self.assertFalse(each.requires_grad)

    def test_wrong_arguments(self):
        for arguments, error, line in (
                ((1, product, self.inputs), TypeError, "candidate is a int, and no function"),
                ((product, None, self.inputs), TypeError, "reference is a NoneType, and no function"),
                ((product, product, self.inputs[0]), TypeError, "inputs are a Tensor: expected a list"),
                ((product, product, [1, 2]), ValueError, "no tensor of floating-point numbers"),
                ((product, product, [torch.ones(2, dtype=torch.float64)]), ValueError, "input 0 is float64: nothing wider"),
                ((product, lambda x, w: x.argmax(), self.inputs), ValueError, "output 0 of the reference is int64"),
                ((product, lambda x, w: None, self.inputs), ValueError, "returned no tensor"),
                ((product, lambda x, w: (x @ w).float(), self.inputs), ValueError, "other outputs, or types, where its inputs are FP64"),
                ((product, fails, self.inputs), RuntimeError, "no kernel for this shape")):
            with self.subTest(line), self.assertRaisesRegex(error, line):
                ulpscope.opcheck(*arguments)

    def command(self, *arguments):
        """The exit code of the command, and what it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
            code = main(arguments)
        return code, out.getvalue(), error.getvalue()

    def test_command(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)
        with open("kernels_of_test.py", "w", encoding="utf-8") as file:
            file.write("def worse(x, w):\n    total = x[:, :16] @ w[:16]\n    for k in range(16, x.shape[1], 16):\n"
                       "        total = total + x[:, k:k + 16] @ w[k:k + 16]\n    return total\n\n\nnumber = 3\n")
        random = ("--shapes", "24x256,256x12", "--dtype", "bfloat16")
        path = os.path.join(self.folder, "inputs.pt")
        torch.save(self.inputs, path)
        torch.save({"x": 1}, os.path.join(self.folder, "dict.pt"))
        for arguments, code, line in (
                (("torch:matmul", "--reference", "torch:matmul", *random), 0, "OK: the candidate is no worse than the reference."),
                (("kernels_of_test:worse", "--reference", "torch:matmul", *random), 1, "WORSE: output 0 is off by"),
                (("kernels_of_test:worse", "--reference", "torch:matmul", "--inputs", path, "--no-grad"), 1, "WORSE: output 0 is off by"),
                (("kernels_of_test:worse", "--reference", "torch:matmul", *random, "--most", "1000"), 0, "OK: "),
                (("kernels_of_test:worse", "--reference", "torch:matmul"), 2, "one of the arguments --inputs --shapes is required"),
                (("kernels_of_test:worse", "--reference", "torch:matmul", *random, "--most", "0"), 2, "--most 0.0: expected a number above 0"),
                (("kernels_of_test:missing", "--reference", "torch:matmul", *random), 4, "kernels_of_test:missing: module 'kernels_of_test' has no attribute 'missing'"),
                (("kernels_of_test:number", "--reference", "torch:matmul", *random), 4, "kernels_of_test:number is no function"),
                (("kernels_of_test", "--reference", "torch:matmul", *random), 4, "kernels_of_test: expected MODULE:FUNCTION"),
                (("kernels_of_test:worse", "--reference", "torch:matmul", "--shapes", "3xa"), 4, "--shapes: expected shapes as 64x512,512x128, found '3xa'"),
                (("kernels_of_test:worse", "--reference", "torch:matmul", "--inputs", "nothing.pt"), 3, "nothing.pt: No such file or directory"),
                (("kernels_of_test:worse", "--reference", "torch:matmul", "--inputs", "dict.pt"), 3, "dict.pt holds a dict: expected a list"),
        ):
            with self.subTest(line):
                ended, out, error = self.command(*arguments)
                self.assertEqual(ended, code, error)
                self.assertIn(line, out if code < 2 else error)
        made = json.loads(self.command("kernels_of_test:worse", "--reference", "torch:matmul", *random, "--json")[1])
        self.assertEqual([each["name"] for each in made["tensors"]], ["output 0", "gradient of input 0", "gradient of input 1"])
        self.assertEqual(len(made["worse"]), 1)


if __name__ == "__main__":
    unittest.main()
