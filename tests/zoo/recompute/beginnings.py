"""Where NaN and infinities began, and which of them did harm, as docs/numerics.md has it."""

DIVISIONS = ("div", "reciprocal", "rsqrt")
OF_PARAMETERS = ("weight_gradient", "accumulated_gradient", "unscaled_gradient")


def wastes_many(wasted, steps):
    """More than a growing loss scale costs."""
    return 0 < wasted == steps or (wasted >= 5 and wasted > 0.02 * steps)


class Beginnings:
    """Of a trace, in order of execution: by the tensor, the rows in which nothing that its op read was not finite."""

    def __init__(self, f):
        self.f, self.rows, self.reached = f, {}, {}
        self.harmed = []  # rows of losses, of weights and states, and of gradients of parameters: (row, kind, a row on the way)
        self.statistic = {}  # by the tensor that began: the row of the first running statistic that it reached
        self.zeros = {}  # by the tensor that began: the steps in which an op divided by it and gave zeros, and the first such tensor
        r, t, inputs = f.rows, f.tensors, f.trace.inputs
        self.made, self.began_of = {}, {}  # by op and slot: (step, row or None); by bad row: the row in which it began
        self.harmless = set()  # ops and their inputs that were not finite where an output was
        call, reads, edges = None, {}, ()
        for i in range(r.n):
            op, step = int(r.op[i]), int(r.step[i])
            this = (step, int(r.sequence[i]), int(r.micro_batch[i]), int(r.loss_index[i]), op)
            if this != call:
                call, edges = this, inputs.get((int(f.steps.graph[r.place[i]]), op), ())
                # In training batch_norm reads the running statistics for their next values alone.
                trains = t.function[r.tensor[i]] == "batch_norm" and f.trace.attribute(op, "training")
                reads = {
                    True: self.read_by(op, step, edges),
                    False: self.read_by(op, step, [edge for edge in edges if not trains or edge[0] < 3]),
                }
            of_statistic = bool(t.is_statistic[r.tensor[i]])
            read = reads[of_statistic]
            key = (op, int(t.slot[r.tensor[i]]))
            self.made[key] = (step, None)
            if r.nonfinite[i] == 0:
                if not of_statistic:
                    self.harmless.update((op, edge) for edge, _ in self.marked(op, step, edges))
                began = None if read is None else int(r.tensor[self.began_of[read]])
                # What an exponential beyond FP32's range divides is 0 in any format.
                is_true = began is not None and t.function[began] == "exp" and f.format_of(began).largest > 1e38
                if read is not None and not is_true and r.zeros[i] > 0 and t.function[r.tensor[i]] in DIVISIONS:
                    steps, _ = self.zeros.setdefault(began, (set(), int(r.tensor[i])))
                    steps.add(step)
                    self.harmed.append((i, "divided_by", read))
                continue
            if read is None:
                self.rows.setdefault(int(r.tensor[i]), []).append(i)
            self.began_of[i] = i if read is None else self.began_of[read]
            self.made[key] = (step, i)
            began = int(r.tensor[self.began_of[i]])
            role = t.role[r.tensor[i]]
            if role == "loss":
                self.reached.setdefault((began, "loss"), step)
            if t.is_kept[r.tensor[i]]:
                self.reached.setdefault((began, "weights"), step)
            if of_statistic:
                self.statistic.setdefault(began, i)
            kind = "loss" if role == "loss" else "weights" if t.is_kept[r.tensor[i]] else "gradients" if role in OF_PARAMETERS else None
            if kind:
                self.harmed.append((i, kind, i))
            if read is None:
                reads[of_statistic] = i  # the outputs of one call began together

    def marked(self, op, step, edges):
        """Of what the op reads, by its number the row that was not finite."""
        for edge, producer, slot in edges:
            at, row = self.made.get((producer, slot), (None, None))
            if row is not None and (producer >= op or at == step):
                yield edge, row

    def read_by(self, op, step, edges):
        # Of several one that never did the op no harm, and of these the one that began first.
        found = ((((op, edge) in self.harmless), self.began_of[row], row) for edge, row in self.marked(op, step, edges))
        return min(found, default=(None, None, None))[2]

    def origin(self, kinds, since):
        """The first row in which began what got to a row of these kinds. What came of a skipped step counts from `since` on; what reached
        no weight was gone with its step."""
        r, t = self.f.rows, self.f.tensors
        first = None
        # What had reached the loss when the run broke, broke it.
        in_time = {tensor for (tensor, kind), step in self.reached.items() if kind == "loss" and step <= since} if self.f.steps.is_broken else {}
        for row, kind, on_the_way in self.harmed:
            began = self.began_of[on_the_way]
            tensor = int(r.tensor[began])
            if kind == "divided_by" and not wastes_many(len(self.zeros[tensor][0]), self.f.steps.n):
                continue
            if in_time and tensor not in in_time:
                continue
            lasted = (tensor, "weights") in self.reached or r.step[self.rows[tensor][-1]] + 1 >= since
            if kind in kinds and lasted and (r.step[row] >= since or not r.skipped[row] or t.is_statistic[r.tensor[row]]) and (first is None or began < first):
                first = began
        return first
