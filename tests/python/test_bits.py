"""Training has the same bits with and without a recording."""

import unittest

from recorded import NEEDS_TORCH, Case, recording, torch

STEPS = 50


@unittest.skipIf(torch is None, NEEDS_TORCH)
class Bits(Case):
    def train(self, autocast, scaled, recorded, make_optimizer, checkpointed=False):
        torch.manual_seed(7)
        inner = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.GELU(), torch.nn.Dropout(0.2))
        model = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.Flatten(), torch.nn.Linear(24, 12),
                                    torch.nn.LayerNorm(12), inner, torch.nn.Linear(12, 5))
        optimizer = make_optimizer(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=3) if scaled else None
        run = recording(model, optimizer, scaler) if recorded else None
        for step in range(STEPS):
            x, y = torch.randn(6, 3, 8), torch.randint(0, 5, (6,))
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
                hidden = model[:5](x)
                if checkpointed:
                    hidden = torch.utils.checkpoint.checkpoint(inner, hidden, use_reentrant=False)
                else:
                    hidden = inner(hidden)
                loss = torch.nn.functional.cross_entropy(model[6](hidden), y)
            if scaler is None:
                loss.backward()
            else:
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
        if recorded:
            run.close()
            self.assertEqual(run._session.failed, "")
            self.assertEqual(len(run.made[0].steps), STEPS)
            if scaled:
                self.assertTrue(any(step.result.skipped for step in run.made[0].steps), "the case has no overflow")
        return [tensor.detach().clone() for tensor in (*model.parameters(), *model.buffers())], torch.get_rng_state()

    def check(self, autocast, scaled, make_optimizer, **more):
        bare, state = self.train(autocast, scaled, False, make_optimizer, **more)
        seen, state_seen = self.train(autocast, scaled, True, make_optimizer, **more)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(bare, seen)))
        self.assertTrue(torch.equal(state, state_seen), "random numbers were drawn")

    def test_fp32(self):
        self.check(None, False, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=True))
        self.check(None, False, lambda p: torch.optim.AdamW(p, 0.01, fused=True))

    def test_bf16_autocast(self):
        self.check(torch.bfloat16, False, lambda p: torch.optim.AdamW(p, 0.01, foreach=True))

    def test_fp16_autocast_with_scaler(self):
        self.check(torch.float16, True, lambda p: torch.optim.Adam(p, 0.01))

    def test_checkpoint(self):
        self.check(torch.bfloat16, False, lambda p: torch.optim.AdamW(p, 0.01), checkpointed=True)


if __name__ == "__main__":
    unittest.main()
