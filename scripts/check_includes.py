#!/usr/bin/env python3
"""Checks the direction of includes, and of imports in the Python package: a folder may include only what docs/architecture.md allows it.

usage: check_includes.py [ROOT]      exit 0: clean, 1: bad includes, each on a line
"""

import ast
import pathlib
import re
import sys

# What each unit may include of the project, itself always. A unit is a folder, or some files of one; the longest match counts.
STATISTICS_FILES = ("view", "statistics", "sum_order", "op_call", "bit_hash", "fingerprint", "sum_lanes-inl", "update_sums")
SINK_FILES = ("sink", "records", "op_semantics", "measure_names", "histogram_code", "row_problem", "packed_rows")
READER_FILES = ("snapshot", "run_set", "op_graph", "recover", "sources", "records", "op_semantics", "measure_names", "schema", "columns")
# These are on both lists: what a trace holds, and what its ops do.
BOTH_SIDES = tuple(f"trace/{stem}.h" for stem in SINK_FILES if stem in READER_FILES)

PROJECT = {
    "base": set(),
    "base/hdf5": {"base"},
    "emulation": {"base"},
    "kernels/statistics": {"emulation", "base"},
    "kernels": {"kernels/statistics", "emulation", "base"},
    "trace": {"base/hdf5", "emulation", "base"},
    "recorder": {"trace/sink", "kernels/statistics", "emulation", "base"},
    "core": {"recorder", "kernels", "kernels/statistics", "trace/sink", "emulation", "base", "base/hdf5"},
    "analyzers": {"trace/reader", "emulation", "base"},
    "gui": {"analyzers", "trace/reader", "emulation", "base"},
    "studies": {"core", "kernels", "kernels/statistics", "analyzers", "trace", "trace/sink", "trace/reader", "emulation", "base"},
    "cli": {"core", "analyzers", "studies", "gui", "recorder", "kernels", "kernels/statistics", "trace", "trace/sink",
            "trace/reader", "emulation", "base"},
}
# Floors of a folder: one includes itself and those before it, and floors of one row do not know each other.
FLOORS = {
    "core": [("tensor", "settings"), ("engine",), ("ops",), ("nn", "optim"), ("data", "observe"), ("run",)],
    "analyzers": [("report",), ("subject",), ("totals",), ("history", "judgements"), ("findings",), ("tables",), ("verbs",)],
}

# Floors of the Python package, for what a file imports when it is loaded or later.
PYTHON_FLOORS = [
    ("_library", "_formats", "_options"),
    ("_report", "_checkpoint"),
    ("_judgements",),
    ("check",),
    ("torch/signals",),
    ("torch/backward", "torch/given", "torch/leaves", "torch/patch", "torch/scalers", "torch/tracker"),
    ("torch/adapter", "torch/device", "torch/guard", "torch/op_runs", "torch/preflight", "torch/samples", "torch/steps", "torch/updates"),
    ("opcheck",),
    ("torch/fallback", "torch/fast", "torch/reached", "torch/sampling"),
    ("torch/choice", "torch/session"),
    ("torch/record",),
    ("torch/automatic", "torch/callbacks", "torch/observe"),
    ("_script",),
    ("__init__", "__main__", "torch/__init__"),
]

# Others than findings include these of them: how findings are asked for, what their rules are, and what they come to.
FINDINGS = tuple(f"analyzers/findings/{name}.h" for name in ("all", "checked", "finding_rule", "followed_run", "not_tried", "verdict"))

# Which library a header belongs to, by how its name starts.
LIBRARIES = {
    "fmt/": "fmt", "hdf5": "hdf5", "H5": "hdf5", "hwy/": "highway", "boost/context/": "boost-context", "boost/": "boost", "oneapi/dnnl/": "onednn", "dnnl": "onednn",
    "ATen/": "torch", "c10/": "torch", "torch/": "torch", "omp.h": "openmp", "CLI/": "cli11", "toml++/": "toml++", "toml.hpp": "toml++", "zlib.h": "zlib", "csv.h": "libcsv",
    "nlohmann/": "nlohmann-json", "cuda": "cuda", "cublas": "cuda", "imgui": "imgui", "backends/imgui_": "imgui", "GLFW/": "glfw", "png.h": "libpng", "gtest/": "gtest", "gmock/": "gtest", "benchmark/": "benchmark",
}
EXTERNAL = {
    "base": {"fmt"},
    "base/hdf5": {"fmt", "hdf5"},
    "emulation": {"fmt", "boost", "highway"},
    "kernels/statistics": {"fmt", "highway"},
    "kernels": {"fmt", "highway"},
    "kernels/cpu": {"fmt", "highway", "onednn", "openmp"},
    "kernels/device": {"fmt", "boost-context", "cuda"},
    "trace": {"fmt", "zlib"},
    "recorder": {"fmt"},
    "core": {"fmt", "libcsv", "toml++", "zlib"},
    "analyzers": {"fmt", "nlohmann-json"},
    "gui": {"fmt", "imgui", "glfw", "libpng"},
    "studies": {"fmt"},
    "cli": {"fmt", "cli11", "nlohmann-json"},
    "python": {"torch"},
}
# Headers in C, which their users have in one folder, and name so.
C_INTERFACE = ("ulpscope.h", "ulpscope_aten.h")
# Folders of the source root that may include anything, and that nothing depends on.
FREE = ("bench", "build", "examples", "packaging", "tests")
# Headers that take seconds to compile: at most so many files of all folders include each.
FEW_FILES = {"cli11": 2, "boost": 2, "nlohmann-json": 2, "toml++": 2}

