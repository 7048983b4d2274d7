"""Calls and each other: inputs, backward ops and their forward ops, whose gradients there are, roles and ids."""

import os
import re
import tempfile
import unittest

from recorded import NEEDS_TORCH, Case, recording, torch

if torch is not None:
    nn, functional = torch.nn, torch.nn.functional

    class Convolutions(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.second, self.up = nn.Conv2d(4, 6, 3, groups=2, stride=2), nn.ConvTranspose2d(6, 4, 2)
            self.drop, self.head = nn.Dropout(0.3), nn.Linear(4 * 25, 5)

        def forward(self, x):
            x = functional.gelu(self.norm(self.first(x)))
            return self.head(self.drop(self.up(self.second(x)).flatten(1)))

    class Orders(nn.Module):
        """Ops of ATen that read in another order than the functions they compute, or where a number stands for a tensor."""

        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.group = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.GroupNorm(2, 4)
            self.rows = nn.LayerNorm(4)
            self.bias = nn.Parameter(torch.zeros(4))
            self.head = nn.Linear(4, 5)

        def forward(self, x):
            x = functional.max_pool2d(self.group(self.norm(self.conv(x))), 2).mean((2, 3))
            x = functional.layer_norm(self.rows(x), (4,), None, self.bias)
            x = torch.where(x > 0, 2 ** x, x)
            return self.head(x)

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.head(self.body(self.embedding(x), mask=mask, is_causal=True))[:, -1]

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp() * 2

        @staticmethod
        def backward(ctx, gradient):
            x, = ctx.saved_tensors
            return gradient * x.exp() * 2

    class Custom(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 5)

        def forward(self, x):
            return self.outer(Double.apply(self.inner(x)))


def models():
    images, tokens, rows = (3, 3, 9, 9), (3, 7), (3, 4)
    return {
        "mlp": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 5)), lambda: torch.randn(rows)),
        "convolutions": (Convolutions, lambda: torch.randn(images)),
        "transformer": (Transformer, lambda: torch.randint(0, 11, tokens)),
        "custom function": (Custom, lambda: torch.randn(rows)),
    }


def run_steps(make, data, autocast=None, steps=2):
    torch.manual_seed(5)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    gradients = []
    with recording(model, optimizer) as run:
        for _ in range(steps):
            x, y = data(), torch.randint(0, 5, (3,))
            optimizer.zero_grad()
            with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
                loss = functional.cross_entropy(model(x), y)
            loss.backward()
            gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
            optimizer.step()
    return run, gradients


