"""What programs give to be recorded: optimizers in wrappers, and tensors in what holds them."""

import unittest
from types import SimpleNamespace

from recorded import NEEDS_TORCH, Case, recording, torch

import ulpscope


class Wrapper:
    """As of a training library, which hands on what it does not have."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __getattr__(self, name):
        return getattr(self.__dict__["optimizer"], name)


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Given(Case):
    def setUp(self):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def test_wrappers_of_optimizers(self):
        from ulpscope.torch.given import bare, listed_optimizers

        wrapped = Wrapper(Wrapper(self.optimizer))
        self.assertIs(bare(wrapped), self.optimizer)
        self.assertEqual(listed_optimizers([wrapped, self.optimizer]), [self.optimizer] * 2)
        self.optimizer.optimizer = self.optimizer
        self.assertIs(bare(wrapped), self.optimizer)
        del self.optimizer.optimizer
        self.optimizer.optimizer = None  # as of one that has none yet
        self.assertIs(bare(wrapped), self.optimizer)
        with self.assertRaisesRegex(TypeError, "optimizer has no param_groups: SimpleNamespace"):
            listed_optimizers(SimpleNamespace(optimizer=3))

    def test_an_optimizer_in_wrappers_is_the_one_that_steps(self):
        wrapped = Wrapper(Wrapper(self.optimizer))
        with recording(self.model, wrapped) as run:
            self.model(torch.ones(2, 4)).sum().backward()
            wrapped.step()
        self.assertEqual([step.result.learning_rate for step in run.made[0].steps], [0.1])
        self.assertEqual(len([call for call in run.made[0].steps[0].calls if call.updates]), 2)
        tried = ulpscope.preflight(self.model, torch.ones(2, 4), lambda model, batch: model(batch).sum(), wrapped)
        self.assertEqual(tried.verdict["fp32"], "ok")
        self.assertIsNotNone(tried.modules[0]["updates"])

    def test_what_holds_tensors(self):
        from ulpscope.torch.leaves import tensors_in

        one, two, three = (torch.full((1,), value) for value in (1.0, 2.0, 3.0))
        ring = [one, {"a": (two, None, 4, "text")}]
        ring.append(ring)
        self.assertEqual(tensors_in(ring), [one, two])
        batch = SimpleNamespace(x=three, ring=ring)
        batch.itself = batch
        self.assertEqual(tensors_in(batch), [])
        self.assertEqual(tensors_in(batch, in_objects=True), [three, one, two])
        self.assertEqual(tensors_in([one, one]), [one, one])

    def test_a_module_that_returns_a_list_in_itself(self):
        class Ring(torch.nn.Module):
            def forward(self, x):
                ring = [x * 2]
                ring.append(ring)
                return ring

        class Model(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.ring = inner, Ring()

            def forward(self, x):
                return self.ring(self.inner(x))[0]

        model = Model(self.model)
        with recording(model, self.optimizer) as run:
            model(torch.ones(2, 4)).sum().backward()
            self.optimizer.step()
        self.assertEqual(run._session.failed, "")
        self.assertEqual(len(run.made[0].steps), 1)


if __name__ == "__main__":
    unittest.main()
