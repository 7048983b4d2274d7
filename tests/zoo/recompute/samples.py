"""Which sample of a batch a captured element is of."""

import numpy


def sample_of(f, tensor, node):
    """Of an element of the batch `tensor`, by its row of captures: its number in the sample, of how many, the sample and its source."""
    c, b = f.tables.captures, f.tables.batches
    shape = [int(n) for n in f.trace.text_of(c["shape"][node]).split(",")]
    phase = "evaluation" if f.tables.ops.words("phase")[f.tensors.op[tensor]] == "evaluation" else "forward"
    is_here = (b["step"] == c["step"][node]) & (b["micro_batch"] == c["micro_batch"][node]) & b.is_any("phase", phase)
    rows = numpy.flatnonzero(is_here)
    of_sample, rest = divmod(int(numpy.prod(shape, dtype=int)), len(rows))
    assert rest == 0
    number, element = divmod(int(c["element"][node]), of_sample)
    return element, of_sample, int(b["sample"][rows[number]]), int(b["source"][rows[number]])
