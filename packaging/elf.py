#!/usr/bin/env python3
"""Which glibc a program or a shared library needs, and how one is made to need an older one.

usage: elf.py needs FILE...
           the glibc and the libraries that each needs
       elf.py check --glibc VERSION FILE...
           exit 1 where one needs a newer glibc
       elf.py lower --glibc VERSION --sysroot FOLDER [--provided LIBRARY]... [--provides SYMBOL[=NAME]]... [--unused LIBRARY]...
                    FILE OUTPUT
           writes FILE so that it needs no newer glibc than VERSION

lower takes, of each function that FILE asks of a newer glibc, the first that there was, which the libraries in FOLDER have to have
too: most moved between glibc's libraries or report errors otherwise, and glibc keeps the first ones. What FILE asks of a library that
is --provided, and each symbol that the program --provides, is found in the program that loads FILE, there maybe by a NAME that is no
longer. What it asks of a library that is --unused is nowhere, and must not be called. Nothing in FILE moves.
"""

import argparse
import pathlib
import re
import struct
import sys

FIRST = "GLIBC_2.2.5"  # the first glibc of x86-64
GLIBC = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")
DT_NULL, DT_NEEDED, DT_VERNEEDNUM = 0, 1, 0x6FFFFFFF
SHT_DYNAMIC, SHT_DYNSYM, SHT_VERDEF, SHT_VERNEED, SHT_VERSYM = 6, 11, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
GLOBAL_VERSION = 1  # of a symbol: any version will do
STB_WEAK = 2


def fail(text):
    sys.exit(f"elf.py: {text}")


def version_number(text):
    return tuple(int(part) for part in text.split("."))


def glibc_version(name):
    """The number in "GLIBC_2.28", or None for the names of other versions."""
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", name)
    return version_number(match[1]) if match else None


class Need:
    """A version that is asked of a library: where its entry lies, and the library's."""

    def __init__(self, library, name, index, entry):
        self.library, self.name, self.index, self.entry = library, name, index, entry


