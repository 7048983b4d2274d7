"""Which model, optimizers and scaler a recording finds in a script, and when it begins."""

import unittest
import warnings

from recorded import NEEDS_TORCH, torch

if torch is not None:
    from ulpscope.torch.automatic import Automatic


class Begun:
    """A recording that began: with what, and in how many calls."""

    def __init__(self, path, model, optimizers, scaler, **options):
        self.path, self.model, self.optimizers, self.scaler, self.options = path, model, optimizers, scaler, options
        self.closed = False

    def __exit__(self, kind, error, traceback):
        self.closed = True


@unittest.skipIf(torch is None, NEEDS_TORCH)
class AutomaticRecording(unittest.TestCase):
    def setUp(self):
        self.before = self.patched()
        self.watch(Begun, level="full")

    def watch(self, begin, **options):
        self.automatic = Automatic("run.h5", options, begin=begin)
        self.addCleanup(self.automatic.close)

    @staticmethod
    def patched():
        return torch.nn.Module.__dict__["__call__"], torch.optim.Optimizer.__dict__["__init__"], torch.amp.GradScaler.__dict__["__init__"]

    @property
    def begun(self):
        return self.automatic.recording

    def linear(self):
        return torch.nn.Linear(2, 2)

    def call(self, model):
        return model(torch.ones(1, 2))

    def test_begins_with_the_first_call_that_trains(self):
        other, model = self.linear(), torch.nn.Sequential(self.linear(), self.linear())
        self.call(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        off = torch.amp.GradScaler("cpu", enabled=False)
        self.call(other)
        with torch.no_grad():
            self.call(model)
        with torch.inference_mode():
            self.call(model)
        self.assertIsNone(self.begun)
        self.call(model)
        self.assertIs(self.begun.model, model)
        self.assertEqual((self.begun.path, self.begun.options), ("run.h5", {"level": "full"}))
        self.assertEqual(len(self.begun.optimizers), 1)
        self.assertIs(self.begun.optimizers[0], optimizer)
        self.assertIs(self.begun.scaler, scaler)
        self.assertFalse(off.is_enabled())
        begun = self.begun
        self.call(model)
        self.assertIs(self.begun, begun)
        self.automatic.close()
        self.assertTrue(begun.closed)

    def test_nothing_stays_patched(self):
        self.assertNotEqual(self.patched(), self.before)
        model = self.linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.call(model)
        self.assertEqual(self.patched(), self.before)
        self.assertIs(self.begun.optimizers[0], optimizer)

    def test_hooks_that_a_recording_sets_are_called_in_the_call_that_it_begins_with(self):
        calls = []

        def begin(path, model, *_, **__):
            model.register_forward_pre_hook(lambda module, args, kwargs: calls.append(kwargs), with_kwargs=True)
            return Begun(path, model, [], None)

        self.automatic.close()
        self.watch(begin)
        model = self.linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(input=torch.ones(1, 2))
        self.assertEqual([list(kwargs) for kwargs in calls], [["input"]])
        del optimizer

    def test_a_part_is_called_of_the_module_that_has_all_parameters(self):
        whole = torch.nn.ModuleDict({"encoder": self.linear(), "decoder": self.linear()})
        wider = torch.nn.ModuleDict({"inner": whole, "frozen": self.linear()})
        optimizer = torch.optim.SGD([*whole.parameters(), torch.nn.Parameter(torch.ones(1))], lr=0.1)
        self.call(whole["encoder"])
        self.assertIs(self.begun.model, whole)
        self.assertTrue(optimizer and wider)

    def test_several_models_have_the_names_of_their_classes(self):
        class Generator(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.part = torch.nn.Sequential(torch.nn.Linear(2, 2))

        first, second, third = Generator(), torch.nn.Sequential(self.linear()), Generator()
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second, third)]
        self.call(second)
        self.assertEqual(set(self.begun.model), {"Sequential", "Generator", "Generator2"})
        self.assertIs(self.begun.model["Sequential"], second)
        self.assertEqual({id(model) for model in self.begun.model.values()}, {id(first), id(second), id(third)})
        self.assertEqual([id(each) for each in self.begun.optimizers], [id(each) for each in optimizers])

    def test_parameters_of_no_module_are_left(self):
        model = self.linear()
        optimizer = torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.ones(1))], lr=0.1)
        self.call(model)
        self.assertIs(self.begun.model, model)
        self.assertTrue(optimizer)

    def test_optimizers_that_are_gone_count_no_more(self):
        model, other = self.linear(), self.linear()
        torch.optim.SGD(other.parameters(), lr=0.1)
        optimizer = torch.optim.LBFGS(model.parameters())
        self.call(model)
        self.assertEqual([id(each) for each in self.begun.optimizers], [id(optimizer)])

    def test_not_within_a_dispatch_mode_that_ends_before(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Counts(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        model = self.linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Counts():
            self.call(model)
        self.assertIsNone(self.begun)
        self.call(model)
        self.assertIsNotNone(self.begun)
        self.assertTrue(optimizer)

    def test_a_recording_that_cannot_begin_is_a_warning(self):
        def begin(*_, **__):
            raise FileExistsError("run.h5 exists")

        self.automatic.close()
        self.watch(begin)
        model = self.linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.call(model)
            self.call(model)
        self.assertEqual([str(each.message) for each in told], ["ulpscope records nothing: FileExistsError: run.h5 exists"])
        self.assertEqual(self.automatic.failure, "FileExistsError: run.h5 exists")
        self.assertEqual(self.patched(), self.before)
        self.assertTrue(optimizer)

    def test_a_function_that_is_compiled_has_no_break(self):
        model = self.linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(lambda x: model(x) + 1, backend="eager", fullgraph=True)
        self.assertEqual(compiled(torch.ones(1, 2)).shape, (1, 2))
        self.assertIsNone(self.begun)
        self.assertTrue(optimizer)


if __name__ == "__main__":
    unittest.main()
