#!/usr/bin/env python3
"""Compiles device code, and looks for what nvcc does not tell where that uses what only the host has.

    check_device_code.py [--ccache CCACHE] [--device-only] FOLDER NVCC ARGUMENTS...

With --device-only the code for the host that nvcc makes beside is not compiled. For minutes of work to be done once, ccache keeps what
came of it: it takes this script for the compiler, which then, as ULPSCOPE_NVCC says, calls nvcc and packs what nvcc kept into the file
that ccache takes for the object.

With --expt-relaxed-constexpr a table of the host, or a function that only the host has, is no error in a constexpr function that a kernel
calls: nvcc has a null address for the one, takes what comes after the other for unreachable, and leaves both out. Of what it keeps in
FOLDER this reads, for each architecture,

    *.cudafe1.gpu   what is compiled for the GPU, in C: functions that kernels reach may name no variable of the host, and call none of
                    the functions of GCC that nvcc was seen to leave out (64-bit std::countl_zero is made of one)
    *.ptx           what became of it: no function may trap but the one that is there for it, and none may use an address near null

Exits with 1 where one does.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

MEANT_TO_TRAP = "not_for_this_gpu"
NEAR_NULL = 4096  # above the offset of anything in a table of the host

FUNCTION = re.compile(r"^\.(?:visible|weak|entry|func)\b.*?([\w$]+)\s*\(?\)?\s*$")
TRAP = re.compile(r"^\s*(?:@\S+ )?trap;")
STORE_OR_LOAD = re.compile(r"^\s*(?:@\S+ )?(?:ld|st|atom|red)\.\S+.*\[(?:(%rd\d+)(?:\+-?\d+)?|(\d+))\]")
ASSIGNMENT = re.compile(r"^\s*(?:@\S+ )?(\w+)\S*\s+(%rd\d+), ([^;]*);")

# A function of C: the beginning of its line, the name, and the body.
DEFINITION = re.compile(r"^([^\n]*?)\b(\w+)\((?:[^;{}()]|\(\w*\))*\)\{(.*?)\}\}$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"\(&(_Z\w+)\)|\((_Z\w+)\)\[")
NOT_OF_THE_HOST = re.compile(r"_Z(?:T|Z)")  # tables of types, and what is shared by the threads of a block
ONLY_OF_THE_HOST = re.compile(r"\b(clzl|ctzl{0,2}|popcountl|parityl{0,2})\s*\(")


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


def faults_of_ptx(ptx):
    """(function, what it does) of each place that cannot work on a GPU."""
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


def faults_of_source(source):
    """(function, name) of what only the host has, of each function that kernels reach."""
    source = re.sub(r"^#.*$", "", source, flags=re.MULTILINE)
    functions = DEFINITION.findall(source)
    bodies = {name: body for _, name, body in functions}
    reached = [name for before, name, _ in functions if "__global__" in before]
    known, faults = set(reached), []
    while reached:
        name = reached.pop()
        body = bodies[name]
        names = [variable or array for variable, array in VARIABLE.findall(body)]
        faults += [(name, used) for used in names if not NOT_OF_THE_HOST.match(used) and used not in bodies]
        faults += [(name, f"{used}()") for used in ONLY_OF_THE_HOST.findall(body)]
        called = {word for word in re.findall(r"\w+", body) if word in bodies} - known
        known |= called
        reached += called
    return faults


KINDS = {".ptx": (r"[.]entry ", faults_of_ptx), ".cudafe1.gpu": (r"__global__", faults_of_source)}


def compile_and_pack(nvcc, words):
    """What ccache calls: without -c it wants what the preprocessor makes."""
    if "-c" not in words:
        return subprocess.run([nvcc, *words], check=False).returncode
    words[words.index("-c")] = os.environ["ULPSCOPE_NVCC_PHASE"]
    archive = pathlib.Path(words.pop(words.index("-o") + 1))
    words.remove("-o")
    with tempfile.TemporaryDirectory() as kept:
        status = subprocess.run([nvcc, *words, "-o", f"{kept}/made", "--keep", "--keep-dir", kept], check=False).returncode
        if status == 0:
            with tarfile.open(archive, "w") as packed:
                for path in sorted(path for kind in KINDS for path in pathlib.Path(kept).glob(f"*{kind}")):
                    packed.add(path, path.name)
    return status


def make_device_code(options):
    """Leaves in the folder what nvcc makes of the code, and gives whether it could."""
    phase = "-cubin" if options.device_only else "-c"
    version = subprocess.run([options.nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    environment = {**os.environ, "ULPSCOPE_NVCC": options.nvcc, "ULPSCOPE_NVCC_PHASE": phase, "CCACHE_COMPILERTYPE": "nvcc",
                   "CCACHE_COMPILERCHECK": f"string:{version} {phase} {pathlib.Path(__file__).read_text()}"}
    archive = options.folder / "device_code.tar"
    launcher = [options.ccache] if options.ccache else []
    command = [*launcher, pathlib.Path(__file__).resolve(), *options.arguments, "-o", archive.resolve()]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        return False
    with tarfile.open(archive) as packed:
        packed.extractall(options.folder)
    archive.unlink()
    return True


def main():
    if nvcc := os.environ.get("ULPSCOPE_NVCC"):
        return compile_and_pack(nvcc, sys.argv[1:])
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--ccache")
    parser.add_argument("--device-only", action="store_true")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("nvcc")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in (each for kind in KINDS for each in folder.glob(f"*{kind}")):
        old.unlink()
    if not make_device_code(options):
        return 1
    status = 0
    for kind, (kernel, faults_of) in KINDS.items():
        texts = {path.name: path.read_text() for path in sorted(folder.glob(f"*{kind}"))}
        if not texts or not all(re.search(kernel, text) for text in texts.values()):
            sys.exit(f"check_device_code.py: no *{kind} with kernels in '{folder}'")
        for name, text in texts.items():
            faults = faults_of(text)
            for function, what in faults[:20]:
                print(f"{name}: {function}: {what}", file=sys.stderr)
            print(f"{name}: {len(faults)} faults")
            status |= bool(faults)
    return status


if __name__ == "__main__":
    sys.exit(main())
