#!/usr/bin/env python3
"""Takes the sample of each of the full sets of results that is kept here.

usage: sample.py FOLDER      the folder of the full sets

Rows stay as they are, and in their order. Of each kind of special row (kinds_of) the sample has up to 20, the other rows are drawn
from all; which ones depends on the file's name and the row's number alone.
"""

import gzip
import hashlib
import pathlib
import struct
import sys

ROWS, ROWS_OF_A_KIND = 200, 20


def is_zero(bits):
    return bits & 0x7FFFFFFF == 0


def is_finite(bits):
    return bits & 0x7F800000 != 0x7F800000


def value(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def kinds_of(fields, output):
    """What is special about a row: in its operands, in its result, or in how one comes from the other."""
    operands, result = fields[:-1], fields[-1]
    smallest_normal = 2.0**-14 if output == "fp16" else 2.0**-126
    kinds = set()
    if any(map(is_zero, operands)):
        kinds.add("a zero among the operands")
    if not all(map(is_finite, operands)):
        kinds.add("an infinity or NaN among the operands")
    if is_zero(result):
        kinds.add("a zero as result")
    elif not is_finite(result):
        kinds.add("an infinite result" if result & 0x7FFFFF == 0 else "NaN as result")
    else:
        k = (len(fields) - 2) // 2
        terms = [value(a) * value(b) for a, b in zip(fields[:k], fields[k:2 * k])] + [value(fields[2 * k])]
        largest = max(map(abs, terms))
        if abs(value(result)) < smallest_normal:
            kinds.add("a subnormal result")
        if abs(value(result)) < largest / 64:
            kinds.add("cancellation of 6 bits or more")
        if any(0 < abs(term) < largest / 2**22 for term in terms):
            kinds.add("a term 22 bits or more below the largest")
        if any(0 < abs(term) < 2.0**-126 for term in terms):
            kinds.add("a term below the normal numbers of FP32")
    return kinds


def sample(name, rows):
    def order(index):
        return hashlib.sha256(f"{name} {index}".encode()).digest()

    output = name.split("_")[2]
    drawn = sorted(range(len(rows)), key=order)
    taken, counts = set(), {}
    for index in drawn:
        kinds = kinds_of([int(field, 16) for field in rows[index].split(",")], output)
        if any(counts.get(kind, 0) < ROWS_OF_A_KIND for kind in kinds) and len(taken) < ROWS:
            taken.add(index)
            for kind in kinds:
                counts[kind] = counts.get(kind, 0) + 1
    for index in drawn:
        if len(taken) == ROWS:
            break
        taken.add(index)
    return sorted(taken), counts


def main():
    here = pathlib.Path(__file__).resolve().parent
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.csv.gz")):
        header, *rows = gzip.decompress(path.read_bytes()).decode().splitlines()
        taken, counts = sample(path.name.removesuffix(".csv.gz"), rows)
        header = header.replace(f"rows={len(rows)}", f"rows={len(taken)} of {len(rows)}")
        text = "\n".join([header, *(rows[index] for index in taken)]) + "\n"
        (here / path.name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(f"{path.name}: " + ", ".join(f"{count} with {kind}" for kind, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
