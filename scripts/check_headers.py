#!/usr/bin/env python3
"""Checks the project's headers: no name is defined in two of them, all compile together, in either order, and each compiles alone.

usage: check_headers.py [--build BUILD [--alone]] [ROOT]      exit 0: clean, 1: problems, each on a line

Names are types, aliases, concepts and variables at namespace level; functions may be overloaded. A header that is the first include
of a source compiles alone where that source compiles without a precompiled header. The others are compiled, with no precompiled
header, with the flags that BUILD, a build folder, has for the sources beside them; without --alone they are not, since that takes
minutes, and without BUILD nothing is compiled. Together, what one header declares must not hide from another what that calls.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

FREE = ("bench", "build", "examples", "packaging", "python", "tests")  # folders whose headers are nobody else's
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s+([\w:]*)\s*$")
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\([^)]*\)\s*)?(\w+)\s*(?:final\b\s*)?(?::[^:].*)?$",
                  re.DOTALL)
ALIAS = re.compile(r"\b(?:using|concept)\s+(\w+)\s*=")
VARIABLE = re.compile(r"^(?:inline\s+|static\s+|extern\s+|thread_local\s+|constexpr\s+|constinit\s+|const\s+)+"
                      r"(?:[\w:]+(?:<[^=]*>)?[\s&*]+(?:const\s+)?)+(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$", re.DOTALL)


def without_comments_and_texts(text):
    """The code of a header: no comments, preprocessor lines, or contents of string and character literals."""
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'',
                  lambda match: '""' if match.group()[0] in "\"'" else " ", text, flags=re.DOTALL)
    return re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)


def names_of(text):
    """The names that a header defines at namespace level, qualified."""
    names = set()
    scopes, statement, hidden = [], "", 0  # hidden: braces within something that is no namespace
    for token in re.split(r"([{};])", without_comments_and_texts(text)):
        if hidden:
            hidden += {"{": 1, "}": -1}.get(token, 0)
            continue
        if token not in ("{", "}", ";"):
            statement += " " + token.strip()
            continue
        head = re.sub(r"^\s*template\s*<.*?>\s*(?=class|struct|union|using|concept|inline|constexpr|static)", "", statement.strip())
        found = None
        if token == "{" and (match := NAMESPACE.search(head)):
            scopes.append(match.group(1))
        elif token == "{":
            hidden = 1
            found = TYPE.search(head) if "(" not in head else None
            found = found or ALIAS.search(head) or VARIABLE.match(head)
        elif token == "}" and scopes:
            scopes.pop()
        elif token == ";":
            found = ALIAS.search(head) or VARIABLE.match(head)
        if found:
            names.add("::".join([*scopes, found.group(1)]))
        statement = ""
    return names


def headers_of(root):
    folders = [path for path in root.iterdir() if path.is_dir() and path.name not in FREE and not path.name.startswith(".")]
    return sorted(path for folder in folders for path in folder.rglob("*.h"))


def include_name(root, header):
    return "ulpscope/" + header.relative_to(root).as_posix()


def can_be_included(header):
    """Whether it is more than a part of sources."""
    return not header.name.endswith("-inl.h")


def twice_defined(root, headers):
    places = {}
    for header in headers:
        for name in names_of(header.read_text()):
            places.setdefault(name, []).append(header.relative_to(root).as_posix())
    return [f"{name} is defined in {' and in '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]


def sources_of(entry):
    """What a compile command compiles: a source, or those that CMake has put together into one."""
    file = pathlib.Path(entry["file"])
    return [pathlib.Path(name) for name in INCLUDE.findall(file.read_text())] if file.parent.name == "Unity" else [file]


def compile_problems(root, headers, build, alone):
    """What the compiler says of the headers together, and `alone` of each that no source includes first. Those that end in -inl.h are
    parts of sources.

    Each is compiled to an object, which ccache, where there is one, keeps until something that the header includes changes.
    """
    launcher = ["ccache"] if shutil.which("ccache") else []
    environment = {**os.environ, "CCACHE_BASEDIR": str(root)}
    commands = json.loads((build / "compile_commands.json").read_text())
    flags, first = {}, set()
    for entry in commands:
        sources = [source for source in sources_of(entry)
                   if source.is_relative_to(root) and source.relative_to(root).parts[0] not in FREE]
        words = shlex.split(entry["command"])
        words = words[:words.index("-o")]
        precompiled = "-include" in words
        while "-include" in words:
            del words[(place := words.index("-include")):place + 2]
        # ccache keeps nothing of what is compiled with -fpch-preprocess, unless told what it may overlook.
        for source in sources:
            flags.setdefault(source.parent, [word for word in words if word != "-fpch-preprocess"])
            if (include := INCLUDE.search(source.read_text())) and not precompiled:
                first.add(include.group(1))

    def compile_error(source, words):
        result = subprocess.run([*launcher, *words, "-O0", "-c", source, "-o", source.with_suffix(".o")], cwd=build, env=environment,
                                capture_output=True, text=True)
        return result.stderr if result.returncode else None

    def problem(header):
        name = include_name(root, header)
        folder = next((folder for folder in [header.parent, *header.parents] if folder in flags), None)
        if folder is None:
            return f"{name}: no source beside it is compiled, so that nobody knows its flags"
        source = build / "headers_alone" / header.relative_to(root).with_suffix(".cpp")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f'#include "{name}"\n')
        error = compile_error(source, flags[folder])
        return f"{name} does not compile alone:\n{error}" if error else None

    # Those that cannot be compiled for want of what they need, as the window's may, are in no folder with flags.
    together = [include_name(root, header) for header in headers if can_be_included(header)
                and any(folder in flags for folder in [header.parent, *header.parents])]

    def problem_together(order):
        source = build / "headers_alone" / f"together_{order}.cpp"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("".join(f'#include "{name}"\n' for name in (together if order == "forwards" else reversed(together))))
        # Of each folder, where it finds others' headers and what it defines.
        common, words = next(iter(flags.values()), []), []
        for folder_flags in flags.values():
            for word, next_word in zip(folder_flags, [*folder_flags[1:], ""]):
                option = [word, next_word] if word == "-isystem" else [word] if word.startswith(("-I", "-D", "-fopenmp")) else []
                if option and option not in words:
                    words.append(option)
        error = compile_error(source, [*common, *(word for option in words for word in option)])
        return f"the headers do not compile together, {order}:\n{error}" if error else None

    rest = [header for header in headers if alone and include_name(root, header) not in first and can_be_included(header)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        both_orders = pool.map(problem_together, ["forwards", "backwards"]) if together else []
        return [found for found in [*pool.map(problem, rest), *both_orders] if found]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    arguments = parser.parse_args()
    headers = headers_of(arguments.root)
    problems = twice_defined(arguments.root, headers)
    if arguments.build:
        problems += compile_problems(arguments.root, headers, arguments.build.resolve(), arguments.alone)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
