"""What casts, additions and subtractions of a forward pass lose, against the same from whole tensors in FP64."""

import unittest

from recorded import NEEDS_TORCH, Case, recording, torch


def lost_share(smaller, larger, stored):
    """What of the smaller addend did not arrive."""
    smaller, larger, stored = (each.detach().double() for each in (smaller, larger, stored))
    arrived = (torch.sign(smaller) * (stored - larger)).sum()
    return max(0.0, 1 - float(arrived / smaller.abs().sum()))


def cancelled_share(a, b, stored):
    """Results of 4 units in the last place of an operand or less, where signs differ, of those that are not 0."""
    unit = torch.maximum(*(torch.exp2(torch.floor(torch.log2(x.detach().double().abs()))) * torch.finfo(x.dtype).eps for x in (a, b)))
    is_whole = (a == a.trunc()) & (b == b.trunc()) & (unit < 1)
    looked_at = (stored != 0) & ~is_whole
    found = looked_at & ((a > 0) != (b > 0)) & (stored.detach().double().abs() <= 4 * unit)
    return float(found.double().sum() / looked_at.double().sum())


@unittest.skipIf(torch is None, NEEDS_TORCH)
class ValueLoss(Case):
    def measures(self, forward, inputs, weight=None, steps=1, after=None):
        """{(name of the op, measure): value} of each step, in which `forward` is the model."""

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones((), dtype=torch.float32) if weight is None else weight)

            def forward(self, *given):
                return forward(self, *given)

        torch.manual_seed(0)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        with recording(model, optimizer) as run:
            for _ in range(steps):
                out = model(*(each() if callable(each) else each for each in inputs))
                (out.float().sum() * model.weight.float().sum()).backward()
                optimizer.step()
        self.assertEqual(dict(run._session.refusals), {})
        return [
            {(call.call.name, name): value for call in step.calls for (_, name), value in call.measures.items()} for step in run.made[0].steps
        ]

    def test_a_residual_sum(self):
        x, y = torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).mul(1000).bfloat16(), torch.randn(8, 16).bfloat16()
        sums = {"x + y": lambda _, a, b: a + b, "y + x": lambda _, a, b: b + a, "x - y": lambda _, a, b: a - b,
                "x + 2 y": lambda _, a, b: torch.add(a, b, alpha=2)}
        for name, forward in sums.items():
            with self.subTest(sum=name):
                stored = forward(None, x, y)
                smaller = {"x - y": -y, "x + 2 y": 2 * y}.get(name, y)
                (told,) = self.measures(forward, (x, y))
                op = "sub" if "-" in name else "add"
                self.assertAlmostEqual(told[op, "addend_lost"], lost_share(smaller, x, stored), places=12)
                self.assertAlmostEqual(told[op, "cancelled"], cancelled_share(x, smaller, stored), places=12)
                self.assertAlmostEqual(told[op, "addend_size"], float(smaller.double().abs().sum() / x.double().abs().sum()), places=12)
                self.assertGreater(told[op, "addend_lost"], 0.1)

    def test_a_sum_in_place(self):
        x, y = torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).mul(1000).bfloat16(), torch.randn(8, 16).bfloat16()
        for name, larger_is_written in (("stream", True), ("branch", False)):
            with self.subTest(written=name):

                def forward(_, a, b):
                    written, other = (a * 1, b) if larger_is_written else (b * 1, a)
                    written += other
                    return written

                (told,) = self.measures(forward, (x, y))
                self.assertAlmostEqual(told["add_", "addend_lost"], lost_share(y, x, x + y), places=12)

    def test_a_variance_by_difference(self):
        x = 20 + 0.1 * torch.randn(64, 32)
        for dtype in (torch.bfloat16, torch.float32):
            with self.subTest(dtype=dtype):
                values = x.to(dtype)

                def forward(_, a):
                    return (a * a).mean(-1) - a.mean(-1) ** 2

                squares, square = (values * values).mean(-1), values.mean(-1) ** 2
                (told,) = self.measures(forward, (values,))
                self.assertAlmostEqual(told["sub", "cancelled"], cancelled_share(squares, -square, squares - square), places=12)
                self.assertEqual(told["sub", "cancelled"] > 0.5, dtype == torch.bfloat16)
                self.assertEqual(("sub", "addend_lost") in told, dtype == torch.bfloat16)

    def test_positions(self):
        numbers = torch.arange(1000)
        rounded = numbers.bfloat16()
        changed = float((rounded.long() != numbers).double().mean())
        merged = float((rounded[1:] == rounded[:-1]).double().mean())
        ways = {
            "cast": (lambda _, p: p.bfloat16(), "convert"),
            "cast of floats": (lambda _, p: p.float().bfloat16(), "cast"),
            "range": (lambda _, p: torch.arange(1000, dtype=torch.bfloat16), "arange"),
        }
        for way, (forward, op) in ways.items():
            with self.subTest(way=way):
                told = self.measures(lambda model, p: forward(model, p) * model.weight, (numbers,))[0]
                found = {name: value for (called, name), value in told.items() if name in ("whole_numbers_rounded", "neighbours_merged")}
                self.assertAlmostEqual(found["whole_numbers_rounded"], changed, places=12)
                self.assertAlmostEqual(found["neighbours_merged"], merged, places=12)

    def test_data_that_is_cast_in_the_step_or_before(self):
        x = torch.randn(32, 6)
        x[:, 4] += 5000
        for way in ("autocast", "before"):
            with self.subTest(way=way):

                def forward(model, a):
                    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
                        return a @ model.weight

                given = (lambda: x.bfloat16()) if way == "before" else (lambda: x)
                weight = torch.ones(6, 2, dtype=torch.bfloat16 if way == "before" else torch.float32)
                for told in self.measures(forward, (given,), weight, steps=2):
                    found = {name: value for (_, name), value in told.items()}
                    self.assertAlmostEqual(found["features_merged"], 1 / 6)
                    self.assertEqual(found["merged_feature"], 4)

    def test_operands_that_are_expanded(self):
        x, bias = torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).mul(1000).bfloat16(), torch.randn(16).bfloat16()
        for name, forward in (("tensor + row", lambda _, a, b: a + b), ("row + tensor", lambda _, a, b: b + a)):
            with self.subTest(name):
                (told,) = self.measures(forward, (x, bias))
                self.assertAlmostEqual(told["add", "addend_lost"], lost_share(bias.expand(8, 16), x, x + bias), places=12)

    def test_numbers_of_the_program(self):
        """A number is no result of a rounding: what is subtracted from it may be, and what is added to a tensor is no loss."""
        x = (1 - 0.01 * torch.rand(64, 4)).bfloat16()
        for name, forward, op in (("1 - x", lambda _, a: 1 - a, "rsub"), ("x - 1", lambda _, a: a - 1, "sub")):
            with self.subTest(name):
                (told,) = self.measures(forward, (x,))
                units = torch.exp2(torch.floor(torch.log2(x.double()))) * torch.finfo(x.dtype).eps
                left, nonzero = (1 - x.double()).abs(), x != 1
                share = float(((left <= 4 * units) & nonzero).double().sum() / nonzero.double().sum())
                self.assertAlmostEqual(told[op, "cancelled"], share, places=12)
                self.assertEqual(set(told), {(op, "cancelled"), (op, "cancelled_size")})
        (told,) = self.measures(lambda _, a: a * 1000 + 1e-6, (x,))
        self.assertEqual(set(told), {("add", "cancelled")})

    def test_masks_are_meant_to_hide(self):
        scores = torch.randn(8, 32, generator=torch.Generator().manual_seed(2)).bfloat16()
        kept = torch.arange(32) <= 20
        mask = torch.where(kept, 0.25, -10000.0).expand(8, 32).bfloat16()
        (told,) = self.measures(lambda _, a, b: (a + b) / 2, (scores, mask))
        a, b = scores[:, kept], mask[:, kept]
        self.assertAlmostEqual(told["add", "addend_lost"], lost_share(b, a, a + b), places=12)
        self.assertLess(told["add", "addend_lost"], 0.1)

    def test_casts_to_wider_types_lose_nothing(self):
        x = 300 + torch.arange(64.0).reshape(8, 8)
        ways = {"wider": (lambda _, a: a.bfloat16().float(), True), "narrower": (lambda _, a: a.half().bfloat16(), True), "neither": (lambda _, a: a.half().float(), False)}
        for name, (forward, is_rounded) in ways.items():
            with self.subTest(name):
                (told,) = self.measures(forward, (x,))
                self.assertEqual(any(measure == "whole_numbers_rounded" for _, measure in told), is_rounded)

    def test_long_ranges_and_integers_of_32_bits(self):
        """What is large stands at the end, and FP32 has no number behind 2^24 that is odd."""
        (told,) = self.measures(lambda model, a: torch.arange(5000, dtype=torch.float16) * model.weight, (torch.ones(2),))
        self.assertGreater(told["arange", "whole_numbers_rounded"], 0.3)
        numbers = 2**24 + torch.arange(512, dtype=torch.int32)
        (told,) = self.measures(lambda model, a: a.float() * model.weight, (numbers,))
        self.assertAlmostEqual(told["convert", "whole_numbers_rounded"], 0.5, places=2)

    def test_data_of_another_batch_is_another(self):
        """A cast that the step never read says nothing of what it reads."""
        wide = torch.randn(32, 4)
        wide[:, 1] += 5000

        def given():
            wide.bfloat16()  # thrown away at once
            return torch.randn(32, 4).half()

        told = self.measures(lambda model, a: a.float() @ model.weight, (given,), torch.ones(4, 2), steps=4)
        self.assertEqual([measure for step in told for (_, measure), value in step.items() if measure == "features_merged" and value > 0], [])

    def test_numbers_that_become_indices_again(self):
        """Rows have no integers, so that there is nothing to tell it of."""
        numbers = torch.arange(3000, 3512)
        (told,) = self.measures(lambda model, a: model.weight[a], (lambda: numbers.half().long(),), torch.ones(4000))
        self.assertEqual(told, {})

    def test_steps(self):
        x = torch.randn(8, 16).bfloat16()
        told = self.measures(lambda model, a: a + a * 0.001, (x,), steps=40)
        self.assertEqual([step for step, measures in enumerate(told) if measures], [*range(8), 16, 32])


if __name__ == "__main__":
    unittest.main()
