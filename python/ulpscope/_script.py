"""python -m ulpscope record: runs a script or a module as Python would, and records the training in it."""

import argparse
import contextlib
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
import types
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Type

from ._library import Error, load_library
from ._options import ACCUMULATIONS, COMPILES, LEVELS, PRECISIONS, STOPS, Options, may_be_trace
from ._report import recorded, tell

if TYPE_CHECKING:
    from .torch.automatic import Automatic

_USAGE = 2
_NO_LIBRARY = 4


def main(arguments: Sequence[str]) -> int:
    """Exceptions and the exit code are those of the script."""
    given = _parser().parse_args(arguments)
    refusal = _refusal(given)
    if refusal:
        print(f"ulpscope record: {refusal}", file=sys.stderr)
        return _USAGE
    try:
        load_library()
    except Error as error:
        print(f"ulpscope record: {error}", file=sys.stderr)
        return _NO_LIBRARY
    with _recorded(given.output, _options(given)):
        try:
            if given.m:
                _run_module(given.script, given.arguments)
            else:
                _run_script(given.script, given.arguments)
        except BaseException:
            _show_from_script()
            raise
    return 0


def _show_from_script() -> None:
    """Tracebacks are shown from here on as they are without `record`."""
    show, own = sys.excepthook, (__file__, runpy.run_module.__code__.co_filename)

    def show_rest(kind: Type[BaseException], error: BaseException, traceback: Optional[types.TracebackType]) -> None:
        rest = traceback
        while rest is not None and rest.tb_frame.f_code.co_filename != __file__:
            rest = rest.tb_next
        if rest is not None:
            while rest is not None and rest.tb_frame.f_code.co_filename in own:
                rest = rest.tb_next
            error, traceback = error.with_traceback(rest), rest
        show(kind, error, traceback)

    sys.excepthook = show_rest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ulpscope record", allow_abbrev=False, usage="ulpscope record [OPTIONS] [-m] SCRIPT [ARGUMENTS ...]",
        description="Runs a script as `python SCRIPT ARGUMENTS` does, and records its training in PyTorch: of the model whose parameters "
                    "an optimizer has, from its first forward pass on.")
    parser.add_argument("-m", action="store_true", help="SCRIPT is the name of a module, as of python -m")
    parser.add_argument("-o", "--output", metavar="FILE", default="run.h5",
                        help="the trace to write (default: run.h5); of a run of several processes, a folder")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    parser.add_argument("--level", choices=LEVELS, default=Options.level,
                        help="what is recorded of each tensor (default: stats)")
    parser.add_argument("--every", type=int, metavar="N", default=Options.every, help="histograms in every Nth step only (default: 1)")
    parser.add_argument("--sample", type=int, metavar="N", default=Options.sample, help="ops in every Nth step only, of the others their results (default: 1)")
    parser.add_argument("--first-step", type=int, metavar="N", default=Options.first_step,
                        help="the number of the first step, as of a training that is resumed (default: 0)")
    parser.add_argument("--keep-last", type=int, metavar="N", default=Options.keep_last,
                        help="hold the last N steps in memory, and write them when something of --on happens (default: write all)")
    parser.add_argument("--after", type=int, metavar="N", default=Options.after, help="with --keep-last: so many steps behind that, too (default: 5)")
    parser.add_argument("--on", metavar="WHAT", default=Options.on,
                        help="nan, skips:N, grad_norm:Nx and names of signals, with commas (default: nan,skips:8)")
    parser.add_argument("--stop-on", choices=STOPS, default=Options.stop_on,
                        help="end the recording, and not the training, with the first step that has it")
    for name, what in (("modules", "GLOB"), ("ops", "GLOB"), ("phases", "NAME")):
        parser.add_argument(f"--{name}", metavar=what, default="", help=f"record these {name} only; several with commas (default: all)")
    parser.add_argument("--max-bytes", type=int, metavar="N", default=Options.max_bytes, help="how large the trace may become (default: no limit)")
    parser.add_argument("--name", default="", help="of the run")
    parser.add_argument("--precision", choices=PRECISIONS, default=Options.precision,
                        help="of the run (default: what autocast and parameters have)")
    parser.add_argument("--accumulate", choices=ACCUMULATIONS, help="what the loss of a step is of the losses of its micro-batches")
    parser.add_argument("--compile", choices=COMPILES, default=Options.compile,
                        help="eager runs what torch.compile made op by op (default: see)")
    parser.add_argument("script", metavar="SCRIPT", help="the script, which is not changed")
    arguments = parser.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER, help="those of the script")
    arguments.required = False  # messages of some versions of Python name it as missing
    return parser


