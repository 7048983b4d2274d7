"""Callbacks: real trainings through Lightning and Hugging Face's Trainer, whose bits recording leaves as they are, and Accelerate."""

import copy
import importlib.util
import logging
import os
import pickle
import sys
import tempfile
import unittest
import unittest.mock
import warnings
from types import SimpleNamespace

from recorded import NEEDS_TORCH, Case, torch

import ulpscope

BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")
NOT_BUILT = "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set"


def missing(name):
    return torch is None or importlib.util.find_spec(name) is None


def data(count=64):
    x = torch.randn(count, 8)
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


class InFolder(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")  # of the libraries, on numbers of workers and the like

    def assert_same(self, one, other):
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(one, other)))

    def assert_nothing_left(self):
        self.assertIsNone(torch.utils._python_dispatch._get_current_dispatch_mode())
        self.assertFalse(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Absent(unittest.TestCase):
    def test_packages_that_are_not_installed(self):
        from ulpscope.torch import callbacks

        names = ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers")
        before = {name: sys.modules.get(name) for name in names}
        made = {name: vars(callbacks).pop(name, None) for name in ("LightningCallback", "TrainerCallback")}
        try:
            sys.modules.update({name: None for name in names})
            with self.assertRaisesRegex(ImportError, "LightningCallback needs lightning or pytorch_lightning, neither"):
                callbacks.LightningCallback
            with self.assertRaisesRegex(ImportError, "TrainerCallback needs transformers"):
                callbacks.TrainerCallback
            with self.assertRaises(AttributeError):
                callbacks.OtherCallback
        finally:
            for name, module in before.items():
                sys.modules.pop(name)
                if module is not None:
                    sys.modules[name] = module
            vars(callbacks).update({name: value for name, value in made.items() if value is not None})


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, NOT_BUILT)
class Resumed(InFolder):
    """Stand-ins for the libraries tell of a training that goes on from a checkpoint."""

    def numbers(self, callback, begin, count):
        model = torch.nn.Linear(8, 2)
        optimizers = [torch.optim.SGD(model.parameters(), 0.1) for _ in range(count)]
        begin(callback, model, optimizers)
        for x, y in [(torch.randn(4, 8), torch.randint(0, 2, (4,)))] * 2:
            torch.nn.functional.cross_entropy(model(x), y).backward()
            for optimizer in optimizers:
                optimizer.step()
        callback.close()
        return [row["step"] for row in ulpscope.load(callback.path).table("steps")]

    def test_steps_go_on_from_the_trainers(self):
        from ulpscope.torch import callbacks

        def train(callback, model, optimizers):
            args, state = SimpleNamespace(fp16=False, bf16=False), SimpleNamespace(global_step=120)
            callback.on_train_begin(args, state, None, model=model, optimizer=optimizers[0])

        def fit(callback, model, optimizers):
            trainer = SimpleNamespace(optimizers=optimizers, global_step=120, precision="32-true", precision_plugin=None)
            callback.on_train_start(trainer, model)

        stand_ins = {"transformers": SimpleNamespace(TrainerCallback=object), "lightning.pytorch": SimpleNamespace(Callback=object)}
        with unittest.mock.patch.dict(sys.modules, stand_ins):
            trainer, lightning = callbacks._trainer(), callbacks._lightning()
        self.assertEqual(self.numbers(trainer("trainer.h5"), train, 1), [120, 121])
        self.assertEqual(self.numbers(trainer("given.h5", first_step=7), train, 1), [7, 8])
        self.assertEqual(self.numbers(lightning("lightning.h5"), fit, 1), [120, 121])
        self.assertEqual(self.numbers(lightning("two.h5"), fit, 2), [0, 1], "global_step counts the steps of both optimizers")


