"""Running sums in 16 bits: what became of what is added to them, and what is none."""

import contextlib
import tempfile
import unittest

from recorded import NEEDS_TORCH, Case, recording, torch


def spread(tensor):
    """The elements that are looked at: all of 4,096, or 16 runs of 256 from the first to the last."""
    flat = tensor.detach().float().flatten()
    if flat.numel() <= 4096:
        return flat
    room = flat.numel() - 256
    return torch.cat([flat[room * run // 15 : room * run // 15 + 256] for run in range(16)])


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Sums(Case):
    def additions(self, steps):
        """(name of the op, parameter, addition) of each step, in order."""
        return [[(call.call.name, call.call.parameter, addition) for call in step.calls for addition in call.additions.values()] for step in steps]

    def check(self, addition, before, addend, after, factor=1):
        self.assertEqual(addition.factor, factor)
        for told, tensor in ((addition.before, before), (addition.addend, addend), (addition.after, after)):
            self.assertTrue(torch.equal(told, spread(tensor)))

    def accumulated(self, dtype, shape=(3, 4), micro_batches=3, **options):
        """The additions of a step of `micro_batches`, and the gradients before and after each and what came in, by parameter."""
        torch.manual_seed(0)
        model = torch.nn.Linear(*shape[::-1], bias=False).to(dtype)
        weight = model.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        batches = [torch.randn(5, shape[1], dtype=dtype) for _ in range(micro_batches)]
        grads = []
        with recording(model, optimizer, **options) as run:
            optimizer.zero_grad()
            for batch in batches:
                model(batch).float().square().sum().backward()
                grads.append(model.weight.grad.clone())
            optimizer.step()
        single = []
        for batch in batches:
            leaf = weight.clone().requires_grad_()
            torch.nn.functional.linear(batch, leaf).float().square().sum().backward()
            single.append(leaf.grad)
        return self.additions(run.made[0].steps), grads, single

    def test_gradients_of_micro_batches(self):
        for shape in ((3, 4), (60, 80)):
            with self.subTest(shape=shape):
                (told,), grads, single = self.accumulated(torch.bfloat16, shape)
                self.assertEqual([(name, parameter) for name, parameter, _ in told], [("accumulate", "weight")] * 2)
                for i, (_, _, addition) in enumerate(told):
                    self.check(addition, grads[i], single[i + 1], grads[i + 1])

    def test_none_of_fp32(self):
        (told,), _, _ = self.accumulated(torch.float32)
        self.assertEqual(told, [])

    def test_a_weight_that_is_used_twice(self):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(4, 4).to(torch.bfloat16))

        class Twice(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = weight

            def forward(self, x):
                return (x @ self.weight) @ self.weight

        model = Twice()
        optimizer = torch.optim.SGD([weight], 0.1)
        x = torch.randn(5, 4, dtype=torch.bfloat16)
        with recording(model, optimizer) as run:
            model(x).float().sum().backward()
            optimizer.step()
        (told,) = self.additions(run.made[0].steps)
        self.assertEqual([(name, parameter) for name, parameter, _ in told], [("accumulate", "weight")])
        addition = told[0][2]
        self.assertTrue(torch.equal((addition.before + addition.addend).to(torch.bfloat16).float(), addition.after))
        self.assertTrue(torch.equal(addition.after, weight.grad.float().flatten()))

    def test_sums_of_the_program(self):
        """Its own totals are sums; a layer that adds in place, and integers, are none."""
        torch.manual_seed(0)

        class Residual(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 4)
                self.register_buffer("seen", torch.zeros(4))
                self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

            def forward(self, x):
                hidden = self.linear(x)
                hidden += x
                with torch.no_grad():
                    self.seen.add_(x.mean(0), alpha=0.5)
                    self.calls += 1
                return hidden

        model = Residual().to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        total, seen = torch.zeros((), dtype=torch.bfloat16), []
        with recording(model, optimizer) as run:
            for _ in range(2):
                x = torch.randn(5, 4, dtype=torch.bfloat16)
                before = model.seen.clone(), total.clone()
                loss = model(x).float().square().mean()
                optimizer.zero_grad()
                loss.backward()
                total += loss.detach()
                optimizer.step()
                seen.append((before, x.mean(0), loss.detach(), (model.seen.clone(), total.clone())))
        told = self.additions(run.made[0].steps)
        # A total is known to be one where something was added to it before.
        self.assertEqual([len(each) for each in told], [1, 2])
        for each, (before, mean, _, after) in zip(told, seen):
            self.check(each[0][2], before[0], mean, after[0], 0.5)
        before, _, loss, after = seen[1]
        self.check(told[1][1][2], before[1], loss, after[1])

    def test_what_is_no_sum(self):
        """Losses that are made anew, weights that a program updates itself, and what is added to itself."""
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4).to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        kept = torch.ones(4, dtype=torch.bfloat16)
        deep = torch.ones((2,) * 7, dtype=torch.bfloat16).permute(6, 5, 4, 3, 2, 1, 0)
        with recording(model, optimizer) as run:
            for _ in range(3):
                loss = model(torch.randn(5, 4, dtype=torch.bfloat16)).square().mean()
                loss += torch.ones((), dtype=torch.bfloat16)
                optimizer.zero_grad()
                loss.backward()
                with torch.no_grad():
                    model.bias.add_(model.bias.grad, alpha=-0.1)
                    kept.add_(kept)
                    deep.add_(deep.flip(0))
                    kept.add_(1)
                optimizer.step()
        self.assertEqual(self.additions(run.made[0].steps), [[], [], []])

    def test_bits_and_rows(self):
        """In the trace: a row a step, of all its micro-batches."""
        import h5py
        import ulpscope

        def train(path):
            torch.manual_seed(0)
            model = torch.nn.Linear(1, 1, bias=False).to(torch.bfloat16)
            optimizer = torch.optim.SGD(model.parameters(), 2**-10)
            with ulpscope.record(path, model, optimizer) if path else contextlib.nullcontext():
                for _ in range(2):
                    for _ in range(300):
                        model(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            return model.weight.detach().clone()

        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/run.h5"
            self.assertTrue(torch.equal(train(path), train(None)))
            with h5py.File(path) as trace:
                rows = {name: trace["sums"][name][:].tolist() for name in trace["sums"]}
        # From 256 ones on each further one is absorbed; the first of 300 is no addition.
        self.assertEqual(rows["step"], [0, 1])
        self.assertEqual([rows[name] for name in ("additions", "elements", "addends", "absorbed")], [[299] * 2] * 3 + [[44] * 2])
        self.assertEqual([rows["asked"], rows["arrived"], rows["magnitude"]], [[299.0] * 2, [255.0] * 2, [256.0] * 2])

    def test_decay_within_the_gradient(self):
        """Adam's states have it, and rows of gradients do not: nothing is compared then."""
        import ulpscope

        severity = {}
        for name, rule, decay in (("L2", torch.optim.Adam, 0.5), ("none", torch.optim.Adam, 0), ("decoupled", torch.optim.AdamW, 0.01)):
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 4, bias=False).to(torch.bfloat16)
            optimizer = rule(model.parameters(), 1e-3, weight_decay=decay)
            with tempfile.TemporaryDirectory() as folder:
                with ulpscope.record(folder + "/run.h5", model, optimizer):
                    for step in range(800):
                        optimizer.zero_grad()
                        (model(torch.ones(1, 4, dtype=torch.bfloat16)).float().sum() * (1 if step < 20 else 2**-10)).backward()
                        optimizer.step()
                severity[name] = [finding["severity"] for finding in ulpscope.findings(folder + "/run.h5") if finding["code"] == "precision.second_moment_stuck"]
        self.assertEqual(severity, {"L2": ["info"], "none": ["warning"], "decoupled": ["warning"]})
