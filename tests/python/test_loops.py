"""Training loops that are easily told wrong: odd scales, optimizers and losses, copies of models, pauses, refusals."""

import contextlib
import copy
import io
import math
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
import weakref
from unittest import mock

from recorded import NEEDS_TORCH, Case, Recorded, Refused, recording, torch

if torch is not None:
    nn = torch.nn


def linear(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(4, 1)


def sgd(model, rate=0.01):
    return torch.optim.SGD(model.parameters(), rate)


def step(model, optimizer, loss_of=lambda y: y.pow(2).mean(), data=None):
    optimizer.zero_grad()
    loss = loss_of(model(torch.ones(2, 4) if data is None else data))
    loss.backward()
    optimizer.step()
    return loss.item()


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Scalers(Case):
    def overflow(self, optimizer_of, init_scale, unscale=False):
        model = linear()
        optimizer, scaler = optimizer_of(model), torch.amp.GradScaler("cpu", init_scale=init_scale)
        with recording(model, optimizer, scaler) as run:
            for number in range(6):
                optimizer.zero_grad()
                loss = model(torch.full((2, 4), float("inf") if number < 4 else 1.0)).sum()
                scaler.scale(loss).backward()
                if unscale:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
        return run.made[0].steps

    def test_a_loss_scale_of_one(self):
        """It is no optimizer that unscales in its step."""
        for optimizer_of in (sgd, lambda model: torch.optim.AdamW(model.parameters(), 0.01, fused=True)):
            for unscale in (False, True):
                with self.subTest(unscale=unscale, optimizer=optimizer_of):
                    steps = self.overflow(optimizer_of, 4.0, unscale)
                    self.assertEqual([each.result.skipped for each in steps], [True] * 4 + [False] * 2)
                    self.assertEqual([each.result.scales[0] for each in steps], [4.0, 2.0, 1.0, 0.5, 0.25, 0.25])
        for each in self.overflow(sgd, 1.0)[:1]:
            self.assertEqual([call.call.name for call in each.calls if call.call.phase == "scaling"], ["scale"] + ["unscale"] * 2)

    def test_subclasses_with_methods_of_their_own(self):
        """As of fully sharded models: what they do is what GradScaler does."""

        class Extended(torch.amp.GradScaler):
            def scale(self, outputs):
                return super().scale(outputs)

            def unscale_(self, optimizer):
                return super().unscale_(optimizer)

            def update(self, new_scale=None):
                return super().update(new_scale)

        class Own(torch.amp.GradScaler):
            def scale(self, outputs):
                if self._scale is None:
                    self._lazy_init_scale_growth_tracker(outputs.device)
                return outputs * self._scale

            def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
                gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
                torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale)
                return {found_inf.device: found_inf}

            def update(self, new_scale=None):
                states = self._per_optimizer_states.values()
                if any(found > 0 for state in states for found in state["found_inf_per_device"].values()):
                    self._scale *= self._backoff_factor
                self._per_optimizer_states.clear()

        class Unrelated:
            """It has the methods, and no class of PyTorch's."""

            def __init__(self, device, init_scale):
                self.inner = torch.amp.GradScaler(device, init_scale=init_scale)
                self.is_enabled, self.get_scale = self.inner.is_enabled, self.inner.get_scale

            def scale(self, outputs):
                return self.inner.scale(outputs)

            def step(self, optimizer):
                return self.inner.step(optimizer)

            def update(self):
                return self.inner.update()

        def told(kind, **options):
            model = linear()
            optimizer, scaler = sgd(model), kind("cpu", init_scale=2.0**16)
            losses = []
            with recording(model, optimizer, scaler, **options) as run:
                for number in range(8):
                    optimizer.zero_grad()
                    loss = model(torch.full((2, 4), float("inf") if number in (2, 3) else 1.0)).sum()
                    losses.append(loss.item())
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
            self.assertEqual(run._session.failed, "")
            self.assertEqual(run.made[0].warnings, [])
            steps = run.made[0].steps
            self.assertEqual(repr([each.result.loss for each in steps]), repr(losses))
            labels = [[output.label.scale for call in each.calls for output in call.outputs.values()
                       if output.label.role in ("weight_gradient", "loss")] for each in steps]
            return [each.result._replace(seconds=0) for each in steps], labels

        for options in ({}, {"sample": 3}):
            wanted = told(torch.amp.GradScaler, **options)
            self.assertEqual([each.skipped for each in wanted[0]], [False] * 2 + [True] * 2 + [False] * 4)
            for kind in (Extended, Own, Unrelated):
                with self.subTest(kind=kind.__name__, options=options):
                    self.assertEqual(repr(told(kind, **options)), repr(wanted))

    def test_scalers_that_are_not_followed(self):
        class Unknown:
            is_enabled = staticmethod(lambda: True)
            get_scale = staticmethod(lambda: 1024.0)

        model = linear()
        optimizer, scaler = sgd(model), Unknown()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with recording(model, optimizer, scaler) as run:
                for _ in range(2):
                    step(model, optimizer, lambda y: y.sum() * 1024)
        self.assertEqual(run._session.failed, "")
        told = ["The gradient scaler (Unknown) was not seen to multiply a loss: losses and gradients are told as if they had no loss scale."]
        self.assertEqual(run.made[0].warnings, told)
        self.assertEqual([str(each.message) for each in said], ["ulpscope: " + told[0]])

    def test_scaled_losses_that_are_sometimes_multiplied(self):
        model = linear()
        optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
        with recording(model, optimizer, scaler) as run:
            for number in range(4):
                optimizer.zero_grad()
                loss = model(torch.ones(2, 4)).pow(2).mean()
                if number % 2 == 0:
                    loss = loss * 0.5
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        names = [[call.call.name for call in each.calls if (call.call.function, call.call.phase) in (("mul", "loss"), ("scale", "scaling"))]
                 for each in run.made[0].steps]
        self.assertEqual(names, [["mul", "scale"], ["scale"]] * 2)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Names(Case):
    """A name has one function, so that an id has one."""

    def test_convolutions_whose_input_needs_a_gradient_at_times(self):
        torch.manual_seed(0)
        generator = nn.ConvTranspose2d(3, 3, 3)
        critic = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 1))
        optimizers = sgd(critic), sgd(generator)
        with recording({"G": generator, "D": critic}, list(optimizers)) as run:
            for _ in range(2):
                fake = generator(torch.randn(2, 3, 6, 6))
                optimizers[0].zero_grad()
                (critic(torch.randn(2, 3, 8, 8)).mean() - critic(fake.detach()).mean()).backward()
                optimizers[0].step()
                optimizers[1].zero_grad()
                (-critic(fake).mean()).backward()
                optimizers[1].step()
        names = {call.call.name for each in run.made[0].steps for call in each.calls
                 if call.call.function.startswith("convolution_b")}
        self.assertEqual(names, {"convolution_backward", "convolution_backward_weight"})

    def test_layers_that_are_thawed(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
        model[0].requires_grad_(False)
        optimizer = sgd(model)
        with recording(model, optimizer) as run:
            for number in range(4):
                model[0].requires_grad_(number > 1)
                step(model, optimizer, torch.sum, torch.ones(1, 3, 8, 8))
        self.assertEqual(len(run.made[0].steps), 4)

    def test_copies_that_are_casts_at_times(self):
        model, buffer = linear(), torch.zeros(2, 4)
        optimizer = sgd(model)

        def copied(dtype):
            with torch.no_grad():
                buffer.copy_(torch.ones(2, 4, dtype=dtype))
            return buffer.to(torch.float64 if dtype is torch.float32 else torch.float32, copy=True).float()

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.dtype = model, torch.float32

            def forward(self, x):
                return self.inner(copied(self.dtype) * x)

        whole = Model()
        with recording(whole, optimizer) as run:
            for whole.dtype in (torch.float32, torch.float16, torch.float64, torch.int64):
                step(whole, optimizer)
        names = {call.call.function: call.call.name for each in run.made[0].steps for call in each.calls
                 if call.call.name in ("copy_", "cast", "convert")}
        self.assertEqual(names, {"copy": "copy_", "cast": "cast", "other": "convert"})

    def test_casts_to_wider_types_are_told(self):
        model = linear()
        with recording(model, sgd(model)) as run:
            model(torch.ones(2, 4)).double().float().sum().backward()
        casts = [call.outputs[0] for call in run.made[0].steps[0].calls
                 if call.call.function == "cast" and call.call.phase == "loss"]
        self.assertEqual([(each.dtype, each.cast_from) for each in casts], [("f64", None), ("f32", None)])

    def test_attributes_that_vary(self):
        model = linear()
        optimizer = sgd(model)
        with recording(model, optimizer) as run:
            for number in range(4):
                step(model, optimizer, lambda y, number=number: (y * (1.5 + number // 2)).sum())
        told = [call.call.attributes for each in run.made[0].steps for call in each.calls
                if call.call.name == "mul" and call.call.phase == "loss"]
        self.assertEqual(told, ["other=1.5", "other=1.5", "other=varies", "other=varies"])


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Models(Case):
    def test_models_are_saved_while_they_are_recorded(self):
        model = nn.Sequential(linear())
        with recording(model, sgd(model)), tempfile.TemporaryDirectory() as folder:
            file = io.BytesIO()
            torch.save(model, file)
            again = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
            self.assertTrue(torch.equal(again(torch.ones(2, 4)), model(torch.ones(2, 4))))
            path = os.path.join(folder, "model.pt")
            with open(path, "wb") as out:
                out.write(file.getvalue())
            code = (f"import torch, sys; model = torch.load({path!r}, weights_only=False); model(torch.ones(2, 4)); "
                    "print('ulpscope' in sys.modules)")
            said = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True).stdout
            self.assertEqual(said, "False\n", "a saved model needs the package")

    def test_optimizers_with_other_settings(self):
        """Adafactor has two numbers for eps, and a rule of its own."""
        model = linear()
        optimizer = torch.optim.Adafactor(model.parameters(), 0.01)
        with recording(model, optimizer) as run:
            step(model, optimizer)
        self.assertEqual(run._session.failed, "")
        self.assertEqual([name for name, _, _ in run.made[0].settings][:2], ["optimizer", "lr"])
        self.assertEqual(len(run.made[0].steps), 1)

    def test_the_rate_that_a_program_gave(self):
        """A warm-up changes it as soon as it is made."""
        model = linear()
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01)
        with recording(model, optimizer) as run:
            step(model, optimizer)
        self.assertIn(("lr", "0.5", "learning_rate"), run.made[0].settings)
        self.assertEqual(run.made[0].steps[0].result.learning_rate, 0.005)

    def test_optimizers_without_a_learning_rate(self):
        """They find one for themselves in each step."""

        class Relative(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure=None):
                for parameter in self.param_groups[0]["params"]:
                    parameter -= 0.01 * parameter.grad

        for defaults in ({"lr": None}, {}):
            for options in ({}, {"sample": 2}):
                for scaler in (None, torch.amp.GradScaler("cpu", init_scale=4.0)):
                    with self.subTest(defaults=defaults, options=options, scaled=scaler is not None):
                        model = linear()
                        optimizer = Relative(model.parameters(), defaults)
                        with recording(model, optimizer, scaler, **options) as run:
                            for number in range(4):
                                optimizer.zero_grad()
                                loss = model(torch.full((2, 4), float("inf") if scaler is not None and number == 1 else 1.0)).sum()
                                (loss if scaler is None else scaler.scale(loss)).backward()
                                if scaler is None:
                                    optimizer.step()
                                else:
                                    scaler.step(optimizer)
                                    scaler.update()
                        self.assertEqual(run._session.failed, "")
                        steps = run.made[0].steps
                        self.assertEqual([each.result.learning_rate for each in steps], [None] * 4)
                        updated = [update for call in steps[0].calls for update in call.updates.values()]
                        self.assertEqual(len(updated), 2)
                        self.assertTrue(all(math.isnan(update.learning_rate) for update in updated))

    def test_parameters_that_are_replaced(self):
        """They have names as those before had, and the memory of those is the program's again."""
        for options in ({}, {"sample": 4}):
            with self.subTest(options=options):
                torch.manual_seed(0)
                model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
                optimizer = sgd(model)
                with recording(model, **options) as run:
                    for number in range(9):
                        if number == 4:
                            gone = [weakref.ref(parameter) for parameter in model[1].parameters()]
                            model[1] = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
                            optimizer = sgd(model)
                        elif number == 8:
                            gone.append(weakref.ref(model[0].weight))
                            model[0].weight = nn.Parameter(torch.ones(4, 4))
                            optimizer = sgd(model)
                        step(model, optimizer)
                        if number in (4, 8):
                            self.assertEqual([each() for each in gone], [None] * len(gone))
                self.assertEqual(run._session.failed, "")
                steps = run.made[0].steps
                before, after = ["0.weight", "0.bias", "1.weight", "1.bias"], [
                    "0.weight", "0.bias", "1.0.weight", "1.0.bias", "1.1.weight", "1.1.bias"]
                for number, names in ((0, before), (4, after), (8, after)):
                    calls = steps[number].calls
                    self.assertEqual([call.call.parameter for call in calls if call.updates], names)
                    gradients = {output.label.parameter for call in calls for output in call.outputs.values()
                                 if output.label.role == "weight_gradient"}
                    self.assertEqual(gradients, set(names))
                    modules = {call.call.module for call in calls if call.call.name == "addmm" and call.call.phase == "forward"}
                    self.assertEqual(modules, {name.rpartition(".")[0] for name in names})

    def test_addresses_of_replaced_parameters_are_kept(self):
        """So that nothing is taken for a parameter that lies where one was."""
        model = nn.Sequential(nn.Linear(4, 4), linear())
        with recording(model) as run:
            step(model, sgd(model))
            addresses = [parameter._cdata for parameter in model[1].parameters()]
            model[1] = nn.Linear(4, 2)
            step(model, sgd(model))
            self.assertEqual([run._session._held[address].expired() for address in addresses], [True, True])
        self.assertEqual(run._session.failed, "")

    def test_parameters_that_are_swapped(self):
        """As where a module moves whose parameters are of a class of their own: that is refused of tensors with weak references."""
        self.addCleanup(torch.__future__.set_swap_module_params_on_conversion, False)
        torch.__future__.set_swap_module_params_on_conversion(True)
        model = linear()
        with recording(model, sgd(model)) as run:
            step(model, sgd(model))
            model.to(torch.float64)
            model.to(torch.float32)
            step(model, sgd(model))
        self.assertEqual(run._session.failed, "")

    def test_modules_that_were_compiled_in_place_keep_their_bits(self):
        """They have no hooks, which would change what of them is compiled."""
        stats = torch._dynamo.utils.counters["stats"]

        def trained(record):
            torch._dynamo.reset()
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
            model[1].compile(backend="eager")
            optimizer, before = sgd(model), stats["unique_graphs"]
            with recording(model, optimizer) if record else contextlib.nullcontext() as run:
                self.assertFalse(model[1]._forward_pre_hooks or model[1][0]._forward_pre_hooks)
                return step(model, optimizer), stats["unique_graphs"] - before, run

        *plain, _ = trained(False)
        *recorded, run = trained(True)
        self.assertEqual(recorded, plain)
        self.assertEqual(len(run.made[0].steps), 1)
        self.assertIn("Modules that were compiled in place (`module.compile()`) were not looked into.", run.made[0].notes)
        self.assertEqual(run.made[0].coverage["compiled_modules"], 3)

    def test_copies_are_not_the_model(self):
        model = linear()
        optimizer = sgd(model)
        with recording(model, optimizer) as run:
            deep, shallow = copy.deepcopy(model), copy.copy(model)
            for _ in range(2):
                step(model, optimizer)
                with torch.no_grad():
                    deep(torch.ones(2, 4))
                    shallow(torch.ones(2, 4))
        self.assertEqual([[name for name, *_ in each.passes] for each in run.made[0].steps], [["forward"]] * 2)
        self.assertFalse([call for each in run.made[0].steps for call in each.calls if call.call.phase == "evaluation"
                          and call.call.module])
        torch.save(deep, io.BytesIO())

    def test_nested_tensors_are_counted(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = linear()

            def forward(self, x):
                return self.inner(x) + nested.mul(2).to_padded_tensor(0.0).sum()

        model = Model()
        with recording(model, sgd(model)) as run:
            step(model, sgd(model))
        self.assertEqual(run._session.failed, "")
        self.assertGreater(run.made[0].coverage["not_read.nested"], 0)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Losses(Case):
    def test_losses_of_one_pass_add_up(self):
        model = linear()
        optimizer = sgd(model)
        sums = []
        with recording(model, optimizer) as run:
            for count in (1, 2):
                total = 0.0
                for _ in range(count):
                    y = model(torch.ones(2, 4))
                    first, second = y.pow(2).mean(), y.abs().mean()
                    first.backward(retain_graph=True)
                    second.backward()
                    total += first.item() + second.item()
                optimizer.step()
                optimizer.zero_grad()
                sums.append(total / count)
        for each, expected in zip(run.made[0].steps, sums):
            self.assertAlmostEqual(each.result.loss, expected, places=12)

    def test_a_last_group_that_is_smaller(self):
        for accumulate in (None, "sum"):
            model = linear()
            optimizer = sgd(model)
            totals = []
            with recording(model, optimizer, accumulate=accumulate) as run:
                for group in (4, 4, 2, 1):
                    optimizer.zero_grad()
                    losses = []
                    for _ in range(group):
                        loss = model(torch.ones(2, 4)).pow(2).mean() / 4
                        loss.backward()
                        losses.append(loss.item())
                    optimizer.step()
                    totals.append(sum(losses))
            for each, expected in zip(run.made[0].steps, totals):
                self.assertAlmostEqual(each.result.loss, expected, places=12)
            self.assertEqual(run.made[0].notes, ["The loss of a step is the sum of the losses of its micro-batches."])

    def test_optimizers_that_never_step(self):
        first, second = linear(0), linear(1)
        optimizer = sgd(first)
        with recording([first, second], [optimizer, sgd(second)]) as run:
            losses = [step(first, optimizer) for _ in range(300)]
        steps = run.made[0].steps
        self.assertEqual([each.result.loss for each in steps], losses)
        self.assertEqual([len([call for call in each.calls if call.updates]) for each in steps], [2] * 300)
        self.assertEqual(run.made[0].notes, ["An optimizer that was listed steps less often than others: steps end without it."])

    def test_optimizers_that_never_step_and_one_that_is_skipped(self):
        first, second = linear(0), linear(1)
        optimizer, scaler = sgd(first), torch.amp.GradScaler("cpu", init_scale=2.0**8)
        with recording([first, second], [optimizer, sgd(second)], scaler) as run:
            for _ in range(5):
                scaler.scale(first(torch.full((2, 4), float("inf"))).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        self.assertEqual([each.result.skipped for each in run.made[0].steps], [True] * 5)
        self.assertEqual([each.result.scales for each in run.made[0].steps], [(2.0**n, 2.0 ** (n - 1)) for n in (8, 7, 6, 5, 4)])

    def test_optimizers_that_seldom_step(self):
        critic, generator = linear(0), nn.Linear(4, 4)
        optimizers = sgd(critic), sgd(generator)
        with recording([critic, generator], list(optimizers)) as run:
            for number in range(12):
                step(critic, optimizers[0])
                if number % 3 == 2:
                    optimizers[1].zero_grad()
                    critic(generator(torch.ones(2, 4))).mean().backward()
                    optimizers[1].step()
        steps = run.made[0].steps
        self.assertEqual(len([None for each in steps for call in each.calls if call.updates]), 12 * 2 + 4 * 2)
        self.assertTrue(all(len([call for call in each.calls if call.updates]) <= 4 for each in steps))


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Pauses(Case):
    def test_nothing_of_a_pause_is_recorded(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        optimizer = sgd(model)
        with recording(model, optimizer) as run:
            step(model, optimizer)
            with run.pause():
                step(model, optimizer)
                with run.pause():
                    step(model, optimizer)
                step(model, optimizer)
            step(model, optimizer)
        steps = run.made[0].steps
        self.assertEqual([len([call for call in each.calls if call.updates]) for each in steps], [4, 4])
        self.assertEqual([[name for name, *_ in each.passes] for each in steps], [["forward"]] * 2)
        parameters = {"0.weight", "0.bias", "1.weight", "1.bias"}
        changed = {call.call.parameter: call for call in steps[1].calls if call.call.name == "source" and call.call.parameter}
        self.assertEqual(set(changed) & parameters, parameters, "they changed in the pause")
        addmm = next(call for call in steps[1].calls if call.call.name == "addmm")
        updated = {call.id for call in steps[0].calls if call.updates}
        self.assertFalse({value.op for value in addmm.call.inputs} & updated, "values of a pause were told as the step's before")
        self.assertEqual(run.depth, 0)

    def test_gradients_of_a_pause_are_not_known(self):
        model = linear()
        optimizer = sgd(model)
        with recording(model, optimizer) as run:
            model(torch.ones(2, 4)).sum().backward()
            with run.pause():
                model.weight.grad.mul_(2)
            optimizer.step()
        unknown = {call.call.parameter: call.call.inputs_unknown for call in run.made[0].steps[0].calls if call.updates}
        self.assertEqual(unknown, {"weight": True, "bias": False})


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Gradients(Case):
    """Warnings on parameters to which no gradient came count all steps, also those whose ops are not recorded."""

    def warnings(self, optimizers_of, uses_first, pauses=lambda number: False, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        optimizers = optimizers_of(model)
        with recording(model, optimizers, **options) as run:
            for number in range(6):
                with run.pause() if pauses(number) else contextlib.nullcontext():
                    x = model[0](torch.ones(2, 4))
                    loss = model[1](x if uses_first(number) else x.detach()).sum()
                    for optimizer in optimizers:
                        optimizer.zero_grad()
                    loss.backward()
                    for optimizer in optimizers:
                        optimizer.step()
        self.assertEqual(run._session.failed, "")
        return " ".join(run.made[0].warnings)

    def test_parts_that_are_trained_in_some_steps(self):
        def odd(number):
            return number % 2 == 1

        for optimizers_of, told in ((lambda model: [sgd(model)], "No gradient came to 0.weight and 0.bias in any step"),
                                    (lambda model: [sgd(model[0]), sgd(model[1])], "No parameter of an optimizer (SGD) had a gradient")):
            for options in ({}, {"sample": 2}, {"pauses": odd}):
                with self.subTest(told=told, options=options):
                    self.assertEqual(self.warnings(optimizers_of, odd, **options), "")
                    self.assertIn(told, self.warnings(optimizers_of, lambda number: False, **options))


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Refusals(Case):
    def test_refusals_are_counted(self):
        self.may_refuse = True
        for method in ("set_label", "set_gradient_of", "metric", "begin_pass", "set_update", "end_op"):
            with self.subTest(method=method):
                model = linear()
                optimizer = sgd(model)
                with recording(model, optimizer) as run:
                    step(model, optimizer)

                    def refuse(*_):
                        raise Refused("no")

                    setattr(run.made[0], method, refuse)
                    run.metric("accuracy", 0.5)
                    step(model, optimizer)
                    delattr(run.made[0], method)
                    step(model, optimizer)
                self.assertEqual(run._session.failed, "")
                self.assertEqual(len(run.made[0].steps), 3)
                self.assertGreater(run._session.refusals["no"], 0)
                self.assertIn("refused by the recorder: no", run.made[0].warnings[0])

    def test_outputs_that_were_refused_have_no_maker(self):
        class Powers(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = linear()

            def forward(self, x):
                return self.inner(x).exp() * 2

        self.may_refuse = True
        for method in ("output", "begin_op"):
            model = Powers()
            with recording(model, sgd(model)) as run:
                model(torch.ones(2, 4))
                made = run.made[0]
                whole = getattr(Recorded, method)

                def refuse(*given):
                    if made.step.calls[-1].call.name == "exp" if method == "output" else given[0].name == "exp":
                        raise Refused("no")
                    return whole(made, *given)

                setattr(made, method, refuse)
                model(torch.ones(2, 4)).sum().backward()
            mul = [call.call for call in run.made[0].steps[0].calls if call.call.name == "mul" and call.call.phase == "forward"][-1]
            self.assertEqual((mul.inputs, mul.inputs_unknown), ([], True))
            self.assertEqual(run._session.failed, "")

    def test_metrics_are_checked(self):
        model = linear()
        with recording(model, sgd(model)) as run:
            step(model, sgd(model))
            for given, why in ((("a", 0.5, "accuracy"), "kind is none of other, evaluation_loss"), (("a", "much"), "no number"),
                               (("a", None), "no number"), (("a", torch.ones(2)), "no number"), (("", 1.0), "name of a metric")):
                with self.assertRaisesRegex(ValueError, why):
                    run.metric(*given)
            run.metric("a", torch.tensor(0.5), "evaluation_accuracy")
        run.metric("a", 0.5)
        self.assertEqual(run.made[0].steps[0].metrics, [("a", "evaluation_accuracy", 0.5)])

    def test_a_file_that_cannot_be_written(self):
        model = linear()
        optimizer = sgd(model)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with recording(model, optimizer) as run:
                for number in range(5):
                    if number == 2:
                        run.made[0].failure = lambda: "the disk is full"
                    step(model, optimizer)
        self.assertEqual([str(each.message) for each in said], ["ulpscope stopped recording in step 1: the disk is full"])
        self.assertEqual(len(run.made[0].steps), 2)
        self.assertIsNone(run.made[0].step, "a step was begun that cannot be written")

    def test_a_recording_that_cannot_begin(self):
        from ulpscope.torch import record

        def broken(*_):
            raise ArithmeticError("no")

        model = linear()
        self.addCleanup(setattr, record, "register_optimizer_step_post_hook", record.register_optimizer_step_post_hook)
        record.register_optimizer_step_post_hook = broken
        before = torch.compiler._get_stance() if hasattr(torch.compiler, "_get_stance") else None
        with self.assertRaises(ArithmeticError):
            recording(model, sgd(model), compile="eager")
        self.assertEqual((len(model._forward_hooks), len(model._forward_pre_hooks)), (0, 0))
        if before is not None:
            self.assertEqual(torch.compiler._get_stance(), before)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Runs(Case):
    def test_run_ids_of_launched_runs(self):
        from ulpscope.torch import record

        store = torch.distributed.HashStore()
        before = {name: os.environ.get(name) for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")}
        self.addCleanup(lambda: [os.environ.pop(name, None) if value is None else os.environ.update({name: value})
                                 for name, value in before.items()])
        for owner, name, replacement in ((torch.distributed.distributed_c10d, "_get_default_store", lambda: store),
                                         (torch.distributed, "get_rank", lambda: 0)):
            patch = mock.patch.object(owner, name, replacement)
            patch.start()
            self.addCleanup(patch.stop)
        os.environ.update(TORCHELASTIC_RUN_ID="5_a-b", TORCHELASTIC_RESTART_COUNT="0")
        first = record._run_id("folder")
        self.assertEqual(first, record._run_id("folder"))
        self.assertRegex(first, "^[0-9a-f]{32}$")
        self.assertNotEqual(first, record._run_id("other"))
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
        self.assertNotEqual(first, record._run_id("folder"))
        self.assertEqual(store.num_keys(), 0)
        os.environ["TORCHELASTIC_RUN_ID"] = "none"
        given = [record._run_id("folder") for _ in range(2)]
        self.assertEqual([store.get(f"ulpscope/folder/{number}").decode() for number in range(2)], given)
        self.assertNotEqual(*given)


if __name__ == "__main__":
    unittest.main()