def functions_of_format():
    """By name, what the documents say that each function reads and makes."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "trace_format.md")
    with open(path, encoding="utf-8") as file:
        table = file.read().split("\n## Functions\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| ([^|]*) \| ([^|]*) \|", table, re.MULTILINE)
    return {name: [re.findall(r"\w+", each) for each in (inputs, outputs)] for name, inputs, outputs in rows}


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Graph(Case):
    def test_inputs_stand_where_their_function_has_them(self):
        """What an input is by the table of functions, its producer has to be."""
        table = functions_of_format()
        seen = set()
        run, _ = run_steps(Orders, lambda: torch.randn(3, 3, 9, 9))
        calls = run.made[0].steps[1].calls
        made = {call.id: call for call in run.made[0].steps[0].calls + calls}
        for call in calls:
            inputs = table.get(call.call.function, [[]])[0]
            for meaning, value in zip(inputs, call.call.inputs):
                if value.op == 0:
                    continue
                producer = made[value.op]
                told = producer.outputs[value.slot].label if value.slot in producer.outputs else None
                outputs = table.get(producer.call.function, [[], []])[1]
                what = f"{call.call.name} of {call.call.module} reads as {meaning}: {producer.call.name}"
                if meaning in ("weight", "bias"):
                    self.assertEqual((told.role, "bias" in told.parameter), ("weight", meaning == "bias"), what)
                elif meaning == "gradient":
                    self.assertEqual(producer.call.phase, "backward", what)
                elif meaning in ("mean", "inverse_deviation", "index", "running_mean", "running_variance"):
                    self.assertEqual(outputs[value.slot] if outputs != ["value"] else meaning, meaning, what)
                elif meaning == "exponent" or meaning == "value" and "gradient" in inputs:
                    self.assertTrue(told is None or told.role in ("activation", "input", "state", "buffer", "loss"), what)
                else:
                    continue
                seen.add((call.call.function, meaning))
        for function in ("batch_norm_backward", "layer_norm_backward", "group_norm_backward"):
            self.assertLessEqual({(function, each) for each in ("gradient", "value", "mean", "inverse_deviation")}, seen)
        self.assertLessEqual({("batch_norm_backward", "weight"), ("layer_norm", "bias"), ("max_pool_backward", "index"),
                              ("convolution_backward_weight", "value"), ("pow", "exponent")}, seen)

    def test_orders_name_arguments_that_the_ops_have(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recorder", "aten", "schema.cpp")
        with open(path, encoding="utf-8") as file:
            orders = re.findall(r'^ +\{"(\w+)", \{(".*")\}\},$', file.read(), re.MULTILINE)
        self.assertGreater(len(orders), 20)
        for name, listed in orders:
            arguments = re.findall(r"\w+", listed)
            packet = getattr(torch.ops.aten, name)
            known = {each.name for overload in packet.overloads() for each in getattr(packet, overload)._schema.arguments}
            self.assertLessEqual(set(arguments), known, name)

    def test_backward_ops_have_their_forward_ops(self):
        for name, (make, data) in models().items():
            for autocast in (None, torch.bfloat16):
                with self.subTest(model=name, autocast=autocast):
                    run, _ = run_steps(make, data, autocast)
                    self.assertEqual((run._session.failed, run.unmapped), ("", {}))
                    for step in run.made[0].steps:
                        for call in step.calls:
                            if call.call.phase != "backward" or call.call.parameter or call.call.name == "ones_like":
                                continue
                            self.assertTrue(call.call.forward_id, call.call)
                            self.assertFalse(call.call.inputs_unknown, call.call)

    def test_backward_modules(self):
        run, _ = run_steps(*models()["transformer"])
        calls = run.made[0].steps[1].calls
        forward = {call.id: call.call for call in calls if call.call.phase in ("forward", "loss")}
        for call in calls:
            if call.call.forward_id in forward:
                self.assertEqual(call.call.module, forward[call.call.forward_id].module)

    def test_gradients_of_parameters(self):
        for name, (make, data) in models().items():
            for autocast in (None, torch.bfloat16):
                with self.subTest(model=name, autocast=autocast):
                    run, gradients = run_steps(make, data, autocast)
                    for step, expected in zip(run.made[0].steps, gradients):
                        last = {}
                        for call in step.calls:
                            for output in call.outputs.values():
                                if output.label.role in ("weight_gradient", "accumulated_gradient"):
                                    last[output.label.parameter] = output.values
                        self.assertEqual(set(last), set(expected))
                        for parameter, gradient in expected.items():
                            self.assertTrue(torch.equal(last[parameter].flatten(), gradient.flatten()), parameter)

    def test_gradients_of_values(self):
        """Each is what autograd gives for that value, as torch.autograd.grad of values held back says."""
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x, y = torch.randn(3, 4), torch.randint(0, 5, (3,))
        with recording(model, optimizer) as run:
            first = model[0](x)
            second = model[1](first)
            loss = functional.cross_entropy(model[2](second + second * first), y)
            loss.backward()
            optimizer.step()
        torch.manual_seed(2)
        same = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))
        first = same[0](x)
        second = same[1](first)
        loss = functional.cross_entropy(same[2](second + second * first), y)
        expected = dict(zip(("addmm", "tanh"), torch.autograd.grad(loss, (first, second))))
        step, = run.made[0].steps
        names = {call.id: call.call for call in step.calls}
        found = {}
        for call in step.calls:
            for slot, (value, index) in call.gradient_of.items():
                named = names[value.op]
                # Both are read twice: their gradients are sums.
                if named.name in expected and named.module in ("0", "1") and index == -1:
                    found[named.name] = call.outputs[slot].values
        self.assertTrue(torch.allclose(found["addmm"], expected["addmm"], rtol=1e-5, atol=1e-7))
        self.assertTrue(torch.allclose(found["tanh"], expected["tanh"], rtol=1e-5, atol=1e-7))

    def test_inputs_that_gradients_belong_to(self):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        x = torch.randn(3, 4)
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            first = model[0](x)
            second = model[2](model[1](first))
            positive = first > 0
            ((first * second) * positive).sum().backward()
        step, = run.made[0].steps
        calls = {call.id: call for call in step.calls}
        handed_on = {}
        for call in step.calls:
            for slot, (value, index) in call.gradient_of.items():
                forward = calls.get(call.call.forward_id)
                if forward is not None and index >= 0:
                    handed_on.setdefault((forward.call.name, forward.call.module), []).append((index, calls[value.op].call.module))
                    self.assertEqual(forward.call.inputs[index], value, "it is the gradient of that input")
        self.assertEqual(sorted(handed_on["mul", ""]), [(0, ""), (0, "0"), (1, "2")])
        self.assertEqual(handed_on["addmm", "2"], [(0, "1")])
        self.assertEqual(handed_on["tanh", "1"], [(0, "0")])

    def test_ids_are_those_of_any_precision(self):
        for name, (make, data) in models().items():
            with self.subTest(model=name):
                ids = []
                for autocast in (None, torch.bfloat16):
                    run, _ = run_steps(make, data, autocast)
                    # Attention takes other kernels and casts in 16 bits.
                    ids.append([[(call.id, call.call.name) for call in step.calls if call.call.function not in ("cast", "copy")]
                                for step in run.made[0].steps])
                if name == "transformer":
                    ids = [[[each for each in step if each[1] in ("addmm", "mm", "native_layer_norm", "adam_update", "source")]
                            for step in steps] for steps in ids]
                self.assertEqual([set(step) for step in ids[0]], [set(step) for step in ids[1]])
                self.assertEqual(set(ids[0][1]), {call for call in ids[0][0] if call[1] != "source"})

    def test_casts(self):
        run, _ = run_steps(*models()["mlp"], torch.bfloat16)
        step = run.made[0].steps[1]
        casts = [call for call in step.calls if call.call.function == "cast" and call.outputs[0].label.role == "weight_cast"]
        self.assertEqual(sorted(call.call.parameter for call in casts), ["0.bias", "0.weight", "3.bias", "3.weight"])
        for call in casts:
            self.assertEqual((call.outputs[0].cast_from.dtype, call.outputs[0].dtype), ("f32", "bf16"))
        backward = [call for call in step.calls if call.call.function == "cast" and call.call.phase == "backward"]
        self.assertIn(("0.weight", "accumulated_gradient"),
                      [(call.outputs[0].label.parameter, call.outputs[0].label.role) for call in backward])

    def test_weights_keep_their_maker(self):
        run, _ = run_steps(*models()["mlp"])
        first, second = run.made[0].steps
        updates = {call.id for call in first.calls if call.call.function == "sgd_update"}
        sources = {call.id for call in first.calls if call.call.function == "source" and call.call.parameter}
        linear = next(call for call in second.calls if call.call.name == "addmm")
        self.assertTrue({value.op for value in linear.call.inputs[1:]} <= updates)
        before = next(call for call in first.calls if call.call.name == "addmm")
        self.assertTrue({value.op for value in before.call.inputs[1:]} <= sources)
        self.assertFalse([call for call in second.calls if call.call.function == "source" and call.call.parameter])

    def test_inputs_and_targets(self):
        run, _ = run_steps(*models()["mlp"], steps=3)
        for step in run.made[0].steps:
            given = [(call.call.name, call.call.phase) for call in step.calls
                     if call.call.function == "source" and not call.call.parameter]
            self.assertEqual(given, [("input", "data"), ("target", "data")])
        x, y = torch.randn(3, 4), torch.randint(0, 5, (3,))
        again, _ = run_steps(lambda: nn.Linear(4, 5), lambda: x, steps=3)
        self.assertEqual([[call.call.name for call in step.calls].count("input") for step in again.made[0].steps], [1] * 3)
        model = nn.Linear(4, 5)
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            functional.cross_entropy(model(x) + model(x), y).backward()
        self.assertEqual([call.call.name for call in run.made[0].steps[0].calls].count("input"), 1)

    def test_constants_of_a_loss(self):
        """What has no rows of samples is no target: it is told once, with its role. What has as many rows as the batch stays one."""
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        of_columns, one_row, number, matrix, rows = torch.rand(3), torch.rand(1, 3), torch.tensor(0.5), torch.rand(3, 3), torch.rand(8)
        losses = {"columns": lambda out, y: (out - y) ** 2 * of_columns, "row": lambda out, y: (out - y) ** 2 / one_row,
                  "number": lambda out, y: (out - y) ** 2 * number, "mm": lambda out, y: (out @ matrix - y) ** 2,
                  "addmm": lambda out, y: (torch.addmm(of_columns, out, matrix) - y) ** 2,
                  "rows": lambda out, y: ((out - y) ** 2).mean(1) * rows, "same rank": lambda out, y: (out - y) ** 2 * y.sigmoid()}
        constants = {"columns": 1, "row": 1, "number": 1, "mm": 1, "addmm": 2}
        targets = {"rows": 2}
        for name, loss in losses.items():
            with self.subTest(name):
                with recording(model, optimizer) as run:
                    for _ in range(2):
                        loss(model(torch.randn(8, 4)), torch.randn(8, 3)).mean().backward()
                        optimizer.step()
                first, second = [[(call.call.name, call.outputs[0].label.role) for call in step.calls if call.call.function == "source"
                                  and call.call.name in ("target", "constant")] for step in run.made[0].steps]
                told = [("target", "input")] * targets.get(name, 1)
                self.assertEqual(sorted(first), [("constant", "buffer")] * constants.get(name, 0) + told)
                self.assertEqual(second, told)

    def test_products(self):
        torch.manual_seed(0)
        model = Convolutions()
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            model(torch.randn(2, 3, 9, 9)).sum().backward()
        products = {call.call.module: call.call.product for call in run.made[0].steps[0].calls
                    if call.call.phase == "forward" and call.call.product}
        self.assertEqual(products, {"first": (162, 4, 27, 1, 0), "second": (32, 3, 18, 2, 0), "up": (32, 16, 6, 1, 0),
                                    "head": (2, 5, 100, 1, 1)})

    def test_buffers_of_batch_norm(self):
        run, _ = run_steps(*models()["convolutions"])
        norm = next(call for call in run.made[0].steps[1].calls if call.call.function == "batch_norm")
        self.assertEqual([(slot, norm.outputs[slot].label.role, norm.outputs[slot].label.parameter) for slot in (3, 4)],
                         [(3, "buffer", "norm.running_mean"), (4, "buffer", "norm.running_var")])


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Memory(Case):
    """Whose values a tensor has."""

    def forward_of(self, body, *given):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(4))

            def forward(self, *args):
                return body(self, *args)

        model = Model()
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            model(*given).sum().backward()
        self.assertEqual(run._session.failed, "")
        step, = run.made[0].steps
        names = {call.id: (call.call.name, call.call.parameter) for call in step.calls}
        return {call.call.name: ([names[value.op][0] for value in call.call.inputs], call.call.inputs_unknown)
                for call in step.calls if call.call.phase in ("forward", "loss")}, step

    def test_views_are_their_values(self):
        seen, _ = self.forward_of(lambda model, x: (x * model.weight).view(2, 2).t()[0].exp(), torch.ones(4))
        self.assertEqual(seen, {"mul": (["input", "source"], False), "exp": (["mul"], False), "sum": (["exp"], False)})

    def test_a_buffer_that_is_written_before_it_is_read_is_its_ops(self):
        class Average(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)
                self.register_buffer("average", torch.zeros(4))

            def forward(self, x):
                x = self.layer(x)
                with torch.no_grad():
                    self.average.copy_(x.mean(0))
                return x - self.average

        run = self.run_model(Average())
        calls = {call.id: call for call in run.made[0].steps[0].calls}
        sub = next(call for call in calls.values() if call.call.name == "sub")
        self.assertEqual([calls[value.op].call.name for value in sub.call.inputs], ["addmm", "copy_"])
        self.assertFalse([call for call in calls.values() if call.call.parameter == "average"])

    def test_parts_of_many_makers_are_not_known(self):
        """Of 100 parts that were written one by one some are forgotten: what reads the whole has inputs that are not known."""

        class Rows(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                x = self.layer(x)
                out = torch.zeros(100, 4)
                with torch.no_grad():
                    for row in range(100):
                        out[row] = x[0] * row
                return x.sum() + out.exp().sum()

        run = self.run_model(Rows())
        call = next(call for call in run.made[0].steps[0].calls if call.call.name == "exp")
        self.assertTrue(call.call.inputs_unknown)

    def test_a_part_that_is_set_to_zero_hides_no_maker(self):
        class Zeroed(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                return self.layer(x)

        torch.manual_seed(1)
        model = Zeroed()
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            logits = model(torch.randn(3, 4))
            with torch.no_grad():
                logits[0].zero_()
            logits.exp().sum().backward()
        calls = {call.id: call for call in run.made[0].steps[0].calls}
        exp = next(call for call in calls.values() if call.call.name == "exp")
        self.assertIn("addmm", [calls[value.op].call.name for value in exp.call.inputs if value.op])

    def test_gradients_that_are_expanded(self):
        """One number for all elements, as of evolution strategies: what is kept for the step is no more than its memory."""
        model = nn.Linear(300, 300)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
        with recording(model, optimizer) as run:
            model(torch.randn(2, 300))
            for parameter in model.parameters():
                parameter.grad = torch.ones(1).expand_as(parameter)
            optimizer.step()
        step, = run.made[0].steps
        call = next(call for call in step.calls if call.call.parameter == "weight" and call.updates)
        self.assertTrue(torch.equal(call.updates[0].gradient, torch.ones(300, 300)))
        self.assertAlmostEqual(step.result.norms[0], 90300**0.5, places=9)

    def test_gradients_of_silu_and_rms_norm(self):
        run = self.run_model(nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.RMSNorm(4), nn.Mish(), nn.Linear(4, 2)))
        calls = run.made[0].steps[0].calls
        names = {call.call.name for call in calls if call.call.phase == "backward"}
        self.assertTrue({"silu_backward", "mish_backward"} <= names, names)
        weights = {output.label.parameter for call in calls for output in call.outputs.values() if output.label.role == "weight_gradient"}
        self.assertEqual(weights, {"0.weight", "0.bias", "2.weight", "4.weight", "4.bias"})

    def run_model(self, model):
        torch.manual_seed(1)
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            model(torch.randn(3, 4)).sum().backward()
        self.assertEqual(run._session.failed, "")
        return run

    def test_what_a_derivative_works_out_by_itself_is_no_gradient(self):
        """The derivative of rsqrt is -y^3 / 2 times the gradient: y^3 holds no loss scale."""
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def roles_of_backward(begin):
            with recording(model, optimizer) as run:
                torch.manual_seed(1)
                begin(model(torch.randn(3, 4)).abs().add(1))
            return [(call.call.name, output.label.role) for call in run.made[0].steps[0].calls if call.call.phase == "backward"
                    for output in call.outputs.values()]

        roles = roles_of_backward(lambda hidden: hidden.rsqrt().sum().backward())
        self.assertIn(("pow", "activation"), roles)
        self.assertEqual({role for name, role in roles if name == "mul"}, {"activation_gradient"})
        # The program multiplies by a tensor of its own what it then gives for a gradient.
        given = roles_of_backward(lambda hidden: hidden.square().backward(hidden.detach() * 2))
        self.assertEqual({role for name, role in given if name == "mul"}, {"activation_gradient"})

    def test_memory_of_empty_is_not_known(self):
        seen, step = self.forward_of(lambda model, x: x * model.weight + torch.empty(4), torch.ones(4))
        self.assertEqual(seen["add"], (["mul"], True))
        self.assertNotIn("empty", [call.call.name for call in step.calls])

    def test_memory_of_empty_is_no_input_of_a_loss(self):
        model = nn.Linear(3, 2)
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            (model(torch.ones(4, 3)) * torch.empty(2)).sum().backward()
        step, = run.made[0].steps
        self.assertNotIn("target", [call.call.name for call in step.calls])
        self.assertTrue(next(call for call in step.calls if call.call.name == "mul").call.inputs_unknown)

    def test_gradients_of_views_are_ops_of_their_own(self):
        _, step = self.forward_of(lambda model, x: (x * model.weight).expand(3, 4).exp(), torch.ones(4))
        back = next(call for call in step.calls if call.call.phase == "backward" and call.call.name == "sum")
        made = next(call for call in step.calls if call.call.name == "mul" and call.call.phase == "forward")
        self.assertNotIn(back.call.forward_id, [0, made.id])
        self.assertEqual(back.gradient_of[0][0].op, made.id)

    def test_parts_make_a_whole(self):
        def body(model, x):
            whole = torch.empty(4)
            whole[:2] = x[:2].exp()
            whole[2:] = x[2:].sin()
            return whole * model.weight

        seen, _ = self.forward_of(body, torch.ones(4))
        self.assertFalse(seen["mul"][1])
        self.assertEqual(sorted(seen["mul"][0]), ["copy_", "copy_", "source"])

        def half(model, x):
            whole = torch.empty(4)
            whole[:2] = x[:2].exp()
            return whole * model.weight

        self.assertTrue(self.forward_of(half, torch.ones(4))[0]["mul"][1])

    def test_in_place_and_out(self):
        def body(model, x):
            y = x.clone()
            y.mul_(3)
            with torch.no_grad():
                torch.add(y, 1, out=y)
            return y * model.weight

        seen, _ = self.forward_of(body, torch.ones(4))
        self.assertEqual(seen["mul_"], (["clone"], False))
        self.assertEqual(seen["add"], (["mul_"], False))
        self.assertEqual(seen["mul"], (["add", "source"], False))

    def test_lists(self):
        def body(model, x):
            first, second = torch._foreach_mul([x, x + 1], 2.0)
            return (first + second) * model.weight

        seen, step = self.forward_of(body, torch.ones(4))
        self.assertEqual(len([call for call in step.calls if call.call.name == "_foreach_mul"]), 2)

    def test_kinds_that_are_not_read(self):
        def body(model, x):
            complex_values = torch.complex(x, x).abs()
            sparse = torch.eye(4).to_sparse() @ x
            meta = torch.ones(3, device="meta") * 2
            assert meta.is_meta
            eight = x.to(torch.float8_e4m3fn).float()
            return (complex_values.float() + sparse + eight) * model.weight

        seen, step = self.forward_of(body, torch.ones(4))
        self.assertTrue(seen["add"][1])

    def test_no_row_of_what_prepares_data(self):
        model = nn.Linear(3, 2)
        with recording(model, torch.optim.SGD(model.parameters(), 0.1)) as run:
            for _ in range(2):
                x = (torch.rand(4, 3) - 0.5) * 2
                model(x).sum().backward()
        names = [call.call.name for call in run.made[0].steps[0].calls]
        self.assertNotIn("rand", names)
        self.assertNotIn("sub", names)
        self.assertEqual(names.count("input"), 2)

    def test_lines_of_the_user(self):
        _, step = self.forward_of(lambda model, x: functional.softmax(x * model.weight, 0), torch.ones(4))
        for name in ("mul", "_softmax", "sum"):
            call = next(call for call in step.calls if call.call.name == name)
            self.assertRegex(call.call.location, r"test_graph\.py:\d+$")


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Unusual(Case):
    """Programs that do more than layers and losses: recording lives, and steps have the losses that they had."""

    def check(self, train, losses):
        torch.manual_seed(4)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with recording(model, optimizer) as run:
            said = train(model, optimizer, lambda: torch.randn(2, 4))
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        self.assertEqual((run._session.failed, dict(run._session.refusals)), ("", {}))
        expected = [None] * losses if said is None else said
        self.assertEqual([step.result.loss for step in run.made[0].steps][:len(expected)], expected)
        return run.made[0]

    def test_functional_transforms(self):
        def train(model, _, data):
            def loss(parameters, x):
                return torch.func.functional_call(model, parameters, (x,)).sum()

            torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), torch.randn(5, 4))
            torch.func.jvp(model, (data(),), (data(),))

        self.check(train, 0)

    def test_scripts_and_inference_mode(self):
        def train(model, optimizer, data):
            @torch.jit.script
            def doubled(x):
                return x * 2 + x.exp()

            with torch.inference_mode():
                model(data())
            loss = doubled(model(data())).sum()
            loss.backward()
            optimizer.step()
            return [loss.item()]

        self.assertIn(("evaluation", 0, 0), self.check(train, 1).steps[0].passes)

    def test_two_losses_at_once(self):
        def train(model, optimizer, data):
            hidden = model(data())
            first, second = hidden.sum(), (hidden * hidden).sum()
            torch.autograd.backward([first, second])
            optimizer.step()
            return [first.item() + second.item()]

        self.check(train, 1)

    def test_gradients_given(self):
        def train(model, optimizer, data):
            model(data()).backward(torch.ones(2, 3))
            optimizer.step()

        self.check(train, 1)

    def test_hook_of_the_user_that_raises(self):
        def train(model, optimizer, data):
            hidden = model(data())
            loss = hidden.sum()
            hidden.register_hook(lambda gradient: 1 / 0)
            with self.assertRaises(ZeroDivisionError):
                loss.backward()
            optimizer.step()

        self.check(train, 0)

    def test_optimizer_that_raises(self):
        def train(model, optimizer, data):
            class Broken(torch.optim.SGD):
                def step(self, closure=None):
                    raise ArithmeticError("no")

            model(data()).sum().backward()
            with self.assertRaises(ArithmeticError):
                Broken(model.parameters(), 0.1).step()
            optimizer.step()

        recorded = self.check(train, 0)
        self.assertEqual(len(recorded.steps), 2)
        self.assertTrue(any(call.call.phase == "forward" for call in recorded.steps[1].calls))

    def test_losses_that_are_logged(self):
        def train(model, optimizer, data):
            total, losses = 0, []
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(data()).sum()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                total += loss
            return losses

        recorded = self.check(train, 3)
        self.assertNotIn("add", [call.call.name for step in recorded.steps for call in step.calls])

    @unittest.skipIf(torch is None or not torch.distributed.is_available(), "torch.distributed is not there")
    def test_what_other_processes_sent_comes_out_of_a_collective(self):
        with tempfile.TemporaryDirectory() as folder:
            store = torch.distributed.FileStore(folder + "/store", 1)
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
            self.addCleanup(torch.distributed.destroy_process_group)
            model = nn.Linear(4, 3)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            with recording(model, optimizer) as run:
                model(torch.randn(2, 4)).sum().backward()
                torch.distributed.all_reduce(model.weight.grad)
                optimizer.step()
        step, = run.made[0].steps
        calls = {call.id: call for call in step.calls}
        read = {call.call.parameter: {calls[value.op].call.kind for value in call.call.inputs if value.op}
                for call in step.calls if call.call.function == "sgd_update"}
        self.assertIn("collective", read["weight"])
        self.assertNotIn("collective", read["bias"])
        sent, = (call for call in step.calls if call.call.kind == "collective")
        self.assertEqual([calls[value.op].outputs[value.slot].label.parameter for value in sent.call.inputs], ["weight"])

    def test_sparse_gradients(self):
        embedding = nn.Embedding(9, 4, sparse=True)
        optimizer = torch.optim.SGD(embedding.parameters(), 0.1)
        with recording(embedding, optimizer) as run:
            embedding(torch.tensor([1, 2])).sum().backward()
            optimizer.step()
        self.assertEqual(run._session.failed, "")
        self.assertGreater(run.made[0].coverage["not_read.sparse"], 0)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Updates(Case):
    def check(self, make, function, tolerance=1e-6):
        torch.manual_seed(1)
        model = nn.Linear(5, 4)
        optimizer = make(model.parameters())
        with recording(model, optimizer) as run:
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(6, 5)).square().sum().backward()
                optimizer.step()
        self.assertEqual(run._session.failed, "")
        for step in run.made[0].steps:
            calls = [call for call in step.calls if call.updates]
            self.assertEqual([(call.call.parameter, call.call.function) for call in calls],
                             [("weight", function), ("bias", function)])
            for call in calls:
                update = call.updates[0]
                if update.update is not None:
                    moved = update.after.double() - update.before.double()
                    self.assertTrue(torch.allclose(update.update.double(), moved, rtol=1e-4, atol=tolerance))
                    self.assertEqual(call.outputs[max(call.outputs)].label.role, "update")
        return run.made[0].steps, calls

    def test_rules(self):
        optim = torch.optim
        for make in (lambda p: optim.SGD(p, 0.01, weight_decay=0.1), lambda p: optim.SGD(p, 0.01, momentum=0.9, weight_decay=0.1),
                     lambda p: optim.SGD(p, 0.01, momentum=0.9, nesterov=True, foreach=True),
                     lambda p: optim.SGD(p, 0.01, momentum=0.9, dampening=0.5, maximize=True)):
            steps, calls = self.check(make, "sgd_update")
            self.assertIsNotNone(calls[0].updates[0].update)
        for make in (lambda p: optim.Adam(p, 0.01, weight_decay=0.1), lambda p: optim.AdamW(p, 0.01, weight_decay=0.1),
                     lambda p: optim.AdamW(p, 0.01, fused=True), lambda p: optim.Adam(p, 0.01, amsgrad=True, foreach=True)):
            steps, calls = self.check(make, "adam_update")
            self.assertIsNotNone(calls[0].updates[0].update)
            self.assertEqual([calls[0].outputs[slot].label.name for slot in (1, 2)], ["exp_avg", "exp_avg_sq"])
        steps, calls = self.check(lambda p: optim.RMSprop(p, 0.01), "assign")
        self.assertIsNone(calls[0].updates[0].update)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Compiled(Case):
    def test_compiled_models_have_steps(self):
        """Forward, loss and updates are told; inputs of ops in a compiled region are not known."""
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        compiled, graphs = torch.compile(model, backend="aot_eager", fullgraph=True), torch._dynamo.utils.counters["stats"]
        before, optimizer = graphs["unique_graphs"], torch.optim.SGD(model.parameters(), 0.1)
        x, y = torch.randn(6, 4), torch.arange(6) % 2
        losses = []
        with recording(compiled, optimizer) as run:
            for _ in range(2):
                optimizer.zero_grad()
                loss = functional.cross_entropy(compiled(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertEqual(graphs["unique_graphs"] - before, 1)
        self.assertEqual([step.result.loss for step in run.made[0].steps], losses)
        self.assertEqual(run.made[0].notes, [])
        step = run.made[0].steps[1]
        inside = [call.call for call in step.calls if call.call.name == "addmm"]
        self.assertEqual([call.inputs_unknown for call in inside], [True, True])
        gradients = {output.label.parameter for call in step.calls for output in call.outputs.values()
                     if output.label.role == "weight_gradient"}
        self.assertEqual(gradients, {"0.weight", "0.bias", "2.weight", "2.bias"})

    def test_compiled_regions_stay_compiled(self):
        graphs = []

        def backend(module, _):
            graphs.append(module)
            return module.forward

        model, other = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6))
        run_compiled = torch.compile(model, backend=backend, fullgraph=True)
        head = nn.Linear(6, 2)
        run_compiled(torch.randn(3, 4))
        with recording([model, head], torch.optim.SGD(head.parameters(), 0.1)) as run:
            head(run_compiled(torch.randn(3, 4))).sum().backward()
        self.assertEqual(run._session.failed, "")
        run_compiled(torch.randn(3, 4))
        self.assertEqual(len(graphs), 1, "it was compiled again")
        with recording(nn.Sequential(other, head), torch.optim.SGD(head.parameters(), 0.1)) as run:
            head(torch.compile(other, backend=backend, fullgraph=True)(torch.randn(3, 4))).sum().backward()
        self.assertEqual(len(graphs), 2, "what is compiled in a recording is one graph")
        with recording([model, head], torch.optim.SGD(head.parameters(), 0.1), compile="eager") as run:
            head(run_compiled(torch.randn(3, 4))).sum().backward()
        self.assertIn(("0.0", "addmm"), [(call.call.module, call.call.name) for call in run.made[0].steps[0].calls])


if __name__ == "__main__":
    unittest.main()
