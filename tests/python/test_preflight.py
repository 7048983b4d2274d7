"""Preflight: that it leaves everything as it was, and that its counts are those of steps made by hand."""

import copy
import math
import random
import unittest

from recorded import NEEDS_TORCH, torch

import ulpscope

if torch is not None:
    nn = torch.nn

    class Square(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return (x * self.factor) * (x * self.factor)

    class Mask(nn.Module):
        """Infinities that are there in every format, and that the softmax takes."""

        def forward(self, x):
            return x.masked_fill(torch.eye(x.shape[-1], dtype=torch.bool)[:x.shape[0]], -math.inf)


def classify(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Preflight(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.batch = (torch.randn(16, 32), torch.randint(0, 4, (16,)))

    def model(self, *middle):
        return nn.Sequential(nn.Linear(32, 64), *(middle or (nn.ReLU(inplace=True),)), nn.Linear(64, 4))

    def row(self, made, module, name):
        return next(row for row in made.modules if row["module"] == module and row["format"] == name)

    def test_nothing_changes(self):
        """Weights, buffers, states, gradients, settings, the batch and random numbers keep every bit, and hooks are gone."""
        model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Linear(64, 4))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(2):
            classify(model, self.batch).backward()
            optimizer.step()

        def state():
            tensors = [*model.state_dict().values(), *(parameter.grad for parameter in model.parameters()), *self.batch,
                       *(value for each in optimizer.state_dict()["state"].values() for value in each.values()), torch.get_rng_state()]
            return [each.clone() for each in tensors], random.getstate(), copy.deepcopy(optimizer.state_dict()["param_groups"])

        def loss_fn(given, batch):
            random.random()
            batch[0].mul_(2)
            return classify(given, batch)

        for cast in ("autocast", "model"):
            before = state()
            made = ulpscope.preflight(model, self.batch, loss_fn, optimizer, cast=cast)
            after = state()
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(before[0], after[0])))
            self.assertEqual(before[1:], after[1:])
            self.assertEqual(set(made.verdict), {"fp32", "bf16", "fp16"})
            self.assertFalse(any(module._forward_hooks for module in model.modules()))
            self.assertTrue(model.training)

    def test_counts_of_gradients(self):
        """Those that underflow are the zeros of gradients computed by hand, with and without the scale."""
        model = self.model(nn.Tanh())

        def loss_fn(given, batch):
            return classify(given, batch) * 1e-5

        made = ulpscope.preflight(model, self.batch, loss_fn)
        gradients = {}
        for name, dtype, scale in (("fp32", torch.float32, 1.0), ("bf16", torch.bfloat16, 1.0), ("fp16", torch.float16, 1.0),
                                   ("scaled", torch.float16, 2.0**16)):
            given = copy.deepcopy(model)
            with torch.autocast("cpu", dtype=dtype if name != "fp32" else None, enabled=name != "fp32"):
                loss = loss_fn(given, self.batch)
            (loss * scale).backward()
            gradients[name] = given
        lost = 0
        for module, place in (("0", 0), ("2", 2)):
            def grads(name):
                return torch.cat([parameter.grad.flatten() for parameter in gradients[name][place].parameters()])

            nonzero = grads("fp32") != 0
            expected = [int((nonzero & (grads(name) == 0)).sum()) for name in ("bf16", "fp16", "scaled")]
            rows = {name: self.row(made, module, name) for name in ("bf16", "fp16")}
            self.assertEqual([rows["bf16"]["underflow"], rows["fp16"]["underflow"], rows["fp16"]["underflow_scaled"]], expected)
            self.assertEqual(rows["fp16"]["gradients"], int(nonzero.sum()))
            lost += expected[1]
        self.assertGreater(lost, 0)
        self.assertEqual((made.verdict, made.scale), ({"fp32": "ok", "bf16": "ok", "fp16": "ok"}, 2.0**16))
        self.assertEqual(ulpscope.preflight(model, self.batch, loss_fn, scale=1.0).verdict["fp16"], "warning")

    def test_counts_of_updates(self):
        model = self.model()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-5, weight_decay=0.1)
        made = ulpscope.preflight(model, self.batch, classify, optimizer)
        stepped, optimizer_of = copy.deepcopy((model, optimizer))
        classify(stepped, self.batch).backward()
        optimizer_of.step()
        for module, place in (("0", 0), ("2", 2)):
            before, after = (torch.cat([p.detach().flatten() for p in each[place].parameters()]) for each in (model, stepped))
            narrow = before.bfloat16()
            moved = before != after
            # FP64 holds these sums exactly, and of those that are no FP32 numbers none is near a tie of BF16.
            sums = (narrow.double() + (after.double() - before.double())).float().bfloat16()
            row = self.row(made, module, "bf16")
            self.assertEqual((row["updates"], row["updates_lost"]), (int(moved.sum()), int((moved & (sums == narrow)).sum())))
        self.assertIn("BF16 weights would keep", " ".join(made.reasons["bf16"]))
        self.assertEqual(made.verdict["bf16"], "ok")

    def test_a_whole_model_in_16_bits(self):
        """The step in BF16 is PyTorch's own; and in FP16 Adam's eps is 0, so that second moments that underflow divide by 0."""
        model = self.model()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-5, foreach=False)
        made = ulpscope.preflight(model, self.batch, classify, optimizer, cast="model")
        self.assertEqual(made.verdict, {"fp32": "ok", "bf16": "warning", "fp16": "broken"})
        self.assertIn("makes NaN or Inf of", " ".join(made.reasons["fp16"]))
        narrow, optimizer_of = copy.deepcopy((model, optimizer))
        narrow.bfloat16()
        classify(narrow, (self.batch[0].bfloat16(), self.batch[1])).backward()
        before = [p.detach().clone() for p in narrow.parameters()]
        optimizer_of.step()
        wide, optimizer_of = copy.deepcopy((model, optimizer))
        classify(wide, self.batch).backward()
        optimizer_of.step()
        lost = sum(int(((a != b) & (c == d)).sum()) for a, b, c, d in zip(model.parameters(), wide.parameters(), before, narrow.parameters()))
        self.assertEqual(sum(row["updates_lost"] or 0 for row in made.modules if row["format"] == "bf16"), lost)

    def test_overflow_in_the_forward_pass(self):
        made = ulpscope.preflight(self.model(Square(300.0), nn.LayerNorm(64)), self.batch, classify)
        self.assertEqual(made.verdict, {"fp32": "ok", "bf16": "ok", "fp16": "broken"})
        self.assertIn("The output of `1` (Square) is the first that holds NaN or Inf where FP32 has none", made.text.replace("\n      ", " "))
        self.assertGreater(self.row(made, "1", "fp16")["inf"], 0)
        self.assertGreater(self.row(made, "1", "fp32")["largest"], 65504)
        self.assertIsNone(made.scale)

    def test_an_overflow_between_modules(self):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(64, 64)

            def forward(self, x):
                return self.out((300.0 * x).square())

        made = ulpscope.preflight(self.model(Own(), nn.LayerNorm(64)), self.batch, classify)
        text = " ".join(made.text.split())
        self.assertIn("The output of `1.out` (Linear) is the first that holds NaN or Inf where FP32 has none", text)
        self.assertIn("They came in with its inputs: `1` (Own) made them in ops of its own.", text)
        self.assertIn("Keep these ops of `1` (Own) in FP32, or use BF16.", text)

    def test_an_overflow_that_fp32_has_too(self):
        made = ulpscope.preflight(self.model(Square(1e20), nn.LayerNorm(64)), self.batch, classify)
        self.assertEqual(set(made.verdict.values()), {"broken"})
        self.assertIn("`1` (Square) is the first that holds NaN or Inf:", made.text.replace("\n      ", " "))

    def test_masks(self):
        made = ulpscope.preflight(nn.Sequential(nn.Linear(32, 64), Mask(), nn.Softmax(-1), nn.Linear(64, 4)), self.batch, classify)
        self.assertEqual(set(made.verdict.values()), {"ok"})
        self.assertNotIn("the first that holds", made.text)

    def test_scales_that_overflow(self):
        """The scale is the first half at which a GradScaler takes a step."""
        model = self.model()

        def loss_fn(given, batch):
            return classify(given, batch) * 1e5

        made = ulpscope.preflight(model, self.batch, loss_fn)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.0), torch.amp.GradScaler("cpu")
        skipped = -1
        before = None
        while before != scaler.get_scale():
            before, skipped = scaler.get_scale(), skipped + 1
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = loss_fn(model, self.batch)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        self.assertEqual(made.scale, before)
        self.assertGreater(skipped, 0)
        self.assertIn(f"skips {skipped} steps like this one", made.text.replace("\n      ", " "))

    def test_a_scaled_loss_in_fp16(self):
        """2^16 is no number of FP16, so that a loss in FP16 has no gradient at it, whatever its value."""
        made = ulpscope.preflight(nn.Linear(4, 1), torch.ones(2, 4), lambda model, batch: model(batch).mean() * 1e-3, cast="model")
        self.assertEqual(made.scale, 2.0**15)

    def test_gradients_that_no_scale_helps(self):
        made = ulpscope.preflight(nn.Linear(4, 1), torch.ones(2, 4), lambda model, batch: (model(batch) * 0).sqrt().sum())
        self.assertEqual(set(made.verdict.values()), {"broken"})
        self.assertIn("at every loss scale from 2^16 down to 1, at 1 those of 2 parameters (first: `weight`)", made.text.replace("\n      ", " "))

    def test_batches_and_models(self):
        """Dicts and shared weights, weights in BF16, recomputation, frozen parameters, modules that are called twice."""
        from torch.utils.checkpoint import checkpoint

        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.frozen = nn.Linear(8, 8), nn.Linear(8, 8)
                self.tied = nn.Linear(8, 8)
                self.tied.weight = self.inner.weight
                self.frozen.requires_grad_(False)

            def forward(self, x):
                return {"y": self.tied(checkpoint(self.inner, self.inner(self.frozen(x)), use_reentrant=False))}

        for dtype in (torch.float32, torch.bfloat16):
            model = Twice().to(dtype)
            made = ulpscope.preflight(model, {"x": torch.ones(2, 8, dtype=dtype), "n": 3},
                                      lambda given, batch: given(batch["x"])["y"].float().square().mean() * batch["n"],
                                      torch.optim.SGD(model.parameters(), 0.1))
            self.assertEqual(set(made.verdict.values()), {"ok"})
            self.assertEqual({row["module"] for row in made.modules}, {"", "inner", "frozen", "tied"})
            self.assertIs(model.inner.weight.dtype, dtype)
        self.assertEqual(self.row(made, "frozen", "fp32")["gradients"], None)

    def test_reentrant_checkpoints_and_compiled_models(self):
        from torch.utils.checkpoint import checkpoint

        class Again(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 4)

            def forward(self, x):
                return self.second(checkpoint(self.first, x, use_reentrant=True))

        batch = (self.batch[0].requires_grad_(), self.batch[1])
        for model in (Again(), torch.compile(self.model())):
            made = ulpscope.preflight(model, batch, classify)
            self.assertEqual(set(made.verdict.values()), {"ok"})
            self.assertTrue(all(row["gradients"] > 0 for row in made.modules if row["type"] == "Linear"))
        self.assertIsNone(batch[0].grad)

    def test_steps_that_raise(self):
        """An op that a type does not have is a verdict on that type."""
        def loss_fn(model, batch):
            y = model(batch)
            return torch.linalg.det(y @ y.T)

        made = ulpscope.preflight(nn.Linear(4, 4), torch.eye(4), loss_fn)
        self.assertEqual((made.verdict["fp32"], made.verdict["fp16"]), ("ok", "broken"))
        self.assertRegex(made.reasons["fp16"][0], "^The step raises (NotImplementedError|RuntimeError): ")
        self.assertIn("FP16  BROKEN: The step raises", made.text)
        self.assertIsNone(made.scale)

    def test_sparse_gradients(self):
        """Rows that are read twice are added, and optimizers get gradients as the program gives them."""
        for make in (torch.optim.SparseAdam, torch.optim.SGD):
            rows = {}
            for sparse in (True, False):
                torch.manual_seed(0)
                model = torch.nn.Sequential(torch.nn.Embedding(8, 4, sparse=sparse))
                optimizer = None if (make, sparse) == (torch.optim.SparseAdam, False) else make(model.parameters(), 0.01)
                for cast in ("autocast", "model"):
                    with self.subTest(make=make.__name__, sparse=sparse, cast=cast):
                        tried = ulpscope.preflight(model, torch.tensor([1, 2, 2]), lambda model, batch: model(batch).square().sum(), optimizer,
                                                   cast=cast)
                        self.assertEqual(tried.verdict, {"fp32": "ok", "bf16": "ok", "fp16": "ok"})
                        row = tried.modules[0]
                        self.assertEqual((row["gradients"], row["updates"]), (8, None if optimizer is None else 8))
                        rows[sparse, cast] = [{key: value for key, value in row.items() if "updates" not in key} for row in tried.modules]
            for cast in ("autocast", "model"):
                self.assertEqual(rows[True, cast], rows[False, cast])

    def test_formats(self):
        made = ulpscope.preflight(self.model(), self.batch, classify, formats=["bf16"])
        self.assertEqual(list(made.verdict), ["fp32", "bf16"])
        self.assertIsNone(made.scale)
        self.assertTrue(made._repr_html_().startswith("<pre>FP32  OK"))

    def test_errors(self):
        model = self.model()
        for error, message, arguments, options in (
                (TypeError, "model is no torch.nn.Module", (3, self.batch, classify), {}),
                (TypeError, "optimizer is no torch.optim.Optimizer", (model, self.batch, classify, 3), {}),
                (ValueError, "takes more than one step at a time", (model, self.batch, classify, torch.optim.LBFGS(model.parameters())), {}),
                (ValueError, "formats has 'fp8'", (model, self.batch, classify), {"formats": ["fp8"]}),
                (ValueError, "cast is neither", (model, self.batch, classify), {"cast": "all"}),
                (ValueError, "scale is no power of two", (model, self.batch, classify), {"scale": 0.5}),
                (ValueError, "no parameter that requires", (nn.ReLU(), self.batch, classify), {}),
                (ValueError, "loss_fn gave a tensor of 64 elements", (model, self.batch, lambda given, batch: given(batch[0])), {}),
                (ValueError, "loss_fn gave a float", (model, self.batch, lambda given, batch: 1.0), {}),
                (KeyError, "broken", (model, self.batch, lambda given, batch: {}["broken"]), {})):
            with self.subTest(message), self.assertRaisesRegex(error, message):
                ulpscope.preflight(*arguments, **options)
        gradients = [parameter.grad for parameter in model.parameters()]
        with self.assertRaisesRegex(ValueError, "ran another model than the one that it was given"):
            ulpscope.preflight(model, self.batch, lambda given, batch: classify(model, batch))
        self.assertEqual([parameter.grad for parameter in model.parameters()], gradients)
        model.kept = torch.ones(1, requires_grad=True) * 2
        with self.assertRaisesRegex(ulpscope.Error, "cannot be copied"):
            ulpscope.preflight(model, self.batch, classify)


if __name__ == "__main__":
    unittest.main()
