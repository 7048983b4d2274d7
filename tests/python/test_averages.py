"""Running averages of weights that a program keeps beside its optimizer: what it adds to them, and what is none."""

import copy
import unittest

from recorded import NEEDS_TORCH, Case, recording, torch


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Averages(Case):
    def setUp(self):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 3).to(torch.bfloat16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.5)
        self.average = copy.deepcopy(self.model)
        self.additions = []  # in each step, by parameter: the average before and after, and the weight

    def train(self, average, steps=3, model=None):
        """Takes steps; average(means, weights) adds to the averages behind each."""
        model = model or self.model
        pairs = list(zip(self.average.parameters(), self.model.parameters()))
        with recording(model, self.optimizer) as run:
            for _ in range(steps):
                self.optimizer.zero_grad()
                self.model(torch.randn(8, 4, dtype=torch.bfloat16)).float().square().sum().backward()
                self.optimizer.step()
                with torch.no_grad():
                    average(*map(list, zip(*pairs)))
        return run.made[0].steps

    def of_averages(self, steps):
        return [{call.call.parameter: call for call in step.calls if call.updates and call.call.function != "sgd_update"} for step in steps]

    def check(self, steps, before, after, weights, asked, role="buffer"):
        """The last step's additions are those of the program: the values, and what was asked for, in FP32."""
        found = self.of_averages(steps)
        self.assertEqual([len(each) for each in found], [2] * len(steps))
        for index, name in enumerate(("weight", "bias")):
            call = next(call for parameter, call in found[-1].items() if parameter.endswith(name))
            self.assertEqual((call.call.phase, call.call.kind), ("optimizer", "elementwise" if call.call.function == "other" else ""))
            (slot, update), = call.updates.items()
            self.assertEqual(call.outputs[slot].label.role, role)
            self.assertTrue(torch.equal(update.before.double(), before[index].double()), name)
            self.assertTrue(torch.equal(update.after.double(), after[index].double()), name)
            wanted = asked(before[index].float(), weights[index].float())
            self.assertTrue(torch.allclose(update.update.double(), wanted.double(), rtol=2**-22, atol=0), name)

    def test_parts_that_are_added(self):
        """Each way to add a part of the weights, and d: that part of them, or of their difference to the average."""
        added = lambda mean, weight: 0.001 * weight
        towards = lambda mean, weight: 0.125 * (weight - mean)

        def by_add(means, weights):
            for mean, weight in zip(means, weights):
                mean.mul_(0.999).add_(weight, alpha=0.001)

        def by_data(means, weights):
            for mean, weight in zip(means, weights):
                mean.data.mul_(0.999).add_(weight.data, alpha=0.001)

        def by_lists(means, weights):
            torch._foreach_mul_(means, 0.999)
            torch._foreach_add_(means, weights, alpha=0.001)

        def by_lerp(means, weights):
            for mean, weight in zip(means, weights):
                mean.lerp_(weight, 0.125)

        def by_lerp_of_lists(means, weights):
            torch._foreach_lerp_(means, weights, 0.125)

        for way, asked in ((by_add, added), (by_data, added), (by_lists, added), (by_lerp, towards), (by_lerp_of_lists, towards)):
            with self.subTest(way=way.__name__):
                self.setUp()
                seen = []

                def watched(means, weights):
                    before = [mean.clone() if asked is towards else mean * 0.999 for mean in means]
                    way(means, weights)
                    seen.append((before, [mean.clone() for mean in means], [weight.clone() for weight in weights]))

                steps = self.train(watched)
                self.check(steps, *seen[-1], asked)

    def test_averaged_model(self):
        """Its first call copies the weights."""
        swa = torch.optim.swa_utils
        averaged = swa.AveragedModel(self.model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.875))
        self.average = averaged.module
        seen = []

        def average(means, weights):
            before = [mean.clone() for mean in means]
            averaged.update_parameters(self.model)
            seen.append((before, [mean.clone() for mean in means], [weight.clone() for weight in weights]))

        steps = self.train(average, 4)
        self.check(steps[1:], *seen[-1], lambda mean, weight: 0.125 * (weight - mean))
        self.assertEqual(self.of_averages(steps[:1]), [{}])

    def test_an_average_in_the_model(self):
        """As a teacher has it: it is a parameter of its own."""
        both = torch.nn.ModuleDict({"student": self.model, "teacher": self.average.requires_grad_(False)})
        seen = []

        def average(means, weights):
            before = [mean.clone() for mean in means]
            torch._foreach_lerp_(means, weights, 0.125)
            seen.append((before, [mean.clone() for mean in means], [weight.clone() for weight in weights]))

        steps = self.train(average, model=both)
        self.check(steps, *seen[-1], lambda mean, weight: 0.125 * (weight - mean), role="weight")
        self.assertEqual(set(self.of_averages(steps)[-1]), {"teacher.weight", "teacher.bias"})

    def test_what_is_no_average(self):
        """FP32 loses nothing; a sum has a factor of 1; an optimizer's own step and weights that the program changes are told as such."""

        def wide(means, weights):
            for mean, weight in zip(means, weights):
                mean.lerp_(weight.float(), 0.125)

        def of_sum(means, weights):
            torch._foreach_add_(means, weights)

        def of_weights(means, weights):
            for mean, weight in zip(means, weights):
                weight.lerp_(mean, 0.125)

        for way in (wide, of_sum, of_weights):
            with self.subTest(way=way.__name__):
                self.setUp()
                if way is wide:
                    self.average = self.average.float()
                self.assertEqual(self.of_averages(self.train(way)), [{}] * 3)


if __name__ == "__main__":
    unittest.main()
