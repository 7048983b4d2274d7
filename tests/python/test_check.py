"""Checks of checkpoints: exact roundings against fractions and PyTorch's own, findings of files, what cannot be read, the command."""

import argparse
import contextlib
import fractions
import io
import json
import math
import os
import pickle
import tempfile
import unittest

from recorded import NEEDS_TORCH, torch

import ulpscope
from ulpscope.check import main

if torch is not None:
    from ulpscope import _formats

try:
    import safetensors.torch
except ImportError:
    safetensors = None


def rounded(value, form):
    """A fraction in a format, to nearest with ties to even; Inf from half a step above the largest number on."""
    size = abs(value)
    if size == 0:
        return fractions.Fraction(0)
    exponent = form.smallest_exponent
    while size >= fractions.Fraction(2) ** (exponent + 1):
        exponent += 1
    step = fractions.Fraction(2) ** (exponent - form.fraction)
    result = round(size / step) * step  # round() of a fraction takes ties to even
    if result > fractions.Fraction(form.largest):
        return math.inf if value > 0 else -math.inf
    return result if value > 0 else -result


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Roundings(unittest.TestCase):
    def encodings(self, dtype):
        """All finite numbers of a type of 16 bits."""
        values = torch.arange(-2**15, 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
        return values[values.isfinite()]

    def test_limits(self):
        for form, dtype in ((_formats.FP32, torch.float32), (_formats.BF16, torch.bfloat16), (_formats.FP16, torch.float16)):
            info = torch.finfo(dtype)
            self.assertEqual((form.largest, 2.0**form.smallest_exponent), (info.max, info.tiny))
            for limit, below, at in ((form.overflows_from, form.largest, math.inf), (form.normal_from, None, info.tiny)):
                exact, less = fractions.Fraction(limit), fractions.Fraction(math.nextafter(limit, 0))
                self.assertEqual(rounded(exact, form), at)
                self.assertLess(rounded(less, form), at)
                self.assertTrue(below is None or rounded(less, form) == below)
            exact, more = fractions.Fraction(form.flushed_to), fractions.Fraction(math.nextafter(form.flushed_to, 1))
            self.assertEqual(rounded(exact, form), 0)
            self.assertGreater(rounded(more, form), 0)

    def test_stays_against_fractions(self):
        """Changes of a quarter, half and a whole of the distance to a neighbour, and next to these, of random weights and the ends."""
        generator = torch.Generator().manual_seed(1)
        for form, dtype in ((_formats.FP32, torch.float32), (_formats.BF16, torch.bfloat16), (_formats.FP16, torch.float16)):
            tiny = 2.0 ** (form.smallest_exponent - form.fraction)
            special = [0.0, -0.0, tiny, -tiny, 2.0**form.smallest_exponent, 2.0**form.smallest_exponent - tiny, 1.0, -1.0, 2.0,
                       form.largest, -form.largest, 1 + 2.0**-form.fraction, 2 - 2.0**-form.fraction]
            scales = torch.exp2(torch.randint(-14, 15, (60,), generator=generator).double())
            weights = torch.cat([torch.tensor(special, dtype=torch.float64), torch.randn(60, generator=generator).double() * scales])
            weights = weights.float().to(dtype)
            for weight in weights:
                value = float(weight)
                unit = max(2.0 ** (math.frexp(value)[1] - 1 - form.fraction), tiny) if value else tiny
                changes = [sign * unit * part * near for sign in (1, -1) for part in (0.25, 0.5, 0.75, 1.0, 1.5)
                           for near in (1, 1 - 2.0**-50, 1 + 2.0**-50)]
                got = _formats.stays(weight.expand(len(changes)), torch.tensor(changes, dtype=torch.float64)).tolist()
                expected = [rounded(fractions.Fraction(value) + fractions.Fraction(change), form) == fractions.Fraction(value)
                            for change in changes]
                self.assertEqual(got, expected, f"{form.name} {value!r}")

    def test_stays_against_additions_of_pytorch(self):
        """Sums of two 16-bit numbers round once through FP32, whose significand has more than twice their bits."""
        for dtype in (torch.bfloat16, torch.float16):
            weights = self.encodings(dtype)
            for seed in range(8):
                generator = torch.Generator().manual_seed(seed)
                changes = weights[torch.randperm(weights.numel(), generator=generator)]
                near = (weights.double() * torch.exp2(torch.randint(-13, 1, weights.shape, generator=generator).double())).float().to(dtype)
                for change in (changes, near):
                    expected = weights + change == weights
                    self.assertTrue(torch.equal(_formats.stays(weights, change.double()), expected))

    def test_stays_against_additions_in_fp32(self):
        generator = torch.Generator().manual_seed(3)
        weights = torch.randint(-2**31, 2**31 - 1, (200_000,), generator=generator).to(torch.int32).view(torch.float32)
        weights = weights[weights.isfinite()]
        parts = torch.exp2(-torch.randint(20, 28, weights.shape, generator=generator).float()) * (1 - 2 * torch.randint(0, 2, weights.shape))
        changes = weights * parts
        self.assertTrue(torch.equal(_formats.stays(weights, changes.double()), weights + changes == weights))

    def test_stays_of_what_is_not_finite(self):
        weights = torch.tensor([math.nan, math.inf, 1.0, 1.0], dtype=torch.bfloat16)
        self.assertEqual(_formats.stays(weights, torch.tensor([0.0, 0.0, math.nan, math.inf], dtype=torch.float64)).tolist(), [False] * 4)

    def test_magnitudes_against_casts(self):
        """Every FP32 number on both sides of each limit, and random ones: what casts to 16 bits make of them."""
        generator = torch.Generator().manual_seed(2)
        limits = torch.tensor([limit for form in (_formats.FP16, _formats.BF16)
                               for limit in (form.overflows_from, form.flushed_to, form.normal_from)], dtype=torch.float64).float()
        near = [limits] + [torch.nextafter(limits, torch.full_like(limits, end)) for end in (0.0, math.inf)]
        values = torch.randint(-2**31, 2**31 - 1, (100_000,), generator=generator).to(torch.int32).view(torch.float32)
        values = torch.cat(near + [values, torch.zeros(3), -torch.zeros(2)])
        found = _formats.magnitudes(values.reshape(-1, 1))
        finite = values[values.isfinite()]
        self.assertEqual((found.elements, found.nan, found.inf, found.zeros),
                         (values.numel(), int(values.isnan().sum()), int(values.isinf().sum()), int((values == 0).sum())))
        self.assertEqual(found.largest, float(finite.abs().max()))
        self.assertEqual(found.smallest, float(finite[finite != 0].abs().min()))
        for name, dtype in (("FP16", torch.float16), ("BF16", torch.bfloat16)):
            cast = finite.to(dtype)
            below = cast.float().abs() < torch.finfo(dtype).tiny
            self.assertEqual(found.overflow[name], int(cast.isinf().sum()))
            self.assertEqual(found.flushed[name], int(((cast == 0) & (finite != 0)).sum()))
            self.assertEqual(found.subnormal[name], int((below & (cast != 0)).sum()))
            self.assertEqual(found.flushed_squares[name], float(finite[(cast == 0) & (finite != 0)].double().square().sum()))

    def test_shares(self):
        self.assertEqual([_formats.share(part, 100_000) for part in (0, 1, 1234, 99_999, 100_000)],
                         ["0%", "less than 0.01%", "1.2%", "more than 99.9%", "100%"])
        self.assertEqual([_formats.power(value) for value in (65536.0, 0.125, 1.0, 0.0, 3.0, math.inf)],
                         ["2^16", "2^-3", "1", "0", "3", "Inf"])


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Files(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def save(self, item, name="model.pt", **options):
        path = os.path.join(self.folder, name)
        torch.save(item, path, **options)
        return path

    def check(self, item, rate=None, **options):
        return ulpscope.check(self.save(item, **options), rate)

    def codes(self, made):
        return {finding["code"]: finding["severity"] for finding in made.findings}

    def finding(self, made, code):
        return next(finding for finding in made.findings if finding["code"] == code)

    def trained(self, dtype=None, rate=1e-2, steps=3, groups=lambda model: model.parameters()):
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2)).to(dtype or torch.float32)
        optimizer = torch.optim.AdamW(groups(model), rate)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 8).to(model[0].weight.dtype)).float().square().mean().backward()
            optimizer.step()
        return model, optimizer

    def test_a_healthy_file(self):
        model, optimizer = self.trained()
        made = self.check({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                           "scaler": torch.amp.GradScaler("cpu").state_dict(), "best": math.inf, "step": 3})
        self.assertEqual((made.verdict, {severity for severity in self.codes(made).values()} - {"info"}), ("ok", set()))
        self.assertTrue(made.text.startswith("OK: no numerical problem found.\n"))
        self.assertTrue(all(len(line) <= 120 for line in made.text.splitlines() if self.folder not in line))
        self.assertIn("<pre>OK", made._repr_html_())

    def test_nan_and_inf(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        with torch.no_grad():
            model[1].weight[0, :2] = math.nan
            model[1].weight[1, 0] = -math.inf
        made = self.check(model.state_dict())
        self.assertEqual((made.verdict, self.codes(made)), ("broken", {"weights.nonfinite": "error"}))
        self.assertIn("`1.weight` holds 2 NaN and 1 Inf in 8 elements.", made.text)
        self.assertEqual(self.finding(made, "weights.nonfinite")["values"]["tensors"],
                         [{"tensor": "1.weight", "nan": 2, "inf": 1, "elements": 8}])

    def test_a_mask_is_no_fault(self):
        made = self.check({"weight": torch.ones(2, 2), "attention.mask": torch.full((4, 4), -math.inf).triu(1)})
        self.assertEqual((made.verdict, self.codes(made)), ("ok", {"weights.mask": "info"}))
        made = self.check({"weight": torch.ones(2, 2), "causal_bias": torch.full((4, 4), -math.inf).triu(1)})
        self.assertEqual((made.verdict, self.codes(made)), ("ok", {"weights.mask": "info"}))
        for weights in ({"bias": torch.tensor([0.0, math.inf])}, {"mask.weight": torch.full((2,), math.inf)}):
            self.assertEqual(self.codes(self.check(weights)), {"weights.nonfinite": "error"})

    def test_tensors_that_are_no_weights(self):
        made = self.check({"model": {"fc.weight": torch.ones(2, 2), "best": torch.tensor(-math.inf)}, "losses": torch.tensor([1e9, math.nan])})
        self.assertEqual(self.codes(made), {"tensors.nonfinite": "warning"})
        self.assertEqual([row["tensor"] for row in self.finding(made, "tensors.nonfinite")["values"]["tensors"]], ["best", "losses"])
        self.assertEqual(made.facts["weights"]["elements"], 5)
        self.assertEqual(self.codes(self.check({"losses": torch.tensor([1.0, math.nan])})), {"weights.nonfinite": "error"})

    def test_types_that_are_not_looked_at(self):
        made = self.check({"fc.weight": torch.ones(2, 2), "n": torch.ones(3, dtype=torch.int64), "c": torch.ones(2, dtype=torch.complex64),
                           "e": torch.tensor([448.0, math.nan]).to(torch.float8_e4m3fn), "s": torch.eye(3).to_sparse()})
        self.assertEqual(made.facts["weights"]["elements_by_format"], {"FP32": 4, "E4M3": 2})
        self.assertIn("`e` holds 1 NaN in 2 elements.", made.text)

    def test_states_that_are_not_finite(self):
        model, optimizer = self.trained()
        optimizer.state[model[0].weight]["exp_avg_sq"][0, 0] = math.inf
        made = self.check({"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()]})
        self.assertEqual(self.codes(made)["states.nonfinite"], "error")
        self.assertIn("`0.weight exp_avg_sq` holds 1 Inf in 128 elements", made.text)

    def test_best_scores_of_callbacks_are_no_weights(self):
        model, optimizer = self.trained()
        made = self.check({"pytorch-lightning_version": "2.6.6", "state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()],
                           "callbacks": {"EarlyStopping": {"best_score": torch.tensor(math.inf), "all": torch.full((3,), math.inf)}},
                           "MixedPrecision": {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
                                              "_growth_tracker": 7}})
        self.assertEqual(made.verdict, "ok")
        self.assertEqual(made.facts["scalers"], [{"path": "MixedPrecision", "scale": 1024.0, "growth_tracker": 7, "growth_interval": 2000}])

    def test_ranges(self):
        weight = torch.tensor([[7e4, 65519.0, 65520.0, -1e5], [2.0**-25, 1e-9, 0.0, 1.0]])
        made = self.check({"w": weight})
        self.assertEqual(self.codes(made), {"range.fp16_overflow": "info"})
        self.assertEqual(self.finding(made, "range.fp16_overflow")["values"]["tensors"],
                         [{"tensor": "w", "overflow": 3, "elements": 8, "largest": 1e5}])
        scaled = self.check({"w": weight, "scaler": torch.amp.GradScaler("cpu").state_dict()})
        self.assertEqual(scaled.verdict, "warning")
        self.assertEqual([(row["format"], row["overflow"], row["flushed"]) for row in made.facts["formats"]],
                         [("FP16", 3, 2), ("BF16", 0, 0), ("E4M3", 0, 2)])
        self.assertEqual(self.codes(self.check({"w": torch.full((3,), 1e-9)})), {"range.fp16_underflow": "info"})
        self.assertEqual(self.codes(self.check({"w": torch.full((3,), 3.4e38)})),
                         {"range.fp16_overflow": "info", "range.bf16_overflow": "info"})

    def test_scaled_e4m3_against_a_cast(self):
        from ulpscope._judgements import _scaled_e4m3

        weight = torch.randn(64, 64) * torch.exp2(torch.randint(-14, 1, (64, 64)).float())
        largest = weight.abs().max()
        cast = (weight * (torch.tensor(448.0) / largest)).to(torch.float8_e4m3fn).float()
        below = (cast.abs() < 2.0**-6) & (cast != 0)
        self.assertEqual(_scaled_e4m3(weight, float(largest)), (int(((cast == 0) & (weight != 0)).sum()), int(below.sum())))

    def test_lost_updates_against_an_addition(self):
        """Steps in BF16: those of the finding are the ones that PyTorch's own update, w + d in FP64 rounded once, would not see."""
        for dtype, name in ((torch.bfloat16, "BF16"), (torch.float32, "FP32")):
            for rate in (1e-2, 1e-5, 1e-7):
                model, optimizer = self.trained(dtype, rate)
                made = self.check({"model": model.state_dict(), "optim": optimizer.state_dict()})
                updates = {update["name"]: update for update in made.facts["optimizers"][0]["updates"]}
                lost, asked = 0, 0
                for key, weight in model.named_parameters():
                    state = optimizer.state[weight]
                    first, second = state["exp_avg"].double() / (1 - 0.9**3), state["exp_avg_sq"].double() / (1 - 0.999**3)
                    change = -rate * first / (second.sqrt() + 1e-8)
                    form = getattr(_formats, name)
                    stay = [rounded(fractions.Fraction(w) + fractions.Fraction(d), form) == fractions.Fraction(w)
                            for w, d in zip(weight.double().flatten().tolist(), change.flatten().tolist()) if d != 0]
                    self.assertEqual((updates[key]["lost"], updates[key]["steps"], updates[key]["format"]), (sum(stay), len(stay), name))
                    lost, asked = lost + sum(stay), asked + len(stay)
                found = [finding for finding in made.findings if finding["code"] == "updates.lost"]
                if found:
                    self.assertEqual((found[0]["values"]["lost"], found[0]["values"]["steps"]), (lost, asked))
                self.assertEqual(bool(found), any(2 * update["lost"] > update["steps"] for update in updates.values()))
                self.assertTrue(found or rate == 1e-2 or dtype is torch.float32)

    def test_a_given_rate(self):
        model, optimizer = self.trained(rate=0.0)
        item = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        self.assertIn("updates.rate_zero", self.codes(self.check(item)))
        made = self.check(item, 1e-4)
        self.assertNotIn("updates.rate_zero", self.codes(made))
        self.assertIn("BF16 weights would lose", made.text)
        for rate in (0.0, -1.0, math.nan, math.inf):
            with self.assertRaisesRegex(ValueError, "rate is no number above 0"):
                self.check(item, rate)

    def test_weights_of_states(self):
        """By names where the file has them, by order in one group, by shape in groups that share none, and else not."""
        def parts(model):
            return [{"params": [p for p in model.parameters() if p.dim() > 1]},
                    {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]

        model, optimizer = self.trained()
        named = torch.optim.AdamW(model.named_parameters())
        named.state.update(optimizer.state)
        split = self.trained(groups=parts)
        shared = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
        swapped = torch.optim.Adam([{"params": [shared[1].weight]}, {"params": [shared[0].weight]}])
        shared(torch.ones(1, 4)).sum().backward()
        swapped.step()
        for which, model, optimizer, matched in (("order", model, optimizer, "order"), ("names", model, named, "names"),
                                                 ("shapes", *split, "order"), ("not", shared, swapped, "")):
            with self.subTest(which):
                made = self.check({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
                facts = made.facts["optimizers"][0]
                self.assertEqual(facts["matched"], matched)
                if matched:
                    shapes = {update["name"]: update["steps"] for update in facts["updates"]}
                    self.assertEqual(set(shapes), {name for name, _ in model.named_parameters()})
                else:
                    self.assertIn("the file does not tell which weight a state belongs to", made.text.replace("\n         ", " "))

    def test_wrapped_names_and_tied_weights(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
        model[1].weight = model[0].weight
        optimizer = torch.optim.Adam(model.named_parameters())
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        made = self.check({"model": {f"module.{name}": value for name, value in model.state_dict().items()},
                           "optimizer": optimizer.state_dict()})
        self.assertEqual(made.facts["weights"]["tensors"], 1)
        self.assertEqual(made.facts["optimizers"][0]["matched"], "names")

    def test_second_moments_of_zero(self):
        for dtype, eps, code, severity in ((torch.float32, 1e-8, "adam.second_moment_zero", "warning"),
                                           (torch.float16, 1e-8, "adam.divides_by_zero", "error"),
                                           (torch.float16, 1e-4, "adam.second_moment_zero", "warning"),
                                           (torch.float32, 0.0, "adam.divides_by_zero", "error")):
            with self.subTest(dtype=dtype, eps=eps):
                weight = torch.nn.Parameter(torch.ones(4, dtype=dtype))
                optimizer = torch.optim.Adam([weight], eps=eps)
                optimizer.state[weight] = {"step": torch.tensor(1.0), "exp_avg": torch.tensor([0.25, 0.0, 0.5, 0.5], dtype=dtype),
                                           "exp_avg_sq": torch.tensor([0.0, 0.0, 0.25, 0.0], dtype=dtype)}
                made = self.check({"w": {"w": weight.detach()}, "o": optimizer.state_dict()})
                found = self.finding(made, code)
                self.assertEqual((found["severity"], found["values"]["parameters"][0]["elements"]), (severity, 2))
                if code == "adam.second_moment_zero":
                    self.assertAlmostEqual(found["values"]["parameters"][0]["largest_step"], 0.5 / (1 - 0.9) / eps, places=3)
        # Squares that are 0 in FP32 belong to gradients that eps makes harmless.
        optimizer.state[weight]["exp_avg"] *= 1e-25
        optimizer.param_groups[0]["eps"] = 1e-8
        self.assertEqual(self.finding(self.check({"o": optimizer.state_dict()}), "adam.second_moment_zero")["severity"], "info")

    def test_division_by_zero_happens(self):
        weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
        optimizer = torch.optim.Adam([weight], foreach=False)
        weight.grad = torch.full_like(weight, 2.0**-9)
        optimizer.step()
        self.assertEqual(self.codes(self.check({"o": optimizer.state_dict()}))["adam.divides_by_zero"], "error")
        self.assertFalse(bool(weight.isfinite().any()))

    def test_second_moments_that_cannot_fall(self):
        for dtype, shares, stuck in ((torch.bfloat16, 0.999, True), (torch.bfloat16, 1 - 2.0**-8, False), (torch.float32, 0.999, False),
                                     (torch.float16, 1 - 2.0**-11, False), (torch.float16, 0.9999, True)):
            weight = torch.nn.Parameter(torch.ones(64, dtype=dtype))
            optimizer = torch.optim.Adam([weight], betas=(0.9, shares), foreach=False)
            weight.grad = torch.rand(64).add(1).mul(64).to(dtype)
            optimizer.step()
            with self.subTest(dtype=dtype, beta2=shares):
                self.assertEqual("adam.second_moment_stuck" in self.codes(self.check({"o": optimizer.state_dict()})), stuck)
                before = optimizer.state[weight]["exp_avg_sq"].clone()
                weight.grad = torch.zeros_like(weight)
                optimizer.step()
                self.assertEqual(torch.equal(before, optimizer.state[weight]["exp_avg_sq"]), stuck)

    def test_narrow_second_moments(self):
        weight = torch.nn.Parameter(torch.ones(4))
        optimizer = torch.optim.Adam([weight])
        weight.grad = torch.full_like(weight, 1e-4)
        optimizer.step()
        made = self.check({"o": optimizer.state_dict()})
        self.assertEqual(self.finding(made, "adam.second_moment_needs_range")["values"], {"flushed": 4, "nonzero": 4})
        optimizer.state[weight]["exp_avg_sq"] = torch.full((4,), 1e-6, dtype=torch.float16)
        made = self.check({"o": optimizer.state_dict()})
        self.assertEqual(self.finding(made, "adam.second_moment_subnormal")["values"], {"subnormal": 4, "nonzero": 4})

    def test_loss_scales(self):
        for scale, code in ((65536.0, None), (1.0, None), (0.5, "scale.below_one"), (2.0**-127, "scale.below_one"), (2.0**-128, "scale.zero"),
                            (0.0, "scale.zero"), (math.inf, "scale.nonfinite"), (math.nan, "scale.nonfinite")):
            with self.subTest(scale=scale):
                state = dict(torch.amp.GradScaler("cpu", init_scale=1.0).state_dict(), scale=scale)
                made = self.check({"grad_scaler": state})
                self.assertEqual(list(self.codes(made)), [code] if code else [])
                if code == "scale.zero" or scale == 2.0**-127:  # GradScaler does as the finding says
                    weight = torch.nn.Parameter(torch.ones(1))
                    optimizer, scaler = torch.optim.SGD([weight], 0.0625), torch.amp.GradScaler("cpu")
                    scaler.load_state_dict(state)
                    scaler.scale(weight.sum()).backward()
                    scaler.step(optimizer)
                    self.assertEqual(bool(weight.isfinite()), code != "scale.zero")

    def test_momentum(self):
        model = torch.nn.Linear(4, 4).bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), 1e-6, momentum=0.9)
        model(torch.ones(1, 4).bfloat16()).sum().backward()
        optimizer.step()
        made = self.check({"net": model.state_dict(), "opt": optimizer.state_dict()})
        self.assertIn("of the states' SGD steps round to nothing: w + d = w in BF16", self.finding(made, "updates.lost")["title"])

    def test_other_optimizers_are_not_judged(self):
        model = torch.nn.Linear(4, 4)
        for make in (torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.Adagrad, torch.optim.RMSprop):
            optimizer = make(model.parameters())
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            made = self.check({"net": model.state_dict(), "opt": optimizer.state_dict()})
            self.assertEqual((made.verdict, made.facts["optimizers"][0]["rule"], made.facts["optimizers"][0]["updates"]), ("ok", "", None))

    def test_what_cannot_be_read(self):
        def path(name, data=b""):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(data)
            return file.name

        model = torch.nn.Linear(2, 2)
        whole = self.save(model.state_dict(), "whole.pt")
        with open(whole, "rb") as file:
            half = file.read()[:700]
        os.mkdir(os.path.join(self.folder, "empty"))
        for bad, message in ((path("empty.pt"), "is no (file that torch.load reads|checkpoint)"), (path("text.pt", b"hello"), "is no (file that torch.load reads|checkpoint)"),
                             (path("half.pt", half), "is no (file that torch.load reads|checkpoint)"), (os.path.join(self.folder, "none.pt"), "no such file"),
                             (self.save({"args": argparse.Namespace(a=1), "w": torch.ones(1)}, "args.pt"), "pickled objects of argparse.Namespace"),
                             (self.save(model, "module.pt"), "pickled objects of .*torch.nn.modules.linear.Linear"),
                             (self.save({"epoch": 3}, "none.ckpt"), "has no tensors of weights"),
                             (path("pickle.pt", pickle.dumps({"a": 1})), "has no tensors|is no checkpoint"),
                             (os.path.join(self.folder, "empty"), "has no file of a checkpoint")):
            with self.subTest(os.path.basename(bad)):
                with self.assertRaisesRegex(ulpscope.Error, message) as caught:
                    ulpscope.check(bad)
                self.assertNotIn("\n", str(caught.exception))

    def test_files_of_before_1_6(self):
        self.assertEqual(self.check({"w": torch.full((2,), math.nan)}, _use_new_zipfile_serialization=False).verdict, "broken")

    def test_a_folder(self):
        model, optimizer = self.trained(torch.bfloat16, 1e-7)
        self.save(model.state_dict(), "pytorch_model.bin")
        self.save(optimizer.state_dict(), "optimizer.pt")
        self.save({"rng": torch.get_rng_state()}, "rng_state.pth")
        made = ulpscope.check(self.folder)
        self.assertEqual(self.codes(made)["updates.lost"], "warning")
        self.save({"args": argparse.Namespace(a=1)}, "extra.pt")
        made = ulpscope.check(self.folder)
        self.assertEqual((self.codes(made)["updates.lost"], len(made.facts["left_out"])), ("warning", 1))
        self.assertIn("Left out ", made.text)

    def test_tensors_that_are_no_arrays_of_real_numbers_are_named(self):
        whole = torch.full((2, 2), math.nan)
        for tensor, how in ((torch.complex(whole, whole), "complex"), (whole.to_sparse(), "sparse"),
                            (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
                            (torch.quantize_per_tensor(torch.ones(2, 2), 0.5, 0, torch.qint8), "quantized")):
            with self.subTest(how):
                made = self.check({"weight": torch.ones(2, 2), "other": tensor})
                self.assertEqual((made.verdict, made.facts["left_out"]), ("ok", [f"`other`: tensors that are {how} are not looked at."]))
                self.assertIn("Left out ", made.text)

    def test_several_models(self):
        """Optimizers belong to the weights in their own file or dict, also where two models have one shape."""
        one, two = self.trained(torch.bfloat16, 1e-7), self.trained(torch.bfloat16, 1e-2)
        made = self.check({"a": {"model": one[0].state_dict(), "optimizer": one[1].state_dict()},
                           "b": {"model": two[0].state_dict(), "optimizer": two[1].state_dict()}})
        lost = [sum(update["lost"] for update in optimizer["updates"]) for optimizer in made.facts["optimizers"]]
        self.assertGreater(lost[0], lost[1])
        apart = self.check({"g": one[0].state_dict(), "d": two[0].state_dict(), "opt_g": one[1].state_dict()})
        self.assertEqual(apart.facts["optimizers"][0]["matched"], "")

    @unittest.skipIf(safetensors is None, "safetensors is not installed")
    def test_safetensors(self):
        model, optimizer = self.trained(torch.bfloat16, 1e-7)
        path = os.path.join(self.folder, "model.safetensors")
        safetensors.torch.save_file(model.state_dict(), path)
        self.assertEqual(ulpscope.check(path).facts["weights"], {"tensors": 6, "elements": 210, "elements_by_format": {"BF16": 210}})
        self.save(optimizer.state_dict(), "optimizer.pt")
        self.assertEqual(ulpscope.check(self.folder).facts["optimizers"][0]["matched"], "")  # safetensors keeps no order
        made = ulpscope.check(self.folder, model=torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2)))
        self.assertEqual([update["name"] for update in made.facts["optimizers"][0]["updates"]], [name for name, _ in model.named_parameters()])
        self.save(model.state_dict(), "whole.pt")
        os.remove(path)
        self.assertEqual(made.facts["optimizers"], ulpscope.check(self.folder).facts["optimizers"])
        safetensors.torch.save_file(model.state_dict(), path)
        with open(path, "wb") as file:
            file.write(b"hello")
        with self.assertRaisesRegex(ulpscope.Error, "is no readable safetensors file"):
            ulpscope.check(path)

    @unittest.skipIf(safetensors is not None, "safetensors is installed")
    def test_safetensors_that_are_not_installed(self):
        path = os.path.join(self.folder, "model.safetensors")
        with open(path, "wb"):
            pass
        with self.assertRaisesRegex(ulpscope.Error, "pip install safetensors"):
            ulpscope.check(path)

    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
        return code, out.getvalue(), err.getvalue()

    def test_the_command(self):
        bad = self.save({"w": torch.tensor([math.nan]), "s": dict(torch.amp.GradScaler("cpu").state_dict(), scale=math.inf)}, "bad.pt")
        good = self.save({"w": torch.ones(1)}, "good.pt")
        for arguments, code in (((bad,), 0), ((bad, "--fail-on", "error"), 1), ((bad, "--fail-on", "warning"), 1), ((good, "--fail-on", "warn"), 0),
                                ((), 2), ((good, "--lr", "x"), 2), ((good, "--lr", "0"), 2), ((good, "--lr", "nan"), 2), ((good, "--format", "xml"), 2),
                                (("--help",), 0), ((bad + "2",), 3)):
            with self.subTest(arguments):
                self.assertEqual(self.run_main(*arguments)[0], code)
        code, out, err = self.run_main(bad, "--format", "json")
        data = json.loads(out, parse_constant=lambda name: self.fail(f"{name} is no JSON"))
        self.assertEqual((data["verdict"], err, data["scalers"][0]["scale"]), ("broken", "", "Infinity"))
        self.assertEqual(self.run_main(bad)[1], ulpscope.check(bad).text)
        self.assertEqual(self.run_main(bad, "--json")[1], out)
        for arguments in ((bad + "2",), ("--lr", "x", bad), (), ("--nope", bad)):
            self.assertEqual(len(self.run_main(*arguments)[2].splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
