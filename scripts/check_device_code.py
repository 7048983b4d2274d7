#!/usr/bin/env python3
"""Compiles device code, and looks for what nvcc does without a word where that reads what only the host has.

    check_device_code.py FOLDER NVCC ARGUMENTS...

A table of the host is no error in device code (--expt-relaxed-constexpr): nvcc has a null address for it, or takes what follows for
unreachable. So no function of the PTX, which is left in FOLDER, may trap, but the one that is there for it, and none may read or write
at an address near null. Exits with 1 where one does.
"""

import pathlib
import re
import subprocess
import sys

MEANT_TO_TRAP = "not_for_this_gpu"
NEAR_NULL = 4096  # above the offset of anything in a table of the host

FUNCTION = re.compile(r"^\.(?:visible|weak|entry|func)\b.*?([\w$]+)\s*\(?\)?\s*$")
TRAP = re.compile(r"^\s*(?:@\S+ )?trap;")
STORE_OR_LOAD = re.compile(r"^\s*(?:@\S+ )?(?:ld|st|atom|red)\.\S+.*\[(?:(%rd\d+)(?:\+\d+)?|(\d+))\]")
ASSIGNMENT = re.compile(r"^\s*(?:@\S+ )?(\w+)\S*\s+(%rd\d+), ([^;]*);")


def functions_of(ptx):
    """(name, lines) of each function."""
    name, lines = "", []
    for line in ptx.splitlines():
        if begins := FUNCTION.match(line):
            yield name, lines
            name, lines = begins.group(1), []
        lines.append(line)
    yield name, lines


def constants_of(lines):
    """Registers that have one number in the whole function."""
    values = {}
    for line in lines:
        if is_assigned := ASSIGNMENT.match(line):
            what, register, value = is_assigned.groups()
            number = int(value) if what == "mov" and value.isdigit() else None
            values[register] = number if values.get(register, number) == number else None
    return {register: number for register, number in values.items() if number is not None}


def faults_of(ptx):
    """(function, line) of each place that cannot work on a GPU."""
    faults = []
    for name, lines in functions_of(ptx):
        constants = constants_of(lines)
        for line in lines:
            address = None
            if access := STORE_OR_LOAD.match(line):
                address = int(access.group(2)) if access.group(2) else constants.get(access.group(1))
            traps = TRAP.match(line) and MEANT_TO_TRAP not in name
            if traps or (address is not None and address < NEAR_NULL):
                faults.append((name, line.strip()))
    return faults


def main():
    folder, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.ptx"):
        old.unlink()
    if subprocess.run([*command, "--keep", "--keep-dir", folder], check=False).returncode != 0:
        return 1
    texts = {path.name: path.read_text() for path in folder.glob("*.ptx")}
    if not texts or not all(".entry" in text for text in texts.values()):
        sys.exit(f"check_device_code.py: no PTX with kernels in '{folder}'")
    status = 0
    for name, text in sorted(texts.items()):
        faults = faults_of(text)
        for function, line in faults[:20]:
            print(f"{name}: {function}: {line}", file=sys.stderr)
        print(f"{name}: {len(re.findall(r'[.]entry ', text))} kernels, {len(faults)} faults")
        status |= bool(faults)
    return status


if __name__ == "__main__":
    sys.exit(main())
