"""How an element that became NaN or Inf came about, as the trace has it, against the tensors themselves."""

import csv
import io
import os
import subprocess
import tempfile
import unittest

from recorded import NEEDS_TORCH, torch

if torch is not None:
    import ulpscope


def captured(work):
    """The rows of the first capture of one step in which `work` ran on a weight, by node."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.h5")
        model = torch.nn.Linear(3, 3, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with ulpscope.record(path, model, optimizer):
            work(model).sum().backward()
            optimizer.step()
        told = subprocess.run([os.environ["ULPSCOPE_PROGRAM"], "export", path, "--table", "captures"], capture_output=True, text=True,
                              check=True).stdout
        rows = list(csv.DictReader(io.StringIO(told)))
        later = [number for number, row in enumerate(rows) if row["node"] == "0"][1:]
        return rows[:later[0]] if later else rows


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Captures(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, 3)

    def test_operands_of_elementwise_ops_are_those_at_the_same_place(self):
        self.x[2, 1] = 7.0
        divisor = torch.ones(1, 3)
        divisor[0, 1] = 0.0

        def work(model):
            return model(self.x) * 0 + self.x / divisor

        rows = captured(work)
        element, dividend, by = rows[:3]
        self.assertEqual((element["shape"], element["parent"]), ("4 3", ""))
        place = int(element["element"])
        self.assertEqual(place % 3, 1)
        self.assertEqual(float(dividend["value"]), self.x.flatten()[place].item())
        self.assertEqual((by["shape"], by["element"], float(by["value"])), ("1 3", "1", 0.0))
        self.assertEqual([row["operand"] for row in rows[:3]], ["", "0", "1"])

    def test_a_number_is_an_operand_too(self):
        rows = captured(lambda model: model(self.x) * 1e38 * 1e3)
        self.assertEqual(float(rows[2]["value"]), 1e3)
        self.assertEqual(rows[2]["shape"], "")

    def test_a_number_is_the_base_of_a_power(self):
        rows = captured(lambda model: 2.0 ** (model(self.x) * 0 + 200))
        self.assertEqual([(row["operand"], float(row["value"])) for row in rows[1:]], [("0", 2.0), ("1", 200.0)])

    def test_no_equation_where_a_factor_has_no_place(self):
        ones = torch.ones(4, 3)
        self.assertEqual(len(captured(lambda model: torch.addcmul(model(self.x) * 0, ones, ones * 1e20, value=1e20))), 0)
        self.assertEqual(len(captured(lambda model: torch.addcmul(model(self.x) * 0, ones * 1e20, ones * 1e20))), 4)

    def test_terms_of_a_product_are_its_largest(self):
        big = torch.full((4, 20), 1e-3)
        big[:, 7], big[:, 11] = 2e38, 3e38

        def work(model):
            return big @ torch.nn.functional.pad(model(self.x[:3]) * 0 + 2, (0, 0, 0, 17), value=2.0)

        rows = captured(work)
        self.assertEqual(rows[0]["terms"], "20")
        terms = {int(row["term"]) for row in rows[1:]}
        self.assertLessEqual({7, 11}, terms)
        self.assertEqual(len(terms), 8)
        factors = {(int(row["term"]), row["operand"]): float(row["value"]) for row in rows[1:]}
        self.assertEqual(factors[11, "0"], big[0, 11].item())
        self.assertEqual(factors[11, "1"], 2.0)

    def test_operands_that_were_written_over_are_marked(self):
        def work(model):
            made = model(self.x) * 1.0
            return made.mul_(torch.full((3,), 3e38)).mul_(10.0)

        rows = captured(work)
        self.assertEqual([row["overwritten"] for row in rows[:3]], ["", "true", "false"])

    def test_weighted_operands_are_not_told(self):
        self.assertEqual(captured(lambda model: torch.add(model(self.x), torch.full((3,), 3e38), alpha=2)), [])


if __name__ == "__main__":
    unittest.main()
