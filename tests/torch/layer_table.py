"""The table of layers: what each type of an experiment computes, in PyTorch's functions. One row each.

A row gets the run (which knows types, roundings and parameters), the layer's keys, its module path, and x. `run.op` calls a function:
by its class of autocast, with the number of terms that its sums have, forward and backward.
"""

import dataclasses
import functools
import math

import torch
from torch.nn import functional


@dataclasses.dataclass
class Typed:
    """A tensor in FP64 and the format that our step would hold it in."""

    value: torch.Tensor
    form: str

    def view(self, change):
        return Typed(change(self.value), self.form)


def linear(run, layer, path, x):
    return affine(run, x, run.parameter(path, "weight"), *run.parameter(path, "bias"))


def affine(run, x, w, *b):
    return run.op("lower", functional.linear, x, w, *b, terms=w.value.shape[1] + 1, backward=w.value.shape[0] + rows(x))


def rows(x):
    """Of a batch as a layer sees it: the terms of a sum over it."""
    return x.value.numel() // max(x.value.shape[-1], 1)


def convolution(function, transposed=False):
    def layer_of(run, layer, path, x):
        w, b = run.parameter(path, "weight"), run.parameter(path, "bias")
        places = x.value.numel() // x.value.shape[1]
        window = math.prod(w.value.shape[2:])
        keys = ("stride", "padding", *(["output_padding"] if transposed else []), "groups", "dilation")
        options = {key: layer[key] if key == "groups" else pair(layer[key], w.value.dim() - 2) for key in keys}
        return run.op("lower", lambda *t: function(*t, **options), x, w, *b, terms=w.value[0].numel() + 1,
                      backward=w.value.shape[0] * window + places)
    return layer_of


def pair(value, dimensions=2):
    return tuple(value) if isinstance(value, list) else (value,) * dimensions


def pool(function, average=False, **more):
    def layer_of(run, layer, path, x):
        kernel = pair(layer["kernel"])
        options = {name: layer[key] for name, key in more.items()}
        terms = math.prod(kernel) + 1 if average else 1
        return run.op("input", lambda t: function(t, kernel, pair(layer.get("stride", layer["kernel"])), pair(layer["padding"]), **options), x,
                      terms=terms, backward=terms)
    return layer_of


def adaptive(function):
    def layer_of(run, layer, path, x):
        places = math.prod(x.value.shape[2:])
        return run.op("input", lambda t: function(t, pair(layer["output_size"])), x, terms=places, backward=places)
    return layer_of


def branches(run, layer, path, x):
    outputs = [sequence(run, [one], path, x) for one in layer["layers"]]
    if layer["join"] == "concat":
        return run.op("input", lambda *t: torch.cat(t, layer["dim"] + 1), *outputs)
    return functools.reduce(lambda a, b: run.op("input", torch.add, a, b), outputs)


def batch_norm(run, layer, path, x):
    w, b = run.parameter(path, "weight"), run.parameter(path, "bias")
    count = x.value.numel() // x.value.shape[1]
    mean, variance = run.buffer(path, "running_mean", 0.0, count), run.buffer(path, "running_var", 1.0, count)
    return run.op("first", lambda x, w, b: functional.batch_norm(x, mean, variance, w, b, True, layer["momentum"], layer["eps"]), x, w, *b,
                  terms=count, backward=count)


def normalization(function):
    def layer_of(run, layer, path, x):
        parameters = [p for name in ("weight", "bias") for p in run.parameters_of(path, name)]
        width = x.value.shape[-1:]
        return run.op("fp32", lambda x, *p: function(x, width, *p, layer["eps"]), x, *parameters,
                      terms=width[0], backward=width[0] + rows(x))
    return layer_of


