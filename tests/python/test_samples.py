"""Which samples a batch has: told of the pass that reads it, whatever a program does with loaders and batches in between."""

import unittest

from recorded import NEEDS_TORCH, Case, recording, torch

if torch is not None:
    from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, dataloader

    from ulpscope.torch.automatic import Automatic

    class Numbered(Dataset):
        """Sample i is a row that begins with i."""

        def __init__(self, size, raises_at=None):
            self.size, self.raises_at = size, raises_at

        def __len__(self):
            return self.size

        def __getitem__(self, i):
            if i == self.raises_at:
                raise ValueError(f"sample {i}")
            return torch.tensor([i, 2.0, 3.0]), torch.tensor(i % 2)

    class Endless(IterableDataset):
        def __iter__(self):
            yield from ((torch.ones(3), 0) for _ in range(8))


def numbers(x):
    """The samples that a batch of Numbered has, as itself says."""
    return x[:, 0].round().int().tolist()


def sorted_batch(batch):
    batch = sorted(batch, key=lambda item: -item[0][0])
    return torch.stack([x for x, _ in batch]), torch.stack([y for _, y in batch])


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Samples(Case):
    def setUp(self):
        torch.manual_seed(5)
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)

    def step(self, x, y):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def train(self, loader, prepare=lambda x, y: (x, y)):
        """Trains an epoch; the recorder's knowledge, and the samples of each batch as the batches say."""
        truth = []
        with recording(self.model, self.optimizer) as run:
            for x, y in loader:
                truth.append(numbers(x))
                self.step(*prepare(x, y))
        self.assertEqual(run._session.failed, "")
        return run.made[0], truth

    def told(self, recorded):
        return [[samples for _, _, _, samples in step.batches] for step in recorded.steps]

    def inputs(self, step):
        """The part that samples play in each input of a step, by its name."""
        return {call.call.name: call.call.attributes for call in step.calls if call.call.function == "source" and
                any(output.label.role == "input" for output in call.outputs.values())}

    def check_in_rows(self, recorded, truth):
        self.assertEqual(self.told(recorded), [[samples] for samples in truth])
        for step in recorded.steps:
            self.assertEqual(self.inputs(step), {"input_of_batch": "samples=rows"})

    def test_loaders(self):
        for options in ({}, {"shuffle": True}, {"shuffle": True, "num_workers": 2}, {"drop_last": True, "num_workers": 1},
                        {"sampler": [3, 1, 4, 1, 5]}, {"batch_sampler": [[2, 7], [1], [8, 2, 8]]}):
            with self.subTest(options=options):
                batch = {} if "batch_sampler" in options else {"batch_size": 4}
                recorded, truth = self.train(DataLoader(Numbered(10), **batch, **options))
                self.check_in_rows(recorded, truth)
                self.assertEqual(recorded.sources, [(0, "Numbered", 10)])

    def test_workers_that_stay_and_epochs_that_are_left(self):
        loader = DataLoader(Numbered(40, raises_at=9), batch_size=4, num_workers=2, persistent_workers=True, prefetch_factor=3)
        truth = []
        with recording(self.model, self.optimizer) as run:
            for _ in range(2):
                given = iter(loader)
                while len(truth) % 5 < 4:
                    try:
                        x, y = next(given)
                    except ValueError:  # of the worker that had sample 9
                        continue
                    truth.append(numbers(x))
                    self.step(x, y)
                truth.append(numbers(x))
                self.step(x, y)
        self.assertNotIn(9, sum(truth, []))
        self.check_in_rows(run.made[0], truth)

    def test_a_program_that_reads_ahead(self):
        def ahead(loader):
            before = None
            for batch in loader:
                if before is not None:
                    yield before
                before = batch
            yield before

        self.check_in_rows(*self.train(ahead(DataLoader(Numbered(20), batch_size=4, shuffle=True))))

    def test_preparation(self):
        mean = torch.ones(3)
        rows = {
            "cast": lambda x: x.double().float(),
            "normalized": lambda x: (x - mean) / 2,
            "in place": lambda x: x.mul_(2.0).add_(1),
            "noise": lambda x: x + torch.randn_like(x),
            "view": lambda x: x.view(-1, 3)[:, :],
            "norms": lambda x: x / (1 + x.norm(dim=1, keepdim=True)),
            "moments": lambda x: (x - x.mean(1, keepdim=True)) / (1 + x.std((-1,))[:, None]),
            "softmax": lambda x: x.softmax(1) - x.logsumexp(1, True) + x.amax(-1, True),
            "largest": lambda x: x / (1 + x.max(1, keepdim=True).values),
        }
        for name, prepare in rows.items():
            with self.subTest(name):
                self.check_in_rows(*self.train(DataLoader(Numbered(8), batch_size=4), lambda x, y: (prepare(x), y)))
        unordered = {"permuted": lambda x: x[torch.randperm(4)], "mixed": lambda x: 0.5 * x + 0.5 * x[torch.randperm(4)],
                     "flipped": lambda x: x.flip(0), "softmax over samples": lambda x: x.softmax(0), "sums": lambda x: x.cumsum(-2)}
        for name, prepare in unordered.items():
            with self.subTest(name):
                # The loss reads targets that are integers, and are as they came.
                recorded, truth = self.train(DataLoader(Numbered(8), batch_size=4, shuffle=True), lambda x, y: (prepare(x), y))
                self.assertEqual(self.told(recorded), [[samples] for samples in truth])
                self.assertEqual(self.inputs(recorded.steps[0]), {"input_of_unordered_batch": "samples=unordered"})
        for name, prepare in {"filtered": lambda x: x[x[:, 0] % 4 > 0], "summed": lambda x: x.sum(0, keepdim=True)}.items():
            with self.subTest(name):
                recorded, _ = self.train(DataLoader(Numbered(8), batch_size=4),
                                         lambda x, y: (prepare(x), torch.zeros(len(prepare(x)), dtype=torch.long)))
                self.assertEqual(self.told(recorded), [[], []])
                self.assertEqual(self.inputs(recorded.steps[0]), {"input": "samples=none"})

    def test_micro_batches_have_parts_of_a_batch(self):
        truth = []
        with recording(self.model, self.optimizer) as run:
            for x, y in DataLoader(Numbered(16), batch_size=8, shuffle=True):
                self.optimizer.zero_grad()
                for part, target in zip(x.chunk(3), y.chunk(3)):
                    truth.append(numbers(part))
                    torch.nn.functional.cross_entropy(self.model(part * 1.0), target).backward()
                self.optimizer.step()
        told = [batch for step in run.made[0].steps for batch in step.batches]
        self.assertEqual([samples for _, _, _, samples in told], truth)
        self.assertEqual([micro_batch for _, micro_batch, _, _ in told], [0, 1, 2] * 2)

    def test_evaluation_has_its_own(self):
        training, validation = Numbered(8), Subset(Numbered(12), range(6, 12))
        with recording(self.model, self.optimizer) as run:
            for x, y in DataLoader(training, batch_size=4):
                self.step(x, y)
                with torch.no_grad():
                    for x, y in DataLoader(validation, batch_size=3):
                        self.model(x)
        recorded = run.made[0]
        self.assertEqual(recorded.sources, [(0, "Numbered", 8), (1, "Subset", 6)])
        evaluations = [("evaluation", 0, 1, [0, 1, 2]), ("evaluation", 1, 1, [3, 4, 5])]
        self.assertEqual([step.batches for step in recorded.steps],
                         [[("forward", 0, 0, [0, 1, 2, 3]), *evaluations], [("forward", 0, 0, [4, 5, 6, 7]), *evaluations]])
        phases = [call.call.phase for call in recorded.steps[0].calls if call.call.name == "input_of_batch"]
        self.assertEqual(phases, ["data", "evaluation", "evaluation"])

    def test_where_rows_are_not_in_the_order_of_the_sampler(self):
        recorded, truth = self.train(DataLoader(Numbered(8), batch_size=4, collate_fn=sorted_batch))
        self.assertEqual([sorted(samples) for samples in truth], sum(self.told(recorded), []))
        self.assertEqual(self.inputs(recorded.steps[0]), {"input_of_unordered_batch": "samples=unordered"})

    def test_one_sample_at_a_time(self):
        data = TensorDataset(torch.arange(24.0).view(6, 4, 1).expand(6, 4, 3).contiguous())
        with recording(self.model, self.optimizer) as run:
            before = None
            for (x,) in DataLoader(data, batch_size=None, shuffle=True):  # views of one memory, read late
                if before is not None:
                    self.step(before, torch.zeros(4, dtype=torch.long))
                before = x
        # Nothing is said of a view into memory that another sample was given from since.
        self.assertEqual(self.told(run.made[0]), [[]] * 5)
        truth = []
        with recording(self.model, self.optimizer) as run:
            for (x,) in DataLoader(data, batch_size=None, shuffle=True):
                truth.append([int(x[0, 0]) // 4])
                self.step(x, torch.zeros(4, dtype=torch.long))
        self.check_in_rows(run.made[0], truth)

    def test_two_batches_in_a_pass_are_told_apart(self):
        class Both(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 2)

            def forward(self, a, b):
                return self.layer(a) + self.layer(b)

        self.model = Both()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)
        with recording(self.model, self.optimizer) as run:
            for (x, y), (u, _) in zip(DataLoader(Numbered(4), batch_size=4), DataLoader(Numbered(8), batch_size=4)):
                self.optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.model(x, u), y).backward()
                self.optimizer.step()
        self.assertEqual(self.told(run.made[0]), [[[0, 1, 2, 3]]])
        self.assertEqual(self.inputs(run.made[0].steps[0]), {"input_of_batch": "samples=rows", "input": "samples=none"})

    def test_what_has_no_numbers_is_said(self):
        for loader, why in ((DataLoader(Endless(), batch_size=4), "their data set is iterable"),
                            (DataLoader({"a": (torch.ones(3), 0), "b": (torch.ones(3), 1)}, sampler=["a", "b"], batch_size=1),
                             "their sampler gives no numbers from 0 on"),
                            (DataLoader(Numbered(2), batch_size=1, num_workers=1, in_order=False),
                             "workers give them in any order (in_order=False)")):
            with self.subTest(why):
                recorded, _ = self.train(loader)
                self.assertEqual(self.told(recorded), [[], []])
                self.assertEqual(recorded.notes, [f"2 batches of data loaders have no numbers of samples: {why}."])
        recorded, _ = self.train(DataLoader(Numbered(4), batch_size=2), lambda x, y: (torch.tensor(x.tolist()), torch.tensor(y.tolist())))
        self.assertEqual(recorded.notes, ["No pass reads a batch of a data loader as it was given, so that its samples are not known."])

    def test_a_script_that_is_not_changed(self):
        runs, truth = [], []

        def begin(path, *given, **options):
            runs.append(recording(*given, **options))
            return runs[-1]

        automatic = Automatic("run.h5", {}, begin=begin)
        self.addCleanup(automatic.close)
        optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)
        self.optimizer = optimizer
        for x, y in DataLoader(Numbered(12), batch_size=4, shuffle=True, num_workers=1):
            truth.append(numbers(x))
            self.step(x, y)
        automatic.close()
        self.check_in_rows(runs[0].made[0], truth)

    def test_nothing_changes(self):
        iterators = dataloader._BaseDataLoaderIter
        before = iterators._next_index, iterators.__next__

        def run(recorded):
            torch.manual_seed(11)
            loader = DataLoader(Numbered(12), batch_size=4, shuffle=True, num_workers=1)
            if recorded:
                _, order = self.train(loader)
            else:
                order = []
                for x, y in loader:
                    order.append(numbers(x))
                    self.step(x, y)
            return order, torch.get_rng_state()

        (order, state), (order_seen, state_seen) = run(False), run(True)
        self.assertEqual(order, order_seen)
        self.assertTrue(torch.equal(state, state_seen))
        self.assertEqual((iterators._next_index, iterators.__next__), before)


if __name__ == "__main__":
    unittest.main()
