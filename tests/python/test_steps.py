"""Steps, passes and losses of training loops."""

import contextlib
import unittest
import warnings
from unittest import mock

from recorded import NEEDS_TORCH, Case, recording, torch


def model_of(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))


def batches(count):
    return [(torch.randn(5, 4), torch.randint(0, 3, (5,))) for _ in range(count)]


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Steps(Case):
    def setUp(self):
        self.model = model_of()
        self.loss = torch.nn.CrossEntropyLoss()

    def recorded(self, run):
        self.assertEqual(run._session.failed, "")
        self.assertEqual(dict(run._session.refusals), {})
        return run.made[0].steps

    def labels(self, step, role):
        return [output for call in step.calls for output in call.outputs.values() if output.label.role == role]

    def test_plain(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        losses, norms = [], []
        with recording(self.model, optimizer) as run:
            for x, y in batches(4):
                optimizer.zero_grad()
                loss = self.loss(self.model(x), y)
                loss.backward()
                losses.append(loss.item())
                norms.append(torch.cat([p.grad.flatten().double() for p in self.model.parameters()]).norm().item())
                optimizer.step()
                schedule.step()
        steps = self.recorded(run)
        self.assertEqual([step.number for step in steps], [0, 1, 2, 3])
        self.assertEqual([step.result.loss for step in steps], losses)
        self.assertEqual([step.result.learning_rate for step in steps], [0.1, 0.1, 0.05, 0.05])
        for step, norm in zip(steps, norms):
            self.assertAlmostEqual(step.result.norms[0], norm, places=12)
            self.assertEqual(step.result.norms[0], step.result.norms[1])
            self.assertIsNone(step.result.scales)
            self.assertFalse(step.result.skipped)
            self.assertEqual([float(output.values) for output in self.labels(step, "loss")], [losses[step.number]])

    def test_first_step(self):
        """Numbers go on from it, and which steps are sampled goes by them; the first step has the sources of weights."""
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        with recording(self.model, optimizer, first_step=119, sample=3) as run:
            for x, y in batches(4):
                optimizer.zero_grad()
                self.loss(self.model(x), y).backward()
                optimizer.step()
        steps = self.recorded(run)
        self.assertEqual([(step.number, step.left_out) for step in steps], [(119, True), (120, False), (121, True), (122, True)])
        self.assertEqual(len(self.labels(steps[1], "loss")), 1)
        with recording(self.model, optimizer, first_step=7) as run, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run._session.fail(OSError("a test"))
        self.assertEqual([str(each.message) for each in said], ["ulpscope stopped recording before the first step: OSError: a test"])
        for wrong, error in ((-1, ValueError), (1.5, TypeError)):
            with self.assertRaisesRegex(error, "first_step"):
                recording(self.model, optimizer, first_step=wrong)

    def test_what_is_computed_behind_the_loop_is_no_step(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        for makes_model_calls in (False, True):
            with recording(self.model, optimizer) as run:
                for x, y in batches(3):
                    optimizer.zero_grad()
                    self.loss(self.model(x), y).backward()
                    optimizer.step()
                self.model[0].weight.norm().item()
                sum(parameter.square().sum() for parameter in self.model.parameters()).item()
                if makes_model_calls:  # as where a loss was NaN, and the loop was left before it went back
                    self.model(x)
            steps = self.recorded(run)
            self.assertEqual([step.result.loss is not None for step in steps], [True] * 3 + [False] * makes_model_calls)

    def accumulate(self, divided, **options):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        losses = []
        with recording(self.model, optimizer, **options) as run:
            for _ in range(2):
                for x, y in batches(3):
                    loss = self.loss(self.model(x), y)
                    loss = loss / 3 if divided else loss
                    loss.backward()
                    losses.append(loss.item())
                optimizer.step()
                optimizer.zero_grad()
        steps = self.recorded(run)
        self.assertEqual(len(steps), 2)
        self.assertEqual([each[1] for each in steps[0].passes], [0, 1, 2])
        names = [call.call.name for call in steps[0].calls if call.call.parameter == "0.weight" and call.call.phase == "backward"]
        self.assertEqual(names, ["accumulate"] * 2)
        is_undivided = not divided and not options
        self.assertEqual(("undivided micro-batches", "3", "loss_factor") in run.made[0].settings, is_undivided)
        return steps, losses

    def test_accumulation_of_means(self):
        steps, losses = self.accumulate(False)
        self.assertAlmostEqual(steps[0].result.loss, sum(losses[:3]) / 3, places=14)
        self.assertAlmostEqual(steps[1].result.loss, sum(losses[3:]) / 3, places=14)

    def test_accumulation_of_parts(self):
        steps, losses = self.accumulate(True)
        self.assertAlmostEqual(steps[0].result.loss, sum(losses[:3]), places=14)

    def test_accumulation_of_parts_of_49(self):
        """The reciprocal of the FP64 number next to 1 / 49 is not 49."""
        self.assertNotEqual(1 / (1 / 49), 49)
        losses = []
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        with recording(self.model, optimizer) as run:
            for x, y in list(batches(7)) * 7:
                loss = self.loss(self.model(x), y) * (1 / 49)
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
        step, = self.recorded(run)
        self.assertAlmostEqual(step.result.loss, sum(losses), places=12)

    def test_accumulation_as_told(self):
        steps, losses = self.accumulate(False, accumulate="sum")
        self.assertAlmostEqual(steps[0].result.loss, sum(losses[:3]), places=14)

    def scaled(self, optimizers, scaler, spoil, clip=None):
        """Steps with a gradient scaler; in step `spoil` the first optimizer's gradients overflow."""
        losses = []
        with recording(self.model, optimizers, scaler) as run:
            for number, (x, y) in enumerate(batches(3)):
                loss = self.loss(self.model(x), y)
                scaler.scale(loss).backward()
                losses.append(loss.item())
                if number == spoil:
                    with torch.no_grad():
                        optimizers[0].param_groups[0]["params"][0].grad.mul_(float("inf"))
                for optimizer in optimizers:
                    if clip:
                        scaler.unscale_(optimizer)
                        torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
                    scaler.step(optimizer)
                scaler.update()
                for optimizer in optimizers:
                    optimizer.zero_grad()
        return self.recorded(run), losses

    def test_losses_that_are_scaled_one_after_the_other(self):
        """Each is told with the scale in it, also where the first backward pass is over."""
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        (x, y), = batches(1)
        with recording(self.model, optimizer, scaler) as run:
            first, second = self.loss(self.model(x), y), self.model(x).square().mean()
            scaler.scale(first).backward()
            scaler.scale(second).backward()
            scaler.step(optimizer)
            scaler.update()
        step, = run.made[0].steps
        scaled = [call for call in step.calls if call.call.function == "scale"]
        self.assertEqual([(call.outputs[0].values.item(), call.outputs[0].label.role, call.outputs[0].label.scale) for call in scaled],
                         [(256 * first.item(), "loss", 256.0), (256 * second.item(), "loss", 256.0)])

    def test_scaler_that_skips(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
        steps, losses = self.scaled([torch.optim.SGD(self.model.parameters(), 0.1)], scaler, 1)
        self.assertEqual([step.result.scales for step in steps], [(1024, 2048), (2048, 1024), (1024, 2048)])
        self.assertEqual([step.result.skipped for step in steps], [False, True, False])
        self.assertEqual([step.result.learning_rate for step in steps], [0.1] * 3)
        self.assertEqual([step.result.loss for step in steps], losses)
        self.assertEqual([bool(self.labels(step, "update")) for step in steps], [True, False, True])
        self.assertTrue(torch.tensor(steps[1].result.norms[0]).isnan() or steps[1].result.norms[0] == float("inf"))
        scales = {output.label.scale for output in self.labels(steps[0], "weight_gradient")}
        self.assertEqual(scales, {1024.0})
        self.assertEqual({output.label.scale for output in self.labels(steps[0], "unscaled_gradient")}, {1.0})

    def test_two_optimizers_of_which_one_overflows(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        first, second = (torch.optim.SGD(self.model[index].parameters(), 0.1) for index in (0, 2))
        steps, losses = self.scaled([first, second], scaler, 1)
        self.assertEqual([step.result.loss for step in steps], losses)
        self.assertEqual([step.result.skipped for step in steps], [False] * 3)
        self.assertEqual([{output.label.parameter for output in self.labels(step, "update")} for step in steps],
                         [{"0.weight", "0.bias", "2.weight", "2.bias"}, {"2.weight", "2.bias"},
                          {"0.weight", "0.bias", "2.weight", "2.bias"}])
        self.assertEqual(steps[1].result.scales, (64.0, 32.0))

    def test_fused_optimizer_that_skips(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
        steps, losses = self.scaled([torch.optim.AdamW(self.model.parameters(), 0.1, fused=True)], scaler, 1)
        self.assertEqual([step.result.skipped for step in steps], [False, True, False])
        self.assertEqual([step.result.loss for step in steps], losses)
        self.assertLess(steps[0].result.norms[0], 10.0)

    def test_clipping(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        steps, _ = self.scaled([torch.optim.SGD(self.model.parameters(), 0.1)], scaler, None, clip=0.01)
        for step in steps:
            self.assertGreater(step.result.norms[0], 0.02)
            self.assertAlmostEqual(step.result.norms[1], 0.01, places=4)
            clipped = [call for call in step.calls if call.call.function == "clip_norm"]
            self.assertEqual([call.call.parameter for call in clipped], ["0.weight", "0.bias", "2.weight", "2.bias"])

    def test_clipping_of_scaled_gradients(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        (x, y), = batches(1)
        self.loss(self.model(x), y).backward()
        norm = torch.cat([p.grad.flatten().double() for p in self.model.parameters()]).norm().item()
        optimizer.zero_grad()
        with recording(self.model, optimizer, scaler) as run:
            scaler.scale(self.loss(self.model(x), y)).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.56)
            scaler.step(optimizer)
            scaler.update()
        step, = self.recorded(run)
        self.assertAlmostEqual(step.result.norms[0], norm, places=5)
        self.assertAlmostEqual(step.result.norms[1], 0.01, places=5)

    def test_adversaries(self):
        generator, critic = model_of(1), torch.nn.Linear(3, 1)
        of_generator = torch.optim.SGD(generator.parameters(), 0.1)
        of_critic = torch.optim.SGD(critic.parameters(), 0.1)
        losses = []
        with recording({"G": generator, "D": critic}, [of_critic, of_generator]) as run:
            for x, _ in batches(2):
                of_critic.zero_grad()
                loss = critic(generator(x).detach()).mean() - critic(torch.randn(5, 3)).mean()
                loss.backward()
                of_critic.step()
                of_generator.zero_grad()
                other = -critic(generator(x)).mean()
                other.backward()
                of_generator.step()
                losses.append((loss.item(), other.item()))
        steps = self.recorded(run)
        self.assertEqual([step.passes for step in steps], [[("forward", 0, 0), ("forward", 0, 1)]] * 2)
        self.assertEqual([step.result.loss for step in steps], [sum(pair) for pair in losses])
        modules = {call.call.module for call in steps[0].calls if call.call.phase == "forward"}
        self.assertEqual(modules, {"G.0", "G.1", "G.2", "D"})

    def test_closures_of_lbfgs(self):
        optimizer = torch.optim.LBFGS(self.model.parameters(), 0.5, max_iter=3)
        firsts = []
        with recording(self.model, optimizer) as run:
            for x, y in batches(2):
                def closure():
                    optimizer.zero_grad()
                    loss = self.loss(self.model(x), y)
                    loss.backward()
                    return loss
                firsts.append(float(optimizer.step(closure).detach()))
        steps = self.recorded(run)
        self.assertEqual([step.result.loss for step in steps], firsts)
        self.assertGreater(len(steps[0].passes), 1)
        updated = [call.call.parameter for call in steps[0].calls if call.call.function == "assign"]
        self.assertEqual(updated, ["0.weight", "0.bias", "2.weight", "2.bias"])

    def test_evaluation_between(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        with recording(self.model, optimizer) as run:
            for x, y in batches(3):
                optimizer.zero_grad()
                self.loss(self.model(x), y).backward()
                optimizer.step()
                with torch.no_grad():
                    for a, b in batches(2):
                        self.loss(self.model(a), b)
                run.metric("val_accuracy", 0.5)
        steps = self.recorded(run)
        self.assertEqual([step.passes for step in steps],
                         [[("forward", 0, 0), ("evaluation", 0, 0), ("evaluation", 1, 0)]] * 3)
        evaluated = [call.call.name for call in steps[0].calls if call.call.phase == "evaluation"]
        self.assertEqual(evaluated, ["input", "addmm", "tanh", "addmm", "_log_softmax", "nll_loss_forward"] * 2)
        self.assertEqual(steps[2].metrics, [("val_accuracy", "other", 0.5)])

    def test_peak_memory_is_that_of_steps_which_raised_it(self):
        """The counter is the program's: it is read, and never set back."""
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        peak = [1000]
        known = {"is_available": lambda: True, "is_initialized": lambda: True, "is_current_stream_capturing": lambda: False,
                 "max_memory_allocated": lambda *_: peak[0]}
        for name, replacement in known.items():
            patch = mock.patch.object(torch.cuda, name, replacement)
            patch.start()
            self.addCleanup(patch.stop)
        with mock.patch.object(torch.cuda, "reset_peak_memory_stats") as reset, recording(self.model, optimizer) as run:
            for (x, y), after in zip(batches(4), (1500, 1500, 1700, 1600)):  # the program sets it back in the last one
                loss = self.loss(self.model(x), y)
                peak[0] = after
                loss.backward()
                optimizer.step()
        self.assertEqual([step.result.peak_memory for step in self.recorded(run)], [1500, 0, 1700, 0])
        reset.assert_not_called()

    def test_optimizer_that_never_steps(self):
        """One that a scaler held back, or that steps in a closure, did have its turn; and after few losses its turn may come yet."""

        def warned(train, optimizer, scaler=None, count=30, **options):
            with recording(self.model, optimizer, scaler, **options) as run:
                for x, y in batches(count):
                    train(optimizer, self.loss(self.model(x), y))
            return [told for told in run.made[0].warnings if "did not step" in told]

        def backward_alone(optimizer, loss):
            loss.backward()

        def held_back(optimizer, loss):
            scaler.scale(loss * float("inf")).backward()
            scaler.step(optimizer)
            scaler.update()

        def in_a_closure(optimizer, loss):
            optimizer.step(lambda: loss.backward() or loss.item())

        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu")
        told = ["An optimizer (SGD) did not step, though losses went back 30 times: call its step() after backward()."]
        self.assertEqual(warned(backward_alone, optimizer), told)
        self.assertEqual(warned(backward_alone, optimizer, sample=10), told)
        self.assertEqual(warned(backward_alone, optimizer, count=8), [])
        self.assertEqual(warned(held_back, optimizer, scaler), [])
        self.assertEqual(warned(in_a_closure, optimizer), [])

    def test_parameters_that_nothing_updates(self):
        """Parameters of modules in a list of the model are told; not those that another optimizer has, and not those of other models."""
        hidden = [torch.nn.Linear(3, 3)]
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        def warned(other=None, after=None):
            with recording(self.model, optimizer) as run:
                for x, y in batches(3):
                    self.loss((after or hidden[0])(self.model(x)), y).backward()
                    optimizer.step()
                    if other is not None:
                        other.step()
            return [told for told in run.made[0].warnings if "no optimizer has" in told]

        self.assertEqual(warned(), [])  # the list is not the model's
        self.model.blocks = {"last": hidden}
        told = warned()
        self.assertEqual(len(told), 1)
        self.assertIn("Gradients came to parameters in blocks, which no optimizer has", told[0])
        self.assertEqual(warned(torch.optim.SGD(hidden[0].parameters(), 0.1)), [])
        self.assertEqual(warned(after=torch.nn.Linear(3, 3)), [])

    def test_parameters_that_no_optimizer_has(self):
        """Few of them were forgotten; who trains a head alone leaves out more."""

        def warned(parameters):
            optimizer = torch.optim.SGD(parameters, 0.1)
            with recording(self.model, optimizer) as run:
                for x, y in batches(3):
                    self.loss(self.model(x), y).backward()
                    optimizer.step()
                    self.model.zero_grad()
            return [told for told in run.made[0].warnings if "No optimizer that stepped" in told]

        first, second = self.model[0], self.model[2]
        self.assertEqual(warned([first.weight, first.bias, second.weight]),
                         ["No optimizer that stepped has 2.bias, to which gradients came."])
        self.assertEqual(warned([second.bias]), [])
        self.assertEqual(warned(self.model.parameters()), [])

    def test_an_exception_ends_the_recording(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        for error, told in ((ValueError("too few\nand more"), ["An exception of the program ended the recording: ValueError: too few"]),
                            (KeyboardInterrupt(), []), (StopIteration(), [])):
            with contextlib.suppress(type(error)), recording(self.model, optimizer) as run:
                (x, y), = batches(1)
                self.loss(self.model(x), y).backward()
                optimizer.step()
                raise error
            self.assertEqual(run.made[0].warnings, told)
            self.assertEqual(sum("StopIteration" in each for each in run.made[0].notes), isinstance(error, StopIteration))

    def test_mistakes_are_told_at_once(self):
        for options in ({"level": "all"}, {"compile": "yes"}, {"accumulate": "max"}):
            with self.assertRaisesRegex(ValueError, next(iter(options))):
                recording(self.model, **options)
        with self.assertRaisesRegex(TypeError, "model is no torch.nn.Module"):
            recording("model")
        with self.assertRaisesRegex(TypeError, "optimizer has no param_groups"):
            recording(self.model, self.loss)

    def test_exception_in_a_module(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        class Broken(torch.nn.Module):
            def forward(self, x):
                raise ArithmeticError("no")

        (x, y), = batches(1)
        with self.assertRaises(ArithmeticError):
            with recording(self.model, optimizer) as run:
                for _ in range(2):
                    self.loss(self.model(x), y).backward()
                    optimizer.step()
                self.model[1].forward = Broken().forward
                self.model(x)
        steps = self.recorded(run)
        self.assertEqual([step.number for step in steps], [0, 1, 2])
        self.assertIsNone(steps[2].result.loss)
        self.assertEqual(run.depth, 0)
        self.assertTrue(run.made[0].closed)

    def test_an_optimizer_that_raises(self):
        """Ops are not looked at while it steps, and are again behind it."""

        class Sometimes(torch.optim.SGD):
            raises = False

            def step(self, closure=None):
                if self.raises:
                    raise ArithmeticError("no")
                return super().step(closure)

        optimizer = Sometimes(self.model.parameters(), 0.1)
        with recording(self.model, optimizer) as run:
            for number, (x, y) in enumerate(batches(4)):
                optimizer.raises = number == 1
                optimizer.zero_grad()
                self.loss(self.model(x), y).backward()
                with contextlib.suppress(ArithmeticError):
                    optimizer.step()
        calls = [[call for call in step.calls if call.call.phase in ("forward", "backward")] for step in self.recorded(run)]
        self.assertGreater(len(calls[0]), 0)
        self.assertEqual(sum(len(each) for each in calls), 4 * len(calls[0]))

    def test_interrupted_in_a_module(self):
        """No hook is told of KeyboardInterrupt, and the program goes on, as in a notebook."""
        optimizer, forward = torch.optim.SGD(self.model.parameters(), 0.1), self.model[1].forward

        def interrupt(_):
            raise KeyboardInterrupt

        with recording(self.model, optimizer) as run:
            for number, (x, y) in enumerate(batches(4)):
                self.model[1].forward = interrupt if number == 1 else forward
                try:
                    loss = self.loss(self.model(x), y)
                except KeyboardInterrupt:
                    continue
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        steps = self.recorded(run)
        self.assertEqual([len(step.passes) for step in steps if step.result.loss is not None], [1, 1, 1])
        for step in steps:
            modules = {call.call.module for call in step.calls if call.call.phase == "loss"}
            self.assertLessEqual(modules, {""})

    def test_a_module_that_calls_itself(self):
        class Tree(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 4)

            def forward(self, x, depth=2):
                return self.linear(x if depth == 0 else self(x, depth - 1))

        model = Tree()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with recording(model, optimizer) as run:
            for _ in range(2):
                model(torch.randn(3, 4)).sum().backward()
                optimizer.step()
        steps = self.recorded(run)
        self.assertEqual([[call.call.module for call in step.calls if call.call.phase == "forward"] for step in steps],
                         [["linear"] * 3] * 2)

    def test_exception_of_ours_stops_recording_alone(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with recording(self.model, optimizer) as run:
                for number, (x, y) in enumerate(batches(3)):
                    if number == 1:
                        run.made[0].output = None
                    self.loss(self.model(x), y).backward()
                    optimizer.step()
        self.assertEqual([str(each.message).split(":")[0] for each in said], ["ulpscope stopped recording in step 1"])
        self.assertEqual([step.number for step in run.made[0].steps], [0])
        self.assertTrue(run.made[0].closed)

    def test_gradient_penalty_is_no_loss(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        with recording(self.model, optimizer) as run:
            x, y = batches(1)[0]
            x.requires_grad_()
            out = self.model(x)
            slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = self.loss(out, y) + slope.square().mean()
            loss.backward()
            optimizer.step()
        step, = self.recorded(run)
        self.assertEqual(step.result.loss, loss.item())
        self.assertEqual(len(self.labels(step, "loss")), 1)
        self.assertFalse(run.unmapped)

    def test_weights_changed_by_hand(self):
        with recording(self.model) as run:
            for x, y in batches(2):
                self.loss(self.model(x), y).backward()
                with torch.no_grad():
                    for parameter in self.model.parameters():
                        parameter -= 0.1 * parameter.grad
                        parameter.grad = None
                run.step()
        steps = self.recorded(run)
        self.assertEqual(len(steps), 2)
        written = {output.label.parameter for call in steps[0].calls if call.call.name == "sub_"
                   for output in call.outputs.values() if output.label.role == "weight"}
        self.assertEqual(written, {"0.weight", "0.bias", "2.weight", "2.bias"})

    def test_checkpoint_recomputes(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        for reentrant in (False, True):
            with recording(self.model, optimizer) as run:
                x, y = batches(1)[0]
                hidden = torch.utils.checkpoint.checkpoint(self.model[:2], x.requires_grad_(), use_reentrant=reentrant)
                loss = self.loss(self.model[2](hidden), y)
                loss.backward()
                optimizer.step()
            step, = self.recorded(run)
            again = [call.call.module for call in step.calls if call.call.phase == "recompute"]
            # What is recomputed ends within the last op that is needed, which callbacks then see without an output.
            self.assertIn("0", again)
            self.assertLessEqual(set(again), {"0", "1"})
            self.assertEqual(step.result.loss, loss.item())
            gradients = {output.label.parameter for output in self.labels(step, "weight_gradient")}
            self.assertTrue({"0.weight", "2.weight"} <= gradients, gradients)


if __name__ == "__main__":
    unittest.main()
