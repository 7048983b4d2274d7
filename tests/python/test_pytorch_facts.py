"""PyTorch does what docs/ops.md says of it, where ulpscope's ops differ or PyTorch has several results."""

import math
import unittest
import warnings

from recorded import NEEDS_TORCH, torch

INFINITE = float("inf")


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Facts(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())

    def gradient(self, function, values, of_result):
        x = torch.tensor(values, requires_grad=True)
        function(x).backward(torch.tensor(of_result))
        return x.grad.tolist()

    def test_gates_of_infinite_gradients(self):
        self.assertEqual(self.gradient(torch.max, [1.0, 3.0, 2.0], INFINITE), [0, INFINITE, 0])
        self.assertEqual(self.gradient(lambda x: x.max(dim=0).values, [1.0, 3.0, 2.0], INFINITE), [0, INFINITE, 0])
        first, largest, last = self.gradient(torch.amax, [1.0, 3.0, 2.0], INFINITE)
        self.assertTrue(math.isnan(first) and math.isnan(last))
        self.assertEqual(largest, INFINITE)

    def test_ignored_rows(self):
        def loss(x):
            return torch.nn.functional.cross_entropy(x, torch.tensor([0, -100]), reduction="none")

        self.assertEqual(self.gradient(loss, [[1.0, 2.0], [3.0, 4.0]], [1.0, INFINITE])[1], [0, 0])
        self.assertTrue(all(map(math.isnan, self.gradient(loss, [[1.0, 2.0], [math.nan, 4.0]], [1.0, 1.0])[1])))

    def test_variance_with_a_correction_above_the_count(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual([torch.tensor([1.0, 2.0, 4.0]).var(correction=each).item() for each in (3, 4, 5)], [INFINITE] * 3)

    def test_forms_of_adam_differ_in_bits(self):
        def updated(dtype, **form):
            torch.manual_seed(0)
            weight = torch.randn(1000).to(dtype).requires_grad_()
            optimizer = torch.optim.Adam([weight], 1e-2, **form)
            for _ in range(5):
                weight.grad = (torch.randn(1000) * 0.1).to(dtype)
                optimizer.step()
            return weight.detach()

        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            self.assertGreater(int((updated(dtype, foreach=False) != updated(dtype, fused=True)).sum()), 0, dtype)
        self.assertGreater(int((updated(torch.float16, foreach=False) != updated(torch.float16, foreach=True)).sum()), 0)

    def test_sums_in_16_bits(self):
        """256 + 1 is 256 in BF16."""
        for threads, sum_of_ones in ((1, 256), (2, 512)):
            torch.set_num_threads(threads)
            norm = torch.nn.LayerNorm(4).bfloat16()
            result = norm(torch.tensor([-1.0, 1, 1, 1]).expand(4096, 4).bfloat16())
            result.backward(torch.ones_like(result))
            self.assertEqual(norm.bias.grad.tolist(), [sum_of_ones] * 4)
            self.assertEqual(torch.histc(torch.ones(4096).bfloat16(), bins=2, min=0, max=2).tolist(), [0, sum_of_ones])
        torch.set_num_threads(1)
        embedding = torch.nn.Embedding(2, 1).bfloat16()
        embedding(torch.zeros(4096, dtype=torch.long)).backward(torch.ones(4096, 1).bfloat16())
        self.assertEqual(embedding.weight.grad.tolist(), [[256], [0]])


if __name__ == "__main__":
    unittest.main()