@unittest.skipIf(missing("lightning"), "lightning is not installed")
@unittest.skipIf(not BUILT, NOT_BUILT)
class Lightning(InFolder):
    def fit(self, kind, path=None, fails_in=None, **options):
        import lightning.pytorch as pl
        from lightning.pytorch.plugins import MixedPrecision

        from ulpscope.torch.callbacks import LightningCallback

        class Model(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

            def training_step(self, batch, index):
                if index == fails_in:
                    raise RuntimeError("a bad batch")
                return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

            def validation_step(self, batch, index):
                self.log("val_loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), 1e-2)

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        torch.manual_seed(0)
        model = Model()
        plugins = dict(plugins=[MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**30))]) if kind == "fp16" else {
            "precision": {"fp32": "32-true", "bf16": "bf16-mixed"}[kind]}
        callback = None if path is None else LightningCallback(path, **options)
        trainer = pl.Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                             enable_model_summary=False, gradient_clip_val=1.0, callbacks=[callback] if callback else [], **plugins)
        trainer.fit(model, torch.utils.data.DataLoader(data(), batch_size=8), torch.utils.data.DataLoader(data(), batch_size=32))
        return [parameter.detach().clone() for parameter in model.parameters()]

    def test_trainings(self):
        for kind in ("fp32", "bf16", "fp16"):
            with self.subTest(kind):
                self.assert_same(self.fit(kind), self.fit(kind, f"{kind}.h5"))
                self.assert_nothing_left()
                report = ulpscope.report(f"{kind}.h5")
                steps = ulpscope.load(f"{kind}.h5").table("steps")
                self.assertEqual(len(steps), 16)
                self.assertEqual(report.verdict, "warning" if kind == "fp16" else "ok")
                self.assertIn(f"{kind.upper()}, 16 steps", report.text)
        self.assertIn("scale.backoffs", [finding["code"] for finding in report.findings])
        self.assertEqual(sum(bool(step["skipped"]) for step in steps), 13)

    def test_an_exception(self):
        with self.assertRaisesRegex(RuntimeError, "a bad batch"):
            self.fit("fp32", "bad.h5", fails_in=3)
        self.assert_nothing_left()
        self.assertEqual(len(ulpscope.load("bad.h5").table("steps")), 3)

    def test_options(self):
        self.fit("fp32", "health.h5", level="health", name="a run")
        with self.assertRaises(FileExistsError):
            self.fit("fp32", "health.h5")
        self.fit("fp32", "health.h5", overwrite=True)
        self.assert_nothing_left()

    def test_copies(self):
        from ulpscope.torch.callbacks import LightningCallback

        callback = LightningCallback("run.h5", level="health")
        for made in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
            self.assertEqual((made.path, made.options, made.recording), ("run.h5", {"level": "health"}, None))


@unittest.skipIf(missing("transformers") or missing("accelerate"), "transformers and accelerate are not installed")
@unittest.skipIf(not BUILT, NOT_BUILT)
class HuggingFace(InFolder):
    def train(self, path=None, fails_at=None, within=False, **settings):
        import transformers

        from ulpscope.torch.callbacks import TrainerCallback

        transformers.utils.logging.set_verbosity_error()
        transformers.set_seed(0)
        shape = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
        model = transformers.GPT2LMHeadModel(shape)
        tokens = torch.randint(0, 32, (16, 8))

        class Samples(torch.utils.data.Dataset):
            taken = 0

            def __len__(self):
                return len(tokens)

            def __getitem__(self, index):
                self.taken += 1
                if self.taken == fails_at:
                    raise RuntimeError("a bad sample")
                return {"input_ids": tokens[index], "labels": tokens[index]}

        given = transformers.TrainingArguments(output_dir="out", per_device_train_batch_size=2, num_train_epochs=1, use_cpu=True, report_to=[],
                                               disable_tqdm=True, save_strategy="no", logging_strategy="no", learning_rate=1e-3, **settings)
        callback = None if path is None else TrainerCallback(path)
        trainer = transformers.Trainer(model=model, args=given, train_dataset=Samples(), callbacks=[callback] if callback else [])
        trainer.remove_callback(transformers.PrinterCallback)
        if within:
            with callback:
                trainer.train()
        else:
            trainer.train()
        return [parameter.detach().clone() for parameter in model.parameters()]

    def test_trainings(self):
        for name, settings, steps in (("FP32", {}, 8), ("BF16", {"bf16": True}, 8), ("FP32", {"gradient_accumulation_steps": 2}, 4)):
            with self.subTest(settings):
                path = f"{name}{steps}.h5"
                self.assert_same(self.train(**settings), self.train(path, **settings))
                self.assert_nothing_left()
                report, rows = ulpscope.report(path), ulpscope.load(path).table("steps")
                self.assertEqual((report.verdict, len(rows)), ("ok", steps))
                self.assertIn(f"{name}, {steps} steps", report.text)
                self.assertTrue(all(3 < row["loss"] < 4 for row in rows))  # log(32) = 3.47, also where two micro-batches share it

    def test_an_exception(self):
        with self.assertRaisesRegex(RuntimeError, "a bad sample"):
            self.train("bad.h5", fails_at=8, within=True)
        self.assert_nothing_left()
        self.assertEqual(len(ulpscope.load("bad.h5").table("steps")), 2)


@unittest.skipIf(missing("accelerate"), "accelerate is not installed")
@unittest.skipIf(not BUILT, NOT_BUILT)
class Accelerate(InFolder):
    def train(self, path=None):
        from accelerate import Accelerator

        torch.manual_seed(0)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-2),
                                                       torch.utils.data.DataLoader(data(), batch_size=8))
        run = None if path is None else ulpscope.record(path, model, optimizer, accelerator.scaler)
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        if run is not None:
            run.close()
        return [parameter.detach().clone() for parameter in model.parameters()]

    def test_training(self):
        self.assert_same(self.train(), self.train("run.h5"))
        self.assert_nothing_left()
        self.assertEqual((ulpscope.report("run.h5").verdict, len(ulpscope.load("run.h5").table("steps"))), ("ok", 4))


if __name__ == "__main__":
    unittest.main()