def group_norm(run, layer, path, x):
    parameters = [p for name in ("weight", "bias") for p in run.parameters_of(path, name)]
    terms = x.value[0].numel() // layer["groups"]
    return run.op("fp32", lambda t, *p: functional.group_norm(t, layer["groups"], *p, layer["eps"]), x, *parameters,
                  terms=terms, backward=terms + x.value.numel() // x.value.shape[1])


def embedding(run, layer, path, x):
    return run.op("input", lambda w, i: functional.embedding(i, w), run.parameter(path, "weight"), x, backward=rows(x))


def position_embedding(run, layer, path, x):
    return run.op("input", torch.add, x, run.parameter(path, "weight"), backward=x.value.shape[0])


def attention(run, layer, path, x):
    batch, places, width = x.value.shape
    heads, size = layer["heads"], width // layer["heads"]
    qkv = linear(run, {}, f"{path}.qkv", x)
    q, k, v = (qkv.view(lambda t, i=i: t.view(batch, places, 3 * heads, size).transpose(1, 2).chunk(3, 1)[i]) for i in range(3))
    later = torch.triu(torch.ones(places, places, dtype=torch.bool), 1) if layer["causal"] else None
    return linear(run, {}, f"{path}.out", attended(run, q, k, v, later).view(lambda t: t.transpose(1, 2).reshape(batch, places, width)))


def attended(run, q, k, v, masked):
    """The math path of scaled_dot_product_attention: autocast casts what comes in, and from there to the result all is FP32."""
    places, size = k.value.shape[-2:]
    q, k, v = (run.op("lower", lambda t: t, x) for x in (q, k, v))
    product = lambda a, b, terms: run.op("fp32", torch.matmul, a, b, terms=terms, backward=terms + places)
    q, k = (run.op("fp32", lambda t: t * math.sqrt(1 / math.sqrt(size)), x) for x in (q, k))
    scores = product(q, k.view(lambda t: t.transpose(-1, -2)), size)
    weights = run.op("fp32", lambda t: (t if masked is None else t.masked_fill(masked, -math.inf)).softmax(-1), scores,
                     terms=places, backward=places)
    return run.op("lower", lambda t: t, product(weights, v, places))


def cross_attention(run, layer, path, x):
    batch, places, width = x.value.shape
    heads, size, source = layer["heads"], width // layer["heads"], run.encoded
    by_head = lambda t, parts: t.view(batch, -1, parts * heads, size).transpose(1, 2)
    q = linear(run, {}, f"{path}.query", x).view(lambda t: by_head(t, 1))
    both = linear(run, {}, f"{path}.key_value", source)
    k, v = (both.view(lambda t, i=i: by_head(t, 2).chunk(2, 1)[i]) for i in range(2))
    return linear(run, {}, f"{path}.out", attended(run, q, k, v, None).view(lambda t: t.transpose(1, 2).reshape(batch, places, width)))


def encoder_decoder(run, layer, path, x):
    size = layer["source_size"]
    run.encoded = sequence(run, layer["encoder"], f"{path}.encoder", x.view(lambda t: t[:, :size]))
    return sequence(run, layer["decoder"], f"{path}.decoder", x.view(lambda t: t[:, size:]))


def lstm_step(run, gates, state, hidden):
    """PyTorch's cell, of gates that are given: its weights leave them as they are. Gradients start from gates and a cell as stored."""
    def cell(x, h, c):
        zeros, eye = torch.zeros_like(c), torch.eye(x.shape[-1], dtype=x.dtype)
        exact = torch.lstm_cell(x + h, (zeros, c), eye, zeros.new_zeros(x.shape[-1], c.shape[-1]))
        i, f, g, o = (x + h).chunk(4, -1)
        i, f, g, o = (run.stored(t, gates.form) for t in (i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()))
        new = f * c + i * g
        return replaced(o * run.stored(new, gates.form).tanh(), exact[0]), replaced(new, exact[1])
    return run.op("lower", cell, gates, hidden(state[0]), state[1])


def gru_step(run, gates, state, hidden):
    def cell(x, h, before, kept):
        (r, z, n), (r_h, z_h, n_h) = x.chunk(3, -1), h.chunk(3, -1)
        r, z = kept((r + r_h).sigmoid()), kept((z + z_h).sigmoid())
        n = kept((n + r * n_h).tanh())
        return n + z * (before - n)
    both = lambda *t: replaced(cell(*t, lambda gate: run.stored(gate, gates.form)), cell(*t, lambda gate: gate))
    return (run.op("lower", both, gates, hidden(state[0]), state[0]),)


def replaced(like, value):
    """The value of one and the derivative of the other."""
    return like + (value - like).detach()


def recurrent(step, states):
    def layer_of(run, layer, path, x):
        for level in range(layer["num_layers"]):
            weights = lambda which: [p for kind in ("weight", "bias") for p in run.parameters_of(path, f"{kind}_{which}_l{level}")]
            all_gates = affine(run, x, *weights("ih"))
            shared = run.shared(*weights("hh"), terms=rows(x))
            hidden = lambda h: run.op("lower", lambda t: functional.linear(t, *shared), h, terms=layer["hidden_size"] + 1,
                                      backward=shared[0].shape[0])
            zeros = torch.zeros(x.value.shape[0], layer["hidden_size"], dtype=x.value.dtype)
            state, outputs = tuple(Typed(zeros, all_gates.form) for _ in range(states)), []
            for place in range(x.value.shape[1]):
                state = step(run, all_gates.view(lambda t: t[:, place]), state, hidden)
                outputs.append(state[0])
            if level + 1 == layer["num_layers"] and not layer["return_sequences"]:
                return outputs[-1]
            x = run.op("input", lambda *t: torch.stack(t, 1), *outputs)
        return x
    return layer_of


def sequential(run, layer, path, x):
    for i in range(layer["repeat"]):
        x = sequence(run, layer["layers"], f"{path}.{i}" if layer["repeat"] > 1 else path, x)
    return x


def residual(run, layer, path, x):
    main = sequence(run, layer["layers"], path, x)
    return run.op("input", torch.add, sequence(run, layer.get("shortcut", []), f"{path}.shortcut", x), main)


def elementwise(function, kind="input"):
    return lambda run, layer, path, x: run.op(kind, function, x)


LAYERS = {
    "linear": linear,
    "conv1d": convolution(functional.conv1d),
    "conv2d": convolution(functional.conv2d),
    "conv_transpose2d": convolution(functional.conv_transpose2d, transposed=True),
    "max_pool2d": pool(functional.max_pool2d, ceil_mode="ceil_mode"),
    "avg_pool2d": pool(functional.avg_pool2d, average=True, ceil_mode="ceil_mode", count_include_pad="count_include_pad"),
    "adaptive_max_pool2d": adaptive(functional.adaptive_max_pool2d),
    "adaptive_avg_pool2d": adaptive(functional.adaptive_avg_pool2d),
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "layer_norm": normalization(functional.layer_norm),
    "rms_norm": normalization(functional.rms_norm),
    "embedding": embedding,
    "position_embedding": position_embedding,
    "attention": attention,
    "sequential": sequential,
    "residual": residual,
    "branches": branches,
    "identity": lambda run, layer, path, x: x,
    "reshape": lambda run, layer, path, x: x.view(lambda t: t.reshape(t.shape[0], *layer["shape"])),
    "permute": lambda run, layer, path, x: x.view(lambda t: t.permute(0, *(i + 1 for i in layer["order"]))),
    "cross_attention": cross_attention,
    "encoder_decoder": encoder_decoder,
    "lstm": recurrent(lstm_step, 2),
    "gru": recurrent(gru_step, 1),
    "flatten": lambda run, layer, path, x: x.view(lambda t: t.flatten(1)),
    "gelu_tanh": elementwise(lambda t: functional.gelu(t, approximate="tanh")),
    **{name: elementwise(getattr(torch, name)) for name in ("relu", "tanh", "sigmoid", "abs", "neg", "sqrt")},
    **{name: elementwise(getattr(functional, name)) for name in ("silu", "gelu")},
    **{name: elementwise(getattr(torch, name), "fp32") for name in ("exp", "log", "rsqrt", "reciprocal")},
    "softplus": elementwise(functional.softplus, "fp32"),
    "softmax": elementwise(lambda t: t.softmax(-1), "fp32"),
    "log_softmax": elementwise(lambda t: t.log_softmax(-1), "fp32"),
}


def sequence(run, layers, path, x):
    for layer in layers:
        row = LAYERS.get(layer["type"])
        if row is None:
            raise NotImplementedError(f"layers of type {layer['type']}")
        x = row(run, layer, f"{path}.{layer['name']}" if path else layer["name"], x)
    return x


def cross_entropy(run, output, target):
    # Probabilities are e^(x - log_sum_exp), of which the exponent errs by a unit of log_sum_exp, and the power by one of its own.
    shaken = lambda t: run.shaken(t, 1 + t.detach().logsumexp(-1, keepdim=True).abs())
    rows_of = output.view(lambda t: t.reshape(-1, t.shape[-1]))
    return run.op("fp32", lambda t: functional.cross_entropy(shaken(t), target.reshape(-1)), rows_of, terms=rows_of.value.numel())


def mse(run, output, target):
    return run.op("fp32", lambda t: functional.mse_loss(t, target), output, terms=output.value.numel())


LOSSES = {"cross_entropy": cross_entropy, "mse": mse}
