"""Kernels that PyTorch does not dispatch: what they write is an output of an op of kind opaque, and who reads it is no origin."""

import ctypes
import os
import tempfile
import unittest
import warnings
from typing import NamedTuple

from recorded import NEEDS_TORCH, Case, recording, torch

import ulpscope

IS_FAST = os.environ.get("ULPSCOPE_ADAPTER") != "dispatch"  # sees calls of functions begin

if torch is not None:
    nn, functional = torch.nn, torch.nn.functional

    class State:
        spoils = False  # kernels write a NaN


    def kernel(to, given):
        """Writes through pointers, as a compiled kernel does."""
        ctypes.memmove(to.data_ptr(), given.detach().contiguous().data_ptr(), given.numel() * given.element_size())
        spoil(to)
        return to

    def spoil(tensor):
        if State.spoils:
            ctypes.c_float.from_address(tensor.data_ptr()).value = float("nan")

    def numpy_of(x):
        values = x.detach().double().numpy() * 2
        if State.spoils:
            values[0, 0] = float("nan")
        return torch.from_numpy(values)

    class Forward(torch.autograd.Function):
        @staticmethod
        def backward(ctx, gradient):
            return gradient * 1.0

    class Copy(Forward):
        @staticmethod
        def forward(ctx, x):
            return kernel(torch.empty_like(x), x)

    class CopyToZeros(Forward):
        @staticmethod
        def forward(ctx, x):
            return kernel(torch.zeros_like(x), x)

    class OfNumpy(Forward):
        @staticmethod
        def forward(ctx, x):
            return numpy_of(x).float()

    class OfArray(Forward):
        @staticmethod
        def forward(ctx, x):
            return torch.from_numpy(numpy_of(x).numpy().astype("float32"))

    class InPlace(Forward):
        @staticmethod
        def forward(ctx, x):
            spoil(x)
            ctx.mark_dirty(x)
            return x

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

    class CopyGradient(Backward):
        @staticmethod
        def backward(ctx, gradient):
            return kernel(torch.empty_like(gradient), gradient)

    class CopyGradientToZeros(Backward):
        @staticmethod
        def backward(ctx, gradient):
            return kernel(torch.zeros_like(gradient), gradient)

    class GradientInPlace(Backward):
        @staticmethod
        def backward(ctx, gradient):
            spoil(gradient)
            return gradient

    class Apply(nn.Module):
        def __init__(self, *functions):
            super().__init__()
            self.functions = functions

        def forward(self, x):
            for function in self.functions:
                x = function(x)
            return x * 2

    def in_place(x):
        spoil(x)
        return functional.layer_norm(x, (8,))

    def without_gradient(x):
        with torch.no_grad():
            other = kernel(torch.empty_like(x), x)
        return x * other

    def constant(x):
        return x * numpy_of(torch.ones(1, 8)).float()


class Origin(NamedTuple):
    """An output that is not finite, of a call whose inputs were, as far as it told them."""

    name: str
    kind: str
    module: str
    phase: str


def origins(step):
    held, found = {}, []
    for call in step.calls:
        for slot, output in call.outputs.items():
            held[call.id, slot] = is_finite = bool(output.values.isfinite().all())
            if not is_finite and all(held.get(tuple(value), True) for value in call.call.inputs):
                found.append(Origin(call.call.name, call.call.kind, call.call.module, call.call.phase))
    return found


