"""Runs of two processes: their traces, what passes between them, and reports of a folder with both."""

import contextlib
import datetime
import multiprocessing
import os
import tempfile
import unittest
import warnings

from recorded import NEEDS_TORCH, Case, torch

import ulpscope
from ulpscope._library import Recorder

BUILT = os.environ.get("ULPSCOPE_LIBRARY") and os.environ.get("ULPSCOPE_PROGRAM")
BAD = 37  # the sample that has a NaN, of 64


def in_two_processes(work, *given):
    """Calls work(rank, folder, *given) in each; the folder with what they wrote, which the caller removes."""
    folder = tempfile.TemporaryDirectory()
    context = multiprocessing.get_context("fork")  # what is imported, is imported
    processes = [context.Process(target=_as_rank, args=(rank, folder.name, work, given)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        folder.cleanup()
        raise AssertionError(f"processes ended with {[process.exitcode for process in processes]}")
    return folder


def _as_rank(rank, folder, work, given):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2,
                                         timeout=datetime.timedelta(minutes=2))
    work(rank, folder, *given)
    torch.distributed.destroy_process_group()


def model_of():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def loader_of(bad):
    """A loader of 64 samples, of which each process gets every second one."""
    torch.manual_seed(2)
    x = torch.randn(64, 4)
    y = (x[:, 0] > 0).long()
    if bad:
        x[BAD, 1] = float("nan")
    data = torch.utils.data.TensorDataset(x, y)
    sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
    return torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)


def train(rank, folder, way, bad):
    """Writes a trace of 8 steps, and the gradients that optimizers read, as the processes have them in the end."""
    model = model_of()
    if way == "sharded":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
    elif way.startswith("ddp"):
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=way == "ddp in buckets")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    read = []
    with ulpscope.record(os.path.join(folder, "run"), model, optimizer) as run:
        for x, y in loader_of(bad):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            exchange(way, model.parameters())
            read.append([getattr(parameter.grad, "_local_tensor", parameter.grad).clone() for parameter in model.parameters()])
            optimizer.step()
    assert not run._session.failed, run._session.failed
    assert not run._session.refusals, run._session.refusals
    torch.save(read, os.path.join(folder, f"gradients{rank}.pt"))


def train_scaled(rank, folder):
    """Gradients of rank 1 overflow in step 2, for which the scaler of both leaves out the step."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    model = model_of()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), ShardedGradScaler("cpu", init_scale=1024.0)
    losses = []
    with ulpscope.record(os.path.join(folder, "run"), model, optimizer, scaler) as run:
        for step in range(5):
            optimizer.zero_grad()
            x = torch.full((4, 4), float("inf") if (rank, step) == (1, 2) else 1.0)
            loss = torch.nn.functional.cross_entropy(model(x), torch.zeros(4, dtype=torch.long))
            losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert not run._session.failed, run._session.failed
    torch.save(losses, os.path.join(folder, f"losses{rank}.pt"))


def train_one(rank, folder, records):
    """Only one of the processes records; the other one trains beside it."""
    from ulpscope.torch import record

    record._WAIT_FOR_RANK_0 = datetime.timedelta(milliseconds=10)
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with ulpscope.record(os.path.join(folder, "run"), model, optimizer) if rank == records else contextlib.nullcontext():
            for x, y in loader_of(False):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                exchange("waits", model.parameters())
                optimizer.step()
    told = [str(each.message) for each in said if "ulpscope" in str(each.message)]
    assert [text.split(":")[1] for text in told] == [
        " rank 1 got no id of the run from rank 0, so that its trace counts as a run of its own"] * (rank == records == 1), told


def exchange(way, parameters):
    """Programs that exchange gradients themselves."""
    from torch.distributed import _functional_collectives as functional

    gradients = [parameter.grad for parameter in parameters]
    if way == "waits":
        for gradient in gradients:
            torch.distributed.all_reduce(gradient)
    elif way == "waits later":
        for work in [torch.distributed.all_reduce(gradient, async_op=True) for gradient in gradients]:
            work.wait()
    elif way == "functional":
        for gradient in gradients:
            gradient.copy_(functional.all_reduce(gradient, "sum", torch.distributed.group.WORLD))
    elif way == "gathered":
        for gradient in gradients:
            both = [torch.zeros_like(gradient) for _ in range(2)]
            torch.distributed.all_gather(both, gradient)
            gradient.copy_(both[0] + both[1])


def rows_of(path):
    """The rows of a trace, each with its op's."""
    trace = ulpscope.load(path)
    ops, tensors = trace.table("ops"), trace.table("tensors")
    return [{**ops[tensors[row["tensor"]]["op"]], **tensors[row["tensor"]], **row} for row in trace.table("stats")]


