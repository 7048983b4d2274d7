"""Reads a closed trace as docs/trace_format.md has it, and nothing else of the project."""

import functools
import types
import zlib

import h5py
import numpy


class Table:
    """Columns by name, each read when it is first asked for."""

    def __init__(self, group, rows, text_of):
        self.group, self.rows, self.text_of, self.columns = group, rows, text_of, {}

    def __getitem__(self, name):
        if name not in self.columns:
            self.columns[name] = self.group[name][: self.rows]
        return self.columns[name]

    def __contains__(self, name):
        return name in self.group

    @functools.cache
    def names(self, name):
        """The names of an enumerated column's values."""
        return self.group[name].attrs["values"].decode().split(",")

    def is_any(self, name, *values):
        """Where the enumerated column has one of these."""
        return numpy.isin(self[name], [self.names(name).index(value) for value in values])

    def texts(self, name):
        return [self.text_of(i) for i in self[name]]

    @functools.cache
    def words(self, name):
        """An enumerated column as names."""
        names = self.names(name)
        return [names[i] for i in self[name]]


class Trace:
    def __init__(self, path):
        self.file = h5py.File(path, "r")
        commit = self.file["commit"]
        records = [r for r in commit[:] if zlib.crc32(r[:-1].tobytes()) == r[-1]]
        newest = max(records, key=lambda record: record[0])
        names = commit.attrs["tables"].decode().split(",")
        rows = {name: int(newest[2 + 3 * i]) for i, name in enumerate(names)}
        data = self.file["string_bytes"]["byte"][: rows["string_bytes"]].tobytes()
        ends = [int(end) for end in self.file["strings"]["end"][: rows["strings"]]]
        strings = [data[begin:end].decode() for begin, end in zip([0, *ends], ends)]
        self.tables = types.SimpleNamespace(**{name: Table(self.file[name], rows[name], strings.__getitem__) for name in names})
        self.text_of = strings.__getitem__

    def close(self):
        self.file.close()

    def run(self, name):
        """A number of the run, or the number of a text."""
        return self.tables.run[name][0]

    @functools.cached_property
    def settings(self):
        """The text of every setting, by its name."""
        settings = self.tables.settings
        return dict(zip(settings.texts("name"), settings.texts("value")))

    @functools.cached_property
    def settings_by_kind(self):
        settings = self.tables.settings
        return {
            kind: (name, value)
            for kind, name, value in zip(settings.words("kind"), settings.texts("name"), settings.texts("value"))
            if kind != "other"
        }

    @functools.cached_property
    def shapes(self):
        """Of the tensors, as tuples of extents."""
        return [tuple(int(n) for n in text.split(",")) if text else () for text in self.tables.tensors.texts("shape")]

    @functools.cached_property
    def tensor_of_output(self):
        """The tensors by their op's id and their slot."""
        ids = self.tables.ops["id"][self.tables.tensors["op"]]
        return {(int(op), int(slot)): i for i, (op, slot) in enumerate(zip(ids, self.tables.tensors["slot"]))}

    def attribute(self, op, name):
        """A number among an op's attributes, or None."""
        for item in self.text_of(self.tables.ops["attributes"][op]).split():
            key, _, value = item.partition("=")
            if key == name and value != "varies":
                return float(value)
        return None

    @functools.cached_property
    def inputs(self):
        """By graph and op: the (input, producer, slot) that it reads."""
        edges, inputs = self.tables.edges, {}
        for graph, consumer, number, producer, slot in zip(
            *(edges[name].tolist() for name in ("graph", "consumer", "input", "producer", "slot"))
        ):
            inputs.setdefault((graph, consumer), set()).add((number, producer, slot))
        return inputs

    def inputs_of(self, op):
        """In any graph."""
        return set().union(*(read for (_, consumer), read in self.inputs.items() if consumer == op))

    @functools.cached_property
    def histograms(self):
        """One row of 255 counts for each row of stats."""
        data = self.tables.histograms["byte"]
        ends = self.tables.stats["histogram"].astype(numpy.int64)
        begins = numpy.concatenate([[0], ends[:-1]])
        bins = numpy.zeros((len(ends), 255), numpy.int64)
        filled = numpy.flatnonzero(ends > begins)
        if filled.size == 0:
            return bins
        is_last = data < 0x80
        head = begins[filled]
        is_last[head] = is_last[head + 1] = False
        number_ends = numpy.flatnonzero(is_last)
        # The bytes of a number follow the number before, or the two bytes with which a histogram begins.
        row_of_number = numpy.searchsorted(ends, number_ends, side="right")
        first_of_row = numpy.concatenate([[True], row_of_number[1:] != row_of_number[:-1]])
        number_begins = numpy.where(first_of_row, begins[row_of_number] + 2, numpy.concatenate([[0], number_ends[:-1] + 1]))
        lengths = number_ends - number_begins + 1
        values = numpy.zeros(len(number_ends), numpy.int64)
        for i in range(int(lengths.max())):
            has = lengths > i
            values[has] |= (data[number_begins[has] + i].astype(numpy.int64) & 0x7F) << (7 * i)
        index = numpy.arange(len(number_ends))
        rank = index - numpy.maximum.accumulate(numpy.where(first_of_row, index, 0))
        bins[row_of_number, data[begins[row_of_number]].astype(numpy.int64) + rank] = values
        return bins
