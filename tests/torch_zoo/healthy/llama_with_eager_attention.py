"""A Llama of transformers with attention written out, in BF16 autocast; and its key-value cache in an evaluation."""

import torch
import transformers

import ulpscope


def train(path):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=16, attn_implementation="eager",
                                      bos_token_id=1, eos_token_id=2, pad_token_id=0)
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with ulpscope.record(path, model, optimizer):
        for step in range(8):
            tokens = torch.randint(3, 40, (4, 10))
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            if step == 4:
                with torch.no_grad():
                    model.generate(tokens[:1, :4], max_new_tokens=3, do_sample=False)
    return losses