@unittest.skipIf(torch is None, NEEDS_TORCH)
@unittest.skipIf(not BUILT, "ULPSCOPE_LIBRARY and ULPSCOPE_PROGRAM are not set")
class Ranks(Case):
    def trained(self, way, bad):
        folder = in_two_processes(train, way, bad)
        self.addCleanup(folder.cleanup)
        return folder.name

    def check_blames_rank_1(self, folder):
        """Sample 37 is in rank 1's batch of step 4."""
        report = ulpscope.report(os.path.join(folder, "run"))
        first = report.data["causes"][0]
        self.assertEqual((report.verdict, first["code"], first["step"]), ("broken", "data.nonfinite", 4), report.text)
        text = " ".join(report.text.split())
        self.assertIn(f"element 1 of sample {BAD} of TensorDataset, rank 1, step 4", text)
        self.assertEqual([cause["code"] for cause in report.data["causes"]], ["data.nonfinite"], report.text)

    def check_collectives(self, folder, function):
        """Each is a row behind what it read, with the values that were there once it was waited for."""
        for rank in range(2):
            gradients = torch.load(os.path.join(folder, f"gradients{rank}.pt"))
            rows = [row for row in rows_of(os.path.join(folder, "run", f"rank{rank}.h5")) if row["kind"] == "collective"]
            self.assertEqual({(row["function"], row["phase"]) for row in rows}, {(function, "communication")})
            for step, expected in enumerate(gradients):
                of_step = [row for row in rows if row["step"] == step]
                total = sum(row["sum_of_squares"] for row in of_step)
                self.assertAlmostEqual(total, sum(each.double().pow(2).sum().item() for each in expected), places=9)

    def test_exchanged_by_hand(self):
        for way in ("waits", "waits later", "functional"):
            with self.subTest(way):
                self.check_collectives(self.trained(way, False), "all_reduce")

    def test_data_parallel(self):
        for way in ("ddp", "ddp in buckets"):
            with self.subTest(way):
                self.check_collectives(self.trained(way, False), "all_reduce")
                self.check_blames_rank_1(self.trained(way, True))

    def test_a_nan_that_is_gathered(self):
        self.check_blames_rank_1(self.trained("gathered", True))

    def test_sharded(self):
        folder = self.trained("sharded", False)
        report = ulpscope.report(os.path.join(folder, "run"))
        self.assertEqual((report.verdict, report.data["causes"]), ("ok", []), report.text)
        self.check_collectives(folder, "reduce_scatter")
        for rank in range(2):
            gradients = torch.load(os.path.join(folder, f"gradients{rank}.pt"))
            path = os.path.join(folder, "run", f"rank{rank}.h5")
            rows = rows_of(path)
            updates = [row for row in rows if row["role"] == "weight" and row["function"] == "sgd_update"]
            self.assertEqual([row["parameter"] for row in updates], ["0.weight", "0.bias", "2.weight", "2.bias"] * 8)
            self.assertEqual([row["count"] for row in updates[:4]], [each.numel() for each in gradients[0]])
            self.assertEqual([event["text"] for event in ulpscope.load(path).table("events") if "forward op" in event["text"]], [])
            backward = [row for row in rows if row["phase"] == "backward" and row["role"] == "weight_gradient"]
            self.assertEqual({row["parameter"] for row in backward}, {"0.weight", "0.bias", "2.weight", "2.bias"})
        self.check_blames_rank_1(self.trained("sharded", True))

    def test_a_scaler_of_sharded_models(self):
        folder = in_two_processes(train_scaled)
        self.addCleanup(folder.cleanup)
        for rank in range(2):
            trace = ulpscope.load(os.path.join(folder.name, "run", f"rank{rank}.h5"))
            steps = trace.table("steps")
            self.assertEqual([row["skipped"] for row in steps], [False, False, True, False, False])
            self.assertEqual([(row["scale_before"], row["scale_after"]) for row in steps],
                             [(1024, 1024)] * 2 + [(1024, 512)] + [(512, 512)] * 2)
            self.assertEqual(repr([row["loss"] for row in steps]), repr(torch.load(os.path.join(folder.name, f"losses{rank}.pt"))))
            scales = [{row["scale"] for row in rows_of(trace.path) if row["role"] == "weight_gradient" and row["phase"] == "backward"
                       and row["step"] == step} for step in (0, 4)]
            self.assertEqual(scales, [{1024.0}, {512.0}])

    def test_one_process_records(self):
        for records in range(2):
            folder = in_two_processes(train_one, records)
            self.addCleanup(folder.cleanup)
            self.assertEqual(os.listdir(os.path.join(folder.name, "run")), [f"rank{records}.h5"])
            self.assertEqual(len(ulpscope.load(os.path.join(folder.name, "run", f"rank{records}.h5")).table("steps")), 8)

    def test_a_folder_is_one_run(self):
        """As where processes share nothing; the one of rank 1 meets a NaN."""
        from ulpscope.torch.record import Recording

        with tempfile.TemporaryDirectory() as folder:
            for rank in (0, 1):

                def make(run, options):
                    return Recorder({**run, "run_id": "0123456789abcdef", "rank": rank, "world_size": 2}, options)

                model = model_of()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                with self.watch(Recording(os.path.join(folder, f"rank{rank}.h5"), model, optimizer, make_recorder=make)):
                    for step in range(4):
                        x = torch.randn(8, 4)
                        if rank == 1 and step == 3:
                            x[2, 1] = float("nan")
                        optimizer.zero_grad()
                        torch.nn.functional.cross_entropy(model(x), torch.zeros(8, dtype=torch.long)).backward()
                        optimizer.step()
            report = ulpscope.report(folder)
            self.assertEqual(report.verdict, "broken", report.text)
            self.assertRegex(report.text, r"rank 1")
            self.assertIn(report.text.splitlines()[0].split(": ")[1][:20], report._repr_html_())
            steps = ulpscope.load(folder).table("steps")
            self.assertEqual([(row["rank"], row["step"]) for row in steps], [(rank, step) for rank in (0, 1) for step in range(4)])


if __name__ == "__main__":
    unittest.main()
