"""Tensors of a device: what PyTorch's ops take of them equals what the library takes of the host's memory. The tests have no
device: they take tensors of the host as those of one are."""

import contextlib
import copy
import ctypes
import functools
import math
import os
import tempfile
import unittest

from recorded import NEEDS_TORCH, Case, Statistics, _Tensor, load_library, recording, torch

if torch is not None:
    import h5py
    import numpy

    import ulpscope
    from ulpscope.torch import device
    from test_paths import nn, runs

    functional = torch.nn.functional

ADAPTERS = ("callbacks", "dispatch")
_COUNTS = ("known", "before_rounding", "rounding_known", "count", "nan", "positive_infinity", "negative_infinity", "zeros", "negatives",
           "smallest", "largest", "below_range", "above_range", "flushed", "subnormal", "inexact_subnormal", "overflowed", "rescued",
           "saturated")


class AsDevice:
    """A block in which tensors of the host are taken as those of a device are."""

    def __enter__(self):
        device.takes_host_as_device = True

    def __exit__(self, *_):
        device.takes_host_as_device = False


def told(tensor):
    names = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
    number = load_library().ulpscope_dtype
    number.argtypes, number.restype = [ctypes.c_char_p], ctypes.c_int32
    shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    return _Tensor(ctypes.sizeof(_Tensor), tensor.data_ptr(), number(names[tensor.dtype].encode()), tensor.dim(), shape, None)


def statistics_of(tensor):
    """By the library, of memory of the host."""
    to = Statistics(size=ctypes.sizeof(Statistics))
    tensor = tensor.detach().contiguous()
    assert load_library().ulpscope_take_statistics(ctypes.byref(told(tensor)), 2, ctypes.byref(to)) == 0
    return to


def cast_statistics_of(given, cast, scale=1.0):
    to = Statistics(size=ctypes.sizeof(Statistics))
    take = load_library().ulpscope_take_cast
    take.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p]
    given, cast = given.contiguous(), cast.contiguous()
    assert take(ctypes.byref(told(given)), ctypes.byref(told(cast)), scale, ctypes.byref(to)) == 0
    return to


def tensors():
    """100 tensors of all types with NaN, infinities, subnormals, zeros, of all exponents; empty ones, strided views, large ones."""
    torch.manual_seed(11)
    for index in range(100):
        dtype = (torch.float32, torch.float16, torch.bfloat16, torch.float64)[index % 4]
        count = (0, 1, 7, 300, 5000, 20000, 65536)[index % 7]
        lowest, highest = {torch.float32: (-149, 127), torch.float16: (-24, 15), torch.bfloat16: (-133, 127),
                           torch.float64: (-1074, 1023)}[dtype]
        exponents = torch.randint(lowest, highest + 1, (count,)).double()
        values = torch.ldexp((1 + torch.rand(count, dtype=torch.float64)) * torch.sign(torch.randn(count, dtype=torch.float64)), exponents)
        values = values.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)
        if index % 3 == 0:
            for special in (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, torch.finfo(dtype).max, torch.finfo(dtype).tiny):
                values = torch.where(torch.rand(count) < 0.05, torch.tensor(special, dtype=dtype), values)
        if index % 5 == 4 and count % 4 == 0:
            values = values.view(4, -1).t()
        yield values


class Copies(nn.Module if torch is not None else object):
    """Makes each tensor by an op, some of them within strided memory that has gaps."""

    def __init__(self, given):
        super().__init__()
        self.given, self.made = given, []

    def forward(self, x):
        for index, each in enumerate(self.given):
            if index % 2:
                memory = torch.zeros(each.shape + (3,), dtype=each.dtype)
                self.made.append(memory[..., 1].copy_(each))
            else:
                self.made.append(each.clone())
        return x + 1


