"""python -m ulpscope VERB ...: the program `ulpscope`, and the verbs that Python has."""

import importlib
import os
import signal
import sys
from typing import List, Optional

from ._library import Error, find_program

# Verbs of Python: the module whose main(arguments) does it and returns the exit code, and the line of help.
_VERBS = {
    "check": ("check", "say what a checkpoint tells of NaN, ranges, moments and lost updates, without a rerun"),
    "opcheck": ("opcheck", "say which of two implementations of a computation is nearer to the exact result"),
    "record": ("_script", "run a script or a module, and record its training in PyTorch"),
}
_HELP = ("-h", "--help", "help")
_NO_PROGRAM = 4  # the program's own code for what is neither a wrong argument nor a file that cannot be read


def main(arguments: Optional[List[str]] = None) -> int:
    """Does what the arguments say; returns the exit code, or never where the program takes the place of this process."""
    given = sys.argv[1:] if arguments is None else arguments
    verb = _VERBS.get(given[0]) if given else None
    if verb is not None:
        module = importlib.import_module("." + verb[0], __package__)
        code: int = module.main(given[1:])
        return code
    if given and given[0] in _HELP and len(given) == 1:
        print("Verbs of the Python package, beside those of the program below:")
        for name, (_, line) in _VERBS.items():
            print(f"  {name:<10} {line}")
        print(flush=True)
    return _become_program(given)


def _become_program(arguments: List[str]) -> int:
    try:
        program = find_program()
        _forget_ignored_signals()
        os.execv(program, [program, *arguments])
    except Error as error:
        print(f"ulpscope: {error}", file=sys.stderr)
    except OSError as error:
        print(f"ulpscope: the program {program} cannot be run: {error.strerror}", file=sys.stderr)
    return _NO_PROGRAM


def _forget_ignored_signals() -> None:
    """Python ignores these, and the program would inherit that: `ulpscope report run.h5 | head` would go on writing."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