def _refusal(given: argparse.Namespace) -> str:
    """Why nothing could be recorded, where that is known before the script runs; or an empty text."""
    folder = os.path.dirname(os.path.abspath(given.output))
    if not os.path.isdir(folder):
        return f"{folder} is no folder, so that {os.path.basename(given.output)} cannot be written"
    if os.path.isfile(given.output) and not given.overwrite:
        return f"{given.output} exists; --overwrite replaces it"
    if os.path.isfile(given.output) and not may_be_trace(given.output):
        return f"{given.output} is no trace, so that none replaces it; remove it first"
    if not given.m and not os.path.exists(given.script):
        return f"there is no script {given.script}"
    if not given.m and os.path.isdir(given.script) and not os.path.isfile(os.path.join(given.script, "__main__.py")):
        return f"{given.script} is a folder without a __main__.py"
    try:
        Options(**_options(given))
    except ValueError as error:
        option, said = str(error).split(" ", 1)
        return f"--{option.replace('_', '-')} {said}"
    return ""


def _options(given: argparse.Namespace) -> Dict[str, Any]:
    names = {field.name for field in dataclasses.fields(Options)}
    return {name: value for name, value in vars(given).items() if name in names}


@contextlib.contextmanager
def _recorded(path: str, options: Dict[str, Any]) -> Iterator[None]:
    """Records what trains in the block, and says so at its end on stderr."""
    process = os.getpid()
    started: List["Automatic"] = []
    failures: List[str] = []

    def start() -> None:
        try:
            from .torch.automatic import Automatic

            started.append(Automatic(path, options))
        except Exception as error:  # a PyTorch that is too old; the script goes on
            failures.append(f"{type(error).__name__}: {error}")

    # PyTorch reads the environment while it is imported, and a script may set that before: it is the script that imports it.
    finder = _AfterImport("torch", start)
    if "torch" in sys.modules:
        start()
    else:
        sys.meta_path.insert(0, finder)
    error: Optional[BaseException] = None
    try:
        yield
    except BaseException as raised:
        error = None if isinstance(raised, SystemExit) else raised
        raise
    finally:
        finder.remove()
        automatic = started[0] if started else None
        if os.getpid() == process:
            if automatic is not None:
                automatic.close(error)
            tell(_result(path, automatic, failures))


def _result(path: str, automatic: Optional["Automatic"], failures: List[str]) -> str:
    recording = None if automatic is None else automatic.recording
    if recording is not None and not recording.refusal:
        return recording.lost or recorded(recording.path, path)
    why = "no module was called for training whose parameters an optimizer of torch.optim has"
    if automatic is None:
        why = failures[0] if failures else "the script did not import torch"
    elif recording is not None:
        why = recording.refusal
    elif automatic.failure:
        why = automatic.failure
    return f"nothing was recorded: {why}"


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls `done` when a module was imported for the first time."""

    def __init__(self, name: str, done: Callable[[], None]) -> None:
        self._name, self._done = name, done

    def remove(self) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_tell(module: types.ModuleType) -> None:
            delattr(loader, "exec_module")  # of this loader, whose class has it; a reload tells nothing
            execute(module)
            self._done()

        setattr(loader, "exec_module", execute_and_tell)
        return spec


def _run_module(name: str, arguments: List[str]) -> None:
    if not _is_safe_path():
        sys.path[0] = os.getcwd()
    sys.argv[:] = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_script(path: str, arguments: List[str]) -> None:
    sys.argv[:] = [path, *arguments]
    if not os.path.isfile(path):  # a folder with a __main__.py
        if not _is_safe_path():
            del sys.path[0]
        runpy.run_path(os.path.abspath(path), run_name="__main__")
        return
    if not _is_safe_path():
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    # Not by runpy.run_path(), which changes sys.argv, and takes the module __main__ away before threads and exit handlers of the script
    # end.
    whole = os.path.abspath(path)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=whole, __builtins__=__builtins__, __cached__=None)
    with io.open_code(whole) as file:
        code = compile(file.read(), whole, "exec")
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _is_safe_path() -> bool:
    """Whether Python was told to put no folder of a script before sys.path."""
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)
