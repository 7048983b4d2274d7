"""Cells of recurrent networks."""

import numpy as np
import torch

from balls import Ball, widened
from op_table.case import Row, Spec


def parts(gates, count):
    return (gates.moved(lambda v, i=i: np.split(v, count, -1)[i]) for i in range(count))


def joined(*gates):
    free = False if all(g.free is False for g in gates) else np.concatenate([np.broadcast_to(g.free, g.v.shape) for g in gates], -1)
    return Ball(np.concatenate([g.v for g in gates], -1), np.concatenate([g.e for g in gates], -1), free)


def sigmoid_of_sum(a, b):
    return widened(lambda a, b: (a + b).sigmoid(), a, b)


def through_sigmoid(a, b, y):
    return a * b * (y * (1 - y))


def through_tanh(a, b, y):
    return a * b * (1 - y * y)


def torch_lstm_cell(x, h, c):
    i, f, g, o = (x + h).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cell = f * c + i * g
    return o * cell.tanh(), cell, torch.cat((i, f, g, o), -1).detach()


def lstm_cell(c):
    of_input, of_hidden = (list(parts(x, 4)) for x in c.x[:2])
    i, f, o = (sigmoid_of_sum(of_input[n], of_hidden[n]) for n in (0, 1, 3))
    g = widened(lambda a, b: (a + b).tanh(), of_input[2], of_hidden[2])
    cell = f * c.x[2] + i * g
    c.gates, c.cell = joined(i, f, g, o).store(), cell.store()
    return [widened(lambda o, c: o * c.tanh(), o, cell).store(), c.cell, c.gates]


def lstm_cell_gradient(c):
    hidden, cell, (i, f, g, o) = c.g[0], c.g[1], parts(c.gates, 4)
    t = widened(Ball.tanh, c.cell)
    s = cell + hidden * o * (1 - t * t)
    gates = joined(through_sigmoid(s, g, i), through_sigmoid(s, c.x[2], f), through_tanh(s, i, g), through_sigmoid(hidden, t, o)).store()
    return [gates, gates, (s * f).store()]


def torch_gru_cell(x, h, state):
    (r, z, n), (r_h, z_h, n_h) = x.chunk(3, -1), h.chunk(3, -1)
    r, z = (r + r_h).sigmoid(), (z + z_h).sigmoid()
    n = (n + r * n_h).tanh()
    return n + z * (state - n), torch.cat((r, z, n), -1).detach()


def gru_cell(c):
    of_input, of_hidden = (list(parts(x, 3)) for x in c.x[:2])
    r, z = (sigmoid_of_sum(of_input[i], of_hidden[i]) for i in range(2))
    n = widened(lambda a, r, b: (a + r * b).tanh(), of_input[2], r, of_hidden[2])
    c.gates = joined(r, z, n).store()
    return [(n + z * (c.x[2] - n)).store(), c.gates]


def gru_cell_gradient(c):
    g, (r, z, n), (_, _, of_hidden) = c.g[0], parts(c.gates, 3), parts(c.x[1], 3)
    proposed = g * (1 - z) * (1 - n * n)
    reset, update = through_sigmoid(proposed, of_hidden, r), g * (c.x[2] - n) * (z * (1 - z))
    return [joined(reset, update, proposed).store(), joined(reset, update, proposed * r).store(), (g * z).store()]


def draw_cell(gates):
    def draw(d):
        shape = d.shape(1, 3, 400)
        shares = Spec((*shape[:-1], gates * shape[-1]))
        return [shares, shares, Spec(shape)], {}
    return draw


RECURRENT = [
    Row("lstm_cell", torch_lstm_cell, draw_cell(4), lstm_cell, lstm_cell_gradient, slots=lambda a: (0, 1, 2), formula_decides=True),
    Row("gru_cell", torch_gru_cell, draw_cell(3), gru_cell, gru_cell_gradient, slots=lambda a: (0, 1), formula_decides=True),
]