class Elf:
    def __init__(self, path):
        self.path = path
        try:
            self.data = bytearray(path.read_bytes())
        except OSError as error:
            fail(f"{path}: {error.strerror}")
        if self.data[:6] != b"\x7fELF\x02\x01":
            fail(f"{path}: no 64-bit little-endian ELF file")
        table, = self.unpack("<Q", 0x28)
        size, count = self.unpack("<HH", 0x3A)
        # Type, offset, size and the section it refers to.
        sections = [self.unpack("<4xI16xQQI", table + i * size) for i in range(count)]
        self.sections = {kind: (offset, length, link) for kind, offset, length, link in sections}
        # How many libraries the section of needs names, for those who read sections.
        self.need_counts = [table + i * size + 0x2C for i in range(count) if sections[i][0] == SHT_VERNEED]
        if SHT_DYNAMIC not in self.sections:
            fail(f"{path}: not linked dynamically")
        self.strings = sections[self.sections[SHT_DYNSYM][2]][1]

    def unpack(self, form, offset):
        return struct.unpack_from(form, self.data, offset)

    def pack(self, form, offset, *values):
        struct.pack_into(form, self.data, offset, *values)

    def string(self, offset):
        start = self.strings + offset
        return self.data[start:self.data.index(0, start)].decode()

    def dynamic(self):
        offset, length, _ = self.sections[SHT_DYNAMIC]
        for place in range(offset, offset + length, 16):
            tag, value = self.unpack("<QQ", place)
            if tag == DT_NULL:
                return
            yield place, tag, value

    def libraries(self):
        return [self.string(value) for _, tag, value in self.dynamic() if tag == DT_NEEDED]

    def needs_by_library(self):
        """For each library of which versions are asked: the place of its entry, its name and its needs."""
        if SHT_VERNEED not in self.sections:
            return
        place = self.sections[SHT_VERNEED][0]
        while True:
            _, count, library, first, following = self.unpack("<HHIII", place)
            needs = []
            entry = place + first
            for _ in range(count):
                _, _, index, name, next_entry = self.unpack("<IHHII", entry)
                needs.append(Need(self.string(library), self.string(name), index, entry))
                entry += next_entry
            yield place, self.string(library), needs
            if following == 0:
                return
            place += following

    def needs(self):
        return [need for _, _, needs in self.needs_by_library() for need in needs]

    def newest_glibc(self):
        return max((version for need in self.needs() if (version := glibc_version(need.name))), default=())

    def symbols(self):
        """The place, the name, the section (0: undefined) and the version index of each dynamic symbol."""
        offset, length, _ = self.sections[SHT_DYNSYM]
        versions = self.sections[SHT_VERSYM][0] if SHT_VERSYM in self.sections else None
        for i in range(length // 24):
            name, _, _, section = self.unpack("<IBBH", offset + 24 * i)
            index = self.unpack("<H", versions + 2 * i)[0] & 0x7FFF if versions else GLOBAL_VERSION
            yield i, self.string(name), section, index

    def definitions(self):
        """(symbol, version) of all that the library defines."""
        names = {}
        if SHT_VERDEF in self.sections:
            place = self.sections[SHT_VERDEF][0]
            while True:
                index, first, following = self.unpack("<4xH6xII", place)
                names[index & 0x7FFF] = self.string(self.unpack("<I", place + first)[0])
                if following == 0:
                    break
                place += following
        return {(name, names.get(index, "")) for _, name, section, index in self.symbols() if section != 0}

    def rename(self, i, name):
        place = self.strings + self.unpack("<I", self.sections[SHT_DYNSYM][0] + 24 * i)[0]
        old = self.data[place:self.data.index(0, place)]
        shared = [other for j, other, _, _ in self.symbols() if j != i and other.endswith(old.decode())]
        if len(name) > len(old) or shared:
            fail(f"{self.path}: {old.decode()} cannot be renamed in its place")
        self.data[place:place + len(old)] = name.encode().ljust(len(old), b"\0")

    def forget_version(self, i):
        self.pack("<H", self.sections[SHT_VERSYM][0] + 2 * i, GLOBAL_VERSION)

    def make_weak(self, i):
        place = self.sections[SHT_DYNSYM][0] + 24 * i + 4
        self.data[place] = STB_WEAK << 4 | self.data[place] & 0xF

    def ask_first_version(self, need):
        name = self.data.find(b"\0" + FIRST.encode() + b"\0", self.strings)
        if name < 0:
            fail(f"{self.path}: asks nothing of {FIRST}")
        self.pack("<I", need.entry, version_hash(FIRST))
        self.pack("<I", need.entry + 8, name + 1 - self.strings)

    def drop_libraries(self, libraries):
        kept = [(tag, value) for _, tag, value in self.dynamic()
                if not (tag == DT_NEEDED and self.string(value) in libraries)]
        entries = [(place, library) for place, library, _ in self.needs_by_library()]
        left = [place for place, library in entries if library not in libraries]
        if left and left[0] != entries[0][0]:
            # The list starts where the section does: the first that stays is moved there, and its versions stay where they are.
            first, start = left[0], entries[0][0]
            version, count, library, versions, _ = self.unpack("<HHIII", first)
            self.pack("<HHIII", start, version, count, library, first + versions - start, 0)
            left[0] = start
        for place, following in zip(left, left[1:] + [None]):
            self.pack("<I", place + 12, following - place if following else 0)
        for place in self.need_counts:
            self.pack("<I", place, len(left))
        offset = self.sections[SHT_DYNAMIC][0]
        for tag, value in kept:
            self.pack("<QQ", offset, tag, len(left) if tag == DT_VERNEEDNUM else value)
            offset += 16
        end = self.sections[SHT_DYNAMIC][0] + self.sections[SHT_DYNAMIC][1]
        self.data[offset:end] = bytes(end - offset)


def version_hash(name):
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def lower(elf, limit, sysroot, provided, provides, unused):
    needs = elf.needs()
    library_of = {need.index: need.library for need in needs}
    too_new = {need.index: need for need in needs if (glibc_version(need.name) or ()) > limit}
    there = set()
    if too_new:
        for name in GLIBC:
            there |= Elf(sysroot / "lib/x86_64-linux-gnu" / name).definitions()
    missing = []
    for i, name, section, index in list(elf.symbols()):
        if section != 0 or index not in library_of:
            continue
        if library_of[index] in provided or name in provides:
            elf.forget_version(i)
            if provides.get(name, name) != name:
                elf.rename(i, provides[name])
        elif library_of[index] in unused:
            elf.forget_version(i)
            elf.make_weak(i)
        elif index in too_new:
            older = max((glibc_version(version) for symbol, version in there
                         if symbol == name and () < (glibc_version(version) or ()) <= limit), default=())
            if older != glibc_version(FIRST):
                missing.append(f"{name}@{too_new[index].name}")
    if missing:
        fail(f"{elf.path}: an older glibc lacks {', '.join(missing)}")
    for need in too_new.values():
        elf.ask_first_version(need)
    elf.drop_libraries(provided | unused)


def as_text(version):
    return ".".join(map(str, version)) if version else "none"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("needs", "check", "lower"):
        verbs.add_parser(verb)
        if verb != "needs":
            verbs.choices[verb].add_argument("--glibc", type=version_number, required=True)
        if verb != "lower":
            verbs.choices[verb].add_argument("files", type=pathlib.Path, nargs="+")
    verbs.choices["lower"].add_argument("--sysroot", type=pathlib.Path, required=True)
    for option in ("--provided", "--provides", "--unused"):
        verbs.choices["lower"].add_argument(option, action="append", default=[])
    for name in ("file", "output"):
        verbs.choices["lower"].add_argument(name, type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.verb == "lower":
        elf = Elf(arguments.file)
        provides = {name: new or name for name, _, new in (text.partition("=") for text in arguments.provides)}
        lower(elf, arguments.glibc, arguments.sysroot, set(arguments.provided), provides, set(arguments.unused))
        arguments.output.write_bytes(elf.data)
        arguments.output.chmod(0o755)
        return 0
    status = 0
    for path in arguments.files:
        elf = Elf(path)
        newest = elf.newest_glibc()
        if arguments.verb == "needs":
            print(f"{path}: glibc {as_text(newest)}; {' '.join(elf.libraries())}")
        elif newest > arguments.glibc:
            asked = sorted({f"{name}@{need.name}" for need in elf.needs() for _, name, _, index in elf.symbols()
                            if index == need.index and (glibc_version(need.name) or ()) > arguments.glibc})
            print(f"{path}: needs glibc {as_text(newest)}, newer than {as_text(arguments.glibc)}: {', '.join(asked)}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
