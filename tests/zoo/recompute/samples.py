"""Which sample of a batch a captured element is of, and how reports name it."""

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


def named_sample(f, sample, source, element=None, of_sample=None):
    """With where its sources have it; of an element, with the column that it is, where one source has as many columns as a sample elements."""
    s = f.tables.sources
    places, name = [], ""
    for i in range(s.rows):
        first, n = int(s["first_sample"][i]), int(s["samples"][i])
        if int(s["source"][i]) != source or not first <= sample < first + n:
            continue
        name = f.trace.text_of(s["name"][i])
        part, file, columns = (f.trace.text_of(s[column][i]) for column in ("part", "file", "columns"))
        line = int(s["first_row"][i]) + (sample - first) * int(s["row_step"][i])
        places.append((f"{part} in {file}, row {line}, ", columns.split(",")))
    whole = [(place, columns) for place, columns in places if len(columns) == of_sample]
    if len(whole) == 1:
        places = [(place, columns[element : element + 1]) for place, columns in whole]
    text = "; ".join(place + columns_text(columns) for place, columns in places)
    return f"sample {sample} of {name} ({text}, counted from 0)"


def named_element(f, element, of_sample, sample, source):
    return f"element {element} of {named_sample(f, sample, source, element, of_sample)}"


def columns_text(columns):
    numbers = [int(n) for n in columns]
    return f"column {numbers[0]}" if len(numbers) == 1 else f"columns {numbers[0]} to {numbers[-1]}"