def train(function, steps=3, **options):
    """A model whose module 1 is the function; the kernel spoils its output in the last step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), Apply(*function) if isinstance(function, tuple) else Apply(function), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with recording(model, optimizer, **options) as run:
        for step in range(steps):
            State.spoils = step == steps - 1
            x = torch.randn(4, 6)
            optimizer.zero_grad()
            functional.mse_loss(model(x).squeeze(1), x.sum(1)).backward()
            optimizer.step()
    State.spoils = False
    return run.made[0].steps


def opaque(step):
    return [call for call in step.calls if call.call.kind == "opaque"]


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Kernels(Case):
    def check(self, function, name, phase="forward", is_told=True):
        *clean, spoiled = train(function)
        for step in clean:
            self.assertEqual(origins(step), [])
        self.assertEqual(origins(spoiled), [Origin(name, "opaque", "1", phase)])
        call = next(call for call in opaque(spoiled) if not all(each.values.isfinite().all() for each in call.outputs.values()))
        self.assertEqual(call.call.inputs_unknown, not is_told)
        return call

    def test_a_kernel_in_a_function(self):
        """Into memory that was empty or zeros, by numpy, in another type, or over what was there."""
        for function in (Copy, OfArray):
            self.check(function.apply, function.__name__, is_told=IS_FAST)
        self.check(CopyToZeros.apply, "CopyToZeros", is_told=IS_FAST)
        self.check(OfNumpy.apply, "OfNumpy" if IS_FAST else "unrecorded_memory", is_told=IS_FAST)
        self.check(InPlace.apply, "InPlace", is_told=IS_FAST)

    def test_a_kernel_in_backward(self):
        for function in (CopyGradient, GradientInPlace, CopyGradientToZeros):
            call = self.check(function.apply, function.__name__ + "Backward", "backward", function is not CopyGradientToZeros)
            self.assertTrue(call.call.forward_id)

    def test_a_kernel_without_a_function(self):
        """Over what an op wrote, into memory that was empty, and a tensor that Python made."""
        for function in (in_place, without_gradient, constant):
            call = self.check(function, "unrecorded_memory", is_told=False)
            self.assertTrue(call.call.location.startswith("test_opaque.py:"), call.call.location)

    def test_infinities_of_a_mask_are_no_kernel_s(self):
        def masked(x):
            return torch.softmax(x + torch.tensor([[0.0, -float("inf")] * 4]), 1)

        self.assertEqual([call.call.name for step in train(masked) for call in opaque(step)], [])

    def test_a_function_has_its_name_and_its_line(self):
        line = f"test_opaque.py:{Apply.forward.__code__.co_firstlineno + 2}"
        step = train((Copy.apply, torch.relu, OfArray.apply), 2)[0]
        first, second = opaque(step)
        self.assertEqual([call.call.name for call in (first, second)], ["Copy", "OfArray"])
        calls = {call.id: call for call in step.calls}
        if IS_FAST:
            self.assertEqual([call.call.location for call in (first, second)], [line, line])
            self.assertEqual([[calls[value.op].call.name for value in call.call.inputs] for call in (first, second)],
                             [["addmm"], ["relu"]])
        relu = next(call for call in step.calls if call.call.name == "relu")
        self.assertEqual([value.op for value in relu.call.inputs], [first.id])
        # The op of a function's backward pass belongs to it.
        belongs = {call.call.forward_id for call in step.calls if call.call.phase == "backward" and call.call.name == "mul"}
        self.assertLessEqual({first.id, second.id}, belongs)

    def test_backward_of_a_kernel(self):
        step = train(CopyGradient.apply, 2)[0]
        call, = opaque(step)
        clone = next(each for each in step.calls if each.call.name == "clone")
        self.assertEqual((call.call.module, call.call.forward_id), ("1", clone.id))
        self.assertEqual(next(iter(call.gradient_of.values()))[0].op, clone.call.inputs[0].op)

    def test_a_function_outside_of_modules_is_no_data(self):
        torch.manual_seed(0)
        first, second = nn.Linear(3, 4), nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)
        with recording([first, second], optimizer) as run:
            Copy.apply(second(Copy.apply(first(torch.ones(2, 3))))).sum().backward()
            optimizer.step()
        step, = run.made[0].steps
        self.assertEqual([call.call.name for call in opaque(step)], ["Copy", "Copy"])
        inputs = [call.call.name for call in step.calls if any(each.label.role == "input" for each in call.outputs.values())]
        self.assertEqual(inputs, ["input"])

    def test_a_function_that_computes_the_loss(self):
        class Loss(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.save_for_backward(x, y)
                return torch.from_numpy((x.detach().numpy() - y.numpy()) ** 2).mean().clone()

            @staticmethod
            def backward(ctx, gradient):
                x, y = ctx.saved_tensors
                return gradient * 2 * (x - y) / x.numel(), None

        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with recording(model, optimizer) as run:
            loss = Loss.apply(model(torch.ones(2, 3)), torch.zeros(2, 1))
            loss.backward()
            optimizer.step()
        step, = run.made[0].steps
        self.assertEqual(step.result.loss, loss.item())

    def test_a_function_of_a_weight_leaves_it_a_weight(self):
        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, weight):
                return weight.view_as(weight)

            @staticmethod
            def backward(ctx, gradient):
                return gradient

        class Layer(nn.Linear):
            def forward(self, x):
                return functional.linear(x, Same.apply(self.weight), self.bias)

        model = nn.Sequential(Layer(3, 3), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with recording(model, optimizer) as run:
            for _ in range(2):
                model(torch.ones(2, 3)).sum().backward()
                optimizer.step()
        for step in run.made[0].steps:
            gradients = {each.label.parameter for call in step.calls for each in call.outputs.values()
                         if each.label.role == "weight_gradient"}
            self.assertEqual(gradients, {"0.weight", "0.bias", "1.weight", "1.bias"})
            self.assertEqual([call.call.phase for call in opaque(step)], ["backward"])


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Observed(Case):
    def test_a_tensor_handed_in(self):
        class Layer(nn.Module):
            def forward(self, x):
                hidden = torch.empty_like(x)
                kernel(hidden, x)
                ulpscope.observe("hidden", hidden)
                ulpscope.observe("hidden", x, 4.0)
                return x * hidden

        model = nn.Sequential(nn.Linear(3, 4), Layer(), nn.Linear(4, 1))
        with recording(model) as run:
            y = model(torch.ones(2, 3))
            ulpscope.observe("logits", y)
            y.sum().backward()
        step, = run.made[0].steps
        hidden, scaled, logits = opaque(step)
        self.assertEqual([(call.call.name, call.call.module, call.call.phase) for call in (hidden, scaled, logits)],
                         [("hidden", "1", "forward"), ("hidden", "1", "forward"), ("logits", "", "loss")])
        self.assertEqual([output.label[0::3] for call in (hidden, scaled) for output in call.outputs.values()],
                         [("activation", 1.0), ("activation", 4.0)])
        addmm, last = [call for call in step.calls if call.call.name == "addmm"]
        self.assertEqual([(call.call.inputs, call.call.inputs_unknown) for call in (hidden, scaled, logits)],
                         [([], True), ([(addmm.id, 0)], False), ([(last.id, 0)], False)])
        self.assertTrue(hidden.outputs[0].values.equal(addmm.outputs[0].values))
        mul = next(call for call in step.calls if call.call.name == "mul")
        self.assertEqual([value.op for value in mul.call.inputs], [scaled.id, hidden.id])
        self.assertFalse(mul.call.inputs_unknown)

    def test_in_backward_and_of_weights(self):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with recording(model, optimizer) as run:
            for _ in range(2):
                y = model(torch.ones(2, 3))
                y.register_hook(lambda gradient: ulpscope.observe("gradient", gradient, 8.0))
                ulpscope.observe("weight", model.weight)
                y.sum().backward()
                optimizer.step()
        for step in run.made[0].steps:
            weight, gradient = opaque(step)
            self.assertEqual((weight.call.phase, gradient.call.phase), ("loss", "backward"))
            self.assertEqual(gradient.outputs[0].label[0::3], ("activation_gradient", 8.0))
            updates = [call for call in step.calls if call.updates]
            self.assertEqual([call.call.parameter for call in updates], ["weight", "bias"])

    def test_nothing_is_raised(self):
        ulpscope.observe("alone", torch.ones(2))
        ulpscope.observe(3, "no recording looks at these", None)
        model = nn.Linear(3, 2)
        wrong = ((3, torch.ones(2), 1), ("", torch.ones(2), 1), ("x", [1.0], 1), ("x", torch.ones(2, dtype=torch.int64), 1),
                 ("x", torch.ones(2), "many"), ("x", torch.ones(2), 0.0), ("x", torch.ones(2), float("nan")))
        with recording(model) as run, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ulpscope.observe("before a step", torch.ones(2))
            model(torch.ones(1, 3)).sum().backward()
            for arguments in wrong + wrong:
                ulpscope.observe(*arguments)
            ulpscope.observe("sparse", torch.ones(2).to_sparse())
            with run.pause():
                ulpscope.observe("paused", torch.ones(2))
        self.assertEqual([each.category for each in said], [RuntimeWarning] * len(wrong))
        self.assertIn("ulpscope.observe recorded nothing: x is of torch.int64; expected a floating-point type",
                      [str(each.message) for each in said])
        self.assertEqual(run._session.failed, "")
        self.assertEqual([call.call.name for step in run.made[0].steps for call in opaque(step)], [])

    def test_compiled_code_is_one_graph(self):
        graphs = []

        def backend(module, _):
            graphs.append(module)
            return module.forward

        @torch.compile(backend=backend, fullgraph=True)
        def compiled(x):
            y = x * 2
            ulpscope.observe("inside", y)
            return y + 1

        model = nn.Linear(3, 2)
        with recording(model):
            compiled(model(torch.ones(1, 3))).sum().backward()
        self.assertEqual(len(graphs), 1)

    def test_reports_name_it(self):
        """A trace on disk, by the recorder of the library."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), Apply(Copy.apply), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.h5")
            with ulpscope.record(path, model, optimizer):
                for step in range(3):
                    State.spoils = step == 2
                    x = torch.randn(4, 6)
                    y = model(x)
                    ulpscope.observe("logits", y)
                    optimizer.zero_grad()
                    functional.mse_loss(y.squeeze(1), x.sum(1)).backward()
                    optimizer.step()
            State.spoils = False
            report = ulpscope.report(path)
            cause = report.data["causes"][0]
            place = f"test_opaque.py:{Apply.forward.__code__.co_firstlineno + 2}, module 1" if IS_FAST else "module 1"
            self.assertIn(f"NaN came out of `Copy` ({place}), which cannot be looked into.", " ".join(report.text.split()))
            self.assertEqual((cause["code"], cause["op"], cause["module"], cause["step"]), ("range.nonfinite", "Copy", "1", 2))
            ops = {(op["name"], op["kind"]) for op in ulpscope.load(path).table("ops")}
            self.assertLessEqual({("Copy", "opaque"), ("logits", "opaque")}, ops)


if __name__ == "__main__":
    unittest.main()
