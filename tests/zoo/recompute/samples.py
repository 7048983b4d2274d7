"""Which sample of a batch a captured element is of."""

import numpy


def sample_of(f, tensor, node):
    """Of an element of the batch `tensor`, by its row of captures: its number in the sample, of how many, the sample and its source."""
    c, b = f.tables.captures, f.tables.batches
    shape = [int(n) for n in f.trace.text_of(c["shape"][node]).split(",")]
    of_sample = int(numpy.prod(shape[1:], dtype=int))
    number, element = divmod(int(c["element"][node]), of_sample)
    phase = "evaluation" if f.tables.ops.words("phase")[f.tensors.op[tensor]] == "evaluation" else "forward"
    is_here = (b["step"] == c["step"][node]) & (b["micro_batch"] == c["micro_batch"][node]) & b.is_any("phase", phase)
    row = numpy.flatnonzero(is_here)[number]
    return element, of_sample, int(b["sample"][row]), int(b["source"][row])