class Casts(nn.Module if torch is not None else object):
    def __init__(self, given):
        super().__init__()
        self.given, self.made = given, []

    def forward(self, x):
        for each in self.given:
            for dtype in (torch.float16, torch.bfloat16):
                if each.dtype != dtype:
                    self.made.append((each, each.to(dtype)))
        return x + 1


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Device(Case):
    maxDiff = None

    def check_statistics(self, taken, expected, values):
        for name in _COUNTS:
            self.assertEqual(getattr(taken, name), getattr(expected, name), name)
        self.assertEqual(list(taken.bins), list(expected.bins))
        # Each of n additions, in any order, errs by at most u of a partial sum: both sums are within (n - 1) u / (1 - (n - 1) u) of
        # the exact one, times the sum of the magnitudes; n roundings of squares are one more each.
        finite = values.double().nan_to_num(0, 0, 0).flatten()
        for name, terms in (("sum", finite), ("sum_of_squares", finite * finite)):
            bound = 2 * (finite.numel() + 1) * 2.0**-53 * 1.01 * float(terms.abs().sum())
            one, other = getattr(taken, name), getattr(expected, name)
            if one != other and not math.isinf(bound):  # then a part of the terms may be infinite, and another not
                self.assertLessEqual(abs(one - other), bound, name)

    def recorded(self, module, adapter):
        """The outputs that a recorder was told of, of a forward pass over ops on a device, by the names of ops."""
        with AsDevice(), recording(module, adapter=adapter) as run:
            module(torch.ones(1))
        return [output for call in run.made[0].steps[0].calls if call.call.name in ("clone", "copy_", "copy", "_to_copy", "cast", "to")
                for output in call.outputs.values()]

    def test_statistics_equal_the_librarys(self):
        for adapter in ADAPTERS:
            module = Copies([each for each in tensors()])
            outputs = self.recorded(module, adapter)
            self.assertEqual(len(outputs), 100)
            for index, (output, values) in enumerate(zip(outputs, module.made)):
                with self.subTest(adapter=adapter, index=index, dtype=output.dtype, shape=output.shape):
                    self.check_statistics(output.statistics, statistics_of(values), values)

    def test_large_tensors_are_taken_in_parts(self):
        large = torch.randn(3 * 2**21 + 5)
        large[7] = float("nan")
        for adapter in ADAPTERS:
            module = Copies([large, large.half()])
            for output, values in zip(self.recorded(module, adapter), module.made):
                self.check_statistics(output.statistics, statistics_of(values), values)

    def test_roundings_of_casts_equal_the_librarys(self):
        given = list(tensors())[:48]
        # All that is next to a number to which FP16 and BF16 round in another way.
        borders = torch.tensor([2.0**-25, 2.0**-24, 2.0**-14 - 2.0**-25, 2.0**-14, 65504.0, 65520.0, 2.0**-134, 2.0**-126 - 2.0**-134,
                                3.3895313892515355e38, 3.3961775292304e38])
        beside = torch.cat([torch.nextafter(borders, torch.tensor(float("inf"))), torch.nextafter(borders, torch.tensor(0.0)), borders])
        given.append(torch.cat([beside, -beside]))
        for adapter in ADAPTERS:
            module = Casts(given)
            outputs = self.recorded(module, adapter)
            self.assertEqual(len(outputs), len(module.made))
            for index, (output, (values, cast)) in enumerate(zip(outputs, module.made)):
                with self.subTest(adapter=adapter, index=index, given=values.dtype, cast=output.dtype):
                    if values.dtype == torch.float64:  # whose roundings are not counted
                        self.check_statistics(output.statistics, statistics_of(cast), cast)
                    else:
                        self.check_statistics(output.statistics, cast_statistics_of(values, cast), values)


    def trained(self, start, model, x, y, dtype, make_optimizer, adapter=None, as_device=False, record=recording):
        """Three steps, the second over two micro-batches and clipped, of which FP16's first overflows; with no recording where there is no
        adapter."""
        model.load_state_dict(start)
        model.train()
        torch.manual_seed(7)
        optimizer = make_optimizer(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, backoff_factor=2.0**-30, enabled=dtype is torch.float16)
        with AsDevice() if as_device else contextlib.nullcontext(), (
                contextlib.nullcontext() if adapter is None else record(model, optimizer, scaler, adapter=adapter)) as run:
            for step in range(3):
                optimizer.zero_grad()
                for _ in range(2 if step == 1 else 1):
                    with torch.autocast("cpu", dtype, enabled=dtype is not None):
                        loss = functional.cross_entropy(model(x), y)
                    scaler.scale(loss).backward()
                if step == 1:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
            model.eval()
            with torch.no_grad():
                model(x)
        return run, [value.clone() for value in model.state_dict().values()]

    def test_a_training_tells_the_same_after_one_wait_a_step(self):
        optimizers = (lambda given: torch.optim.AdamW(given, lr=0.01), lambda given: torch.optim.SGD(given, lr=0.01, weight_decay=0.1),
                      lambda given: torch.optim.SGD(given, lr=1e-9, momentum=0.9, nesterov=True, maximize=True),
                      lambda given: torch.optim.SGD(given, lr=0.01, momentum=0.9), lambda given: torch.optim.Adagrad(given, lr=0.01))
        for number, (name, model, x, y, dtype) in enumerate(runs()):
            adapter = ADAPTERS[(number + number // 3) % 2]  # each with both, in another type
            with self.subTest(model=name, dtype=dtype, adapter=adapter):
                start = {key: value.clone() for key, value in model.state_dict().items()}
                given = (start, model, x, y, dtype, optimizers[number % len(optimizers)])
                (host, host_weights), (taken, weights), (_, bare) = (
                    self.trained(*given, adapter), self.trained(*given, adapter, as_device=True), self.trained(*given))
                for one, other, third in zip(host_weights, weights, bare):
                    self.assertTrue(torch.equal(one, other) and torch.equal(one, third))
                self.check_steps(host.made[0].steps, taken.made[0].steps)
                self.assertEqual((host.waits, taken.waits), (0, 3))

    def check_steps(self, host, taken):
        self.assertEqual(len(host), 3)
        for one, other in zip(host, taken):
            results = [step.result._replace(seconds=0, peak_memory=0, norms=None) for step in (one, other)]
            self.assertEqual(*results)
            for norm, taken_norm in zip(one.result.norms, other.result.norms):
                if norm != taken_norm and not (math.isnan(norm) and math.isnan(taken_norm)):
                    self.assertLessEqual(abs(norm - taken_norm), 1e-13 * norm)
            self.assertEqual((one.passes, len(one.calls)), (other.passes, len(other.calls)))
            for call, taken_call in zip(one.calls, other.calls):
                self.assertEqual((call.call, call.id, call.gradient_of), (taken_call.call, taken_call.id, taken_call.gradient_of))
                for slot, output in call.outputs.items():
                    told = taken_call.outputs[slot]
                    self.assertEqual((output.label, output.dtype, output.shape), (told.label, told.dtype, told.shape))
                    given = output.values if output.cast_from is None else output.cast_from.values
                    expected = (statistics_of(given) if output.cast_from is None
                                else cast_statistics_of(given, output.values, output.label.scale))
                    self.check_statistics(told.statistics, expected, given)
                self.assertEqual(call.updates.keys(), taken_call.updates.keys())
                for slot, update in call.updates.items():
                    self.check_update(taken_call.updates[slot], update)

    def check_update(self, taken, update):
        w, after, g = (each.double().flatten() for each in (update.before, update.after, update.gradient))
        d = after - w if update.update is None else update.update.double().flatten()
        self.assertEqual((taken.nonzero, taken.lost, taken.learning_rate),
                         (int((d != 0).sum()), int(((d != 0) & (w == after)).sum()), update.learning_rate))
        for name, terms in (("weight_squares", w * w), ("update_squares", d * d), ("gradient_dot_update", g * d)):
            self.assertLessEqual(abs(getattr(taken, name) - float(terms.sum())), 2 * (len(w) + 1) * 2.0**-53 * float(terms.abs().sum()))

    def test_the_trace_is_the_same(self):
        name, model, x, y, dtype = list(runs())[6]
        self.assertEqual((name, dtype), ("mlp", torch.float16))
        start = {key: value.clone() for key, value in model.state_dict().items()}
        for level, adapter in (("stats", "callbacks"), ("health", "dispatch")):
            with tempfile.TemporaryDirectory() as folder:
                traces = []
                for as_device in (False, True):
                    path = os.path.join(folder, f"{as_device}.h5")
                    record = functools.partial(ulpscope.record, path, level=level)
                    self.trained(start, model, x, y, dtype, lambda given: torch.optim.AdamW(given, 0.01), adapter, as_device, record)
                    traces.append(h5py.File(path))
                host, taken = traces
                for table in ("stats", "histograms", "ops", "tensors", "edges", "parameters", "steps"):
                    for column, values in host[table].items():
                        one, other = values[:], taken[table][column][:]
                        self.assertEqual(one.shape, other.shape, (table, column))
                        if column in ("sum", "sum_of_squares") or "norm" in column:
                            self.assertTrue(numpy.allclose(one, other, rtol=1e-6, atol=1e-12, equal_nan=True), (table, column))
                        elif column not in ("seconds", "gradient_dot_update"):
                            self.assertTrue(numpy.array_equal(one, other, equal_nan=one.dtype.kind == "f"), (table, column))
                for each in traces:
                    each.close()

    def test_nothing_is_taken_while_a_graph_is_captured(self):
        for adapter in ADAPTERS:
            model, x = nn.Linear(4, 2), torch.ones(3, 4)
            bare = copy.deepcopy(model)
            optimizer, losses = torch.optim.SGD(bare.parameters(), lr=0.1), []
            for _ in range(4):
                optimizer.zero_grad()
                loss = bare(x).sum()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            real = device.is_capturing
            self.addCleanup(setattr, device, "is_capturing", real)
            with AsDevice(), recording(model, optimizer, adapter=adapter) as run:
                for step in range(4):
                    device.is_capturing = lambda captures=step == 1: captures
                    optimizer.zero_grad()
                    model(x).sum().backward()
                    optimizer.step()
                device.is_capturing = real
            steps = run.made[0].steps
            known = [sum(hasattr(output, "statistics") for call in step.calls for output in call.outputs.values()) for step in steps]
            # Numbers that the first step had asked for could not be waited for when it ended, since the second one was captured.
            self.assertEqual((known[0], known[1]), (0, 0))
            self.assertGreater(min(known[2:]), 8)
            self.assertEqual([step.result.loss for step in steps[2:]], losses[2:])
            notes = " ".join(run.made[0].notes)
            self.assertGreater(run.made[0].coverage["not_read.captured by a CUDA graph"], 0)
            self.assertRegex(notes, "Statistics of [1-9][0-9]* outputs are not known, since a CUDA graph was captured")


if __name__ == "__main__":
    unittest.main()
