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
        for told, (before, mean, loss, after) in zip(self.additions(run.made[0].steps), seen):
            self.assertEqual(len(told), 2, told)
            self.check(told[0][2], before[0], mean, after[0], 0.5)
            self.check(told[1][2], before[1], loss, after[1])

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
        self.assertEqual([rows["asked"], rows["arrived"]], [[299.0] * 2, [255.0] * 2])
