#!/usr/bin/env python3
"""Takes the sample that is kept here of what `ulpscope gpu --probe --results FILE` wrote on a GPU.

usage: sample_probe.py RESULTS.csv OUTPUT.csv.gz

Of each instruction and of each thing that sums show it takes up to 12 sums, of those about zeros and the smallest results up to 60, and
up to 40 random ones. Which ones depends on what a row says alone.
"""

import collections
import csv
import gzip
import hashlib
import pathlib
import sys

MOST, RANDOM, SMALL = 12, 40, 60
SMALL_RESULTS = ("signs of zeros", "negative sums that become zero", "positive sums that become zero", "subnormal results",
                 "the least exponent that terms are cut off by")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    text = pathlib.Path(sys.argv[1]).read_text().splitlines()
    groups = collections.defaultdict(list)
    for line, row in zip(text[1:], csv.reader(text[1:])):
        if line not in groups[tuple(row[:5])]:
            groups[tuple(row[:5])].append(line)
    taken = [text[0]]
    for (*_, shows), lines in groups.items():
        most = SMALL if shows in SMALL_RESULTS else MOST if shows else RANDOM
        drawn = set(sorted(lines, key=lambda line: hashlib.sha256(line.encode()).digest())[:most])
        taken += [line for line in lines if line in drawn]
    pathlib.Path(sys.argv[2]).write_bytes(gzip.compress(("\n".join(taken) + "\n").encode(), 9, mtime=0))
    print(f"{len(taken) - 1} of {len(text) - 1} sums")


if __name__ == "__main__":
    main()