STANDARD = re.compile(r"[a-z_0-9]+$")
SYSTEM = re.compile(r"(sys/|linux/|sanitizer/)|(unistd|fcntl|signal|pthread|dlfcn|termios|poll|sched|immintrin|xmmintrin|spawn|time|stddef|stdint|stdio|stdlib)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')


def starts_with_stem(name, stems):
    return any(name == stem or name.startswith(stem + "_") for stem in stems)


def unit_of(path):
    """The unit of `path`, relative to the source root."""
    parts = path.split("/")
    folder, stem = parts[0], parts[-1].split(".")[0]
    if path.startswith("base/hdf5/"):
        return "base/hdf5"
    if folder == "kernels" and len(parts) == 2 and starts_with_stem(stem, STATISTICS_FILES):
        return "kernels/statistics"
    if folder == "trace" and path.endswith(".h") and len(parts) == 2:
        if stem in SINK_FILES:
            return "trace/sink"
        if stem in READER_FILES:
            return "trace/reader"
    return folder


def floor_of(path):
    folder, name = path.split("/")[:2]
    return next((rank for rank, floor in enumerate(FLOORS[folder]) if name in floor), None)


def project_problem(source, target):
    """Why `source` may not include `target`, or None."""
    unit, other = unit_of(source), unit_of(target)
    folder = unit if unit in PROJECT else unit.split("/")[0]
    if folder not in PROJECT:
        return f"{folder} is a folder that the table of scripts/check_includes.py does not have"
    if other.startswith("trace/") and other not in PROJECT and folder == "trace":
        return None
    sides = {"trace/sink", "trace/reader"} if target in BOTH_SIDES else {other}
    if other != folder and not sides & PROJECT[folder]:
        return f"{unit} may not include {other}"
    if folder in FLOORS and other == folder:
        mine, its = floor_of(source), floor_of(target)
        if mine is None or its is None:
            return f"{source if mine is None else target} lies on no floor of {folder} that scripts/check_includes.py knows"
        if its > mine or (its == mine and source.split("/")[1] != target.split("/")[1]):
            return f"{folder}/{source.split('/')[1]} may not include {folder}/{target.split('/')[1]}"
    if target.startswith("analyzers/findings/") and not source.startswith("analyzers/findings/") and target not in FINDINGS:
        return f"{target} is findings' own: use {FINDINGS[0]}"
    if re.match(r"kernels/(cpu|device|plain)/", target) and folder != "kernels" and not unit.startswith("kernels"):
        return f"{target} is kernels' own: use kernels/backend.h"
    if unit == "cli" and target.startswith("gui/") and "/views/" in target:
        return "cli may not include the views of gui"
    return None


def library_of(header):
    return next((library for start, library in LIBRARIES.items() if header.startswith(start)), None)


def allowed_libraries(source):
    unit = unit_of(source)
    names = ["/".join(source.split("/")[:2]), unit, unit.split("/")[0]]
    return next((EXTERNAL[name] for name in names if name in EXTERNAL), set())


def check(root):
    problems, users = [], {}
    folders = [path for path in root.iterdir() if path.is_dir() and path.name not in FREE and not path.name.startswith(".")]
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".inc"):
            continue
        source = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, angled = match.groups()
            if quoted and library_of(quoted):
                quoted, angled = None, quoted
            problem = None
            if quoted in C_INTERFACE:
                if source.split("/")[-1] not in C_INTERFACE and not source.startswith("python/"):
                    problem = f'"{quoted}" is ulpscope/recorder/{quoted} here'
            elif quoted and source.startswith("python/"):  # compiled where the package is installed
                if not (path.parent / quoted).exists():
                    problem = f'"{quoted}" is not in the folder'
            elif quoted:
                if not quoted.startswith("ulpscope/"):
                    problem = f'"{quoted}" is not a path that starts with ulpscope/'
                else:
                    problem = project_problem(source, quoted.removeprefix("ulpscope/"))
            elif library := library_of(angled):
                users.setdefault(library, {}).setdefault(source, number)
                if library not in allowed_libraries(source):
                    problem = f"{unit_of(source)} may not include {library}"
            elif not STANDARD.match(angled) and not SYSTEM.match(angled):
                problem = f"<{angled}> belongs to no library that scripts/check_includes.py knows"
            if problem:
                problems.append(f"{source}:{number}: {problem}")
    for library, limit in FEW_FILES.items():
        files = users.get(library, {})
        if len(files) > limit:
            problems.append(f"{library} is included by {len(files)} files, {limit} are allowed: {', '.join(sorted(files))}")
    return problems


def imports_of(path, package):
    """(line, file of the package without .py) of each import of the package itself; those for type checkers alone are left out."""
    tree = ast.parse(path.read_text())
    for_checkers = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
                    for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in for_checkers:
            continue
        folder = path.relative_to(package).parents[node.level - 1]
        names = [node.module.replace(".", "/")] if node.module else [name.name for name in node.names]
        for name in names:
            yield node.lineno, (folder / name).as_posix()


def check_python(root):
    package, problems = root / "python/ulpscope", []
    floors = {name: rank for rank, floor in enumerate(PYTHON_FLOORS) for name in floor}
    for path in sorted(package.rglob("*.py")):
        source = path.relative_to(package).with_suffix("").as_posix()
        if source not in floors:
            problems.append(f"python/ulpscope/{source}.py lies on no floor that scripts/check_includes.py knows")
            continue
        for line, target in imports_of(path, package):
            if target in floors and floors[target] >= floors[source]:
                problems.append(f"python/ulpscope/{source}.py:{line}: {source} may not import {target}")
    return problems


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    problems = check(root) + check_python(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
