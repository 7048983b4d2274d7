"""dump_trace.py TRACE DOCS plain|swmr [reading|writing]: prints the rows of a trace as sample_trace.h has them, read with h5py and the functions
that docs/trace_format.md gives, or runs that page's example of reading or writing."""
import os
import re
import sys
import urllib.parse


def dump(trace):
    counts = committed(trace)
    names = texts(trace, counts)
    for table in ("run", "settings", "sources", "products", "ops", "tensors", "edges", "steps", "stats", "batches", "parameters", "fingerprints",
                  "events", "captures", "samples", "measures", "sums", "bits"):
        fields = []
        for name in sorted(trace[table]):
            refers_to = trace[table][name].attrs.get("refers_to", b"").decode()
            values = column(trace, table, name, counts)
            if refers_to == "strings":
                cells = [urllib.parse.quote(names[value], safe="") for value in values]
            elif refers_to == "histograms":
                data = column(trace, "histograms", "byte", counts).tobytes()
                begins = [0, *values[:-1]]
                cells = [
                    ",".join(f"{b}:{n}" for b, n in histogram(data, int(begin), int(end)).items() if n)
                    for begin, end in zip(begins, values)
                ]
            elif values.dtype == numpy.float64:
                cells = [f"{bits:016x}" for bits in values.view(numpy.uint64)]
            else:
                cells = [str(value) for value in values]
            fields.append([f"{name}={cell}" for cell in cells])
        for row in zip(*fields):
            print(table, " ".join(row))
    note = trace["closing_note"][:].tobytes().rstrip(b"\0").decode()
    if note:
        print("note", note)


def main():
    path, docs, mode = sys.argv[1:4]
    with open(docs, encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
    exec(blocks[0], globals())  # pylint: disable=exec-used
    if len(sys.argv) > 4:
        os.chdir(os.path.dirname(path))
        for block in {"reading": blocks[1:2], "writing": blocks[2:4]}[sys.argv[4]]:
            exec(block.replace("run.h5", os.path.basename(path)), globals())  # pylint: disable=exec-used
        return
    with h5py.File(path, "r", swmr=mode == "swmr") as trace:
        dump(trace)


main()
