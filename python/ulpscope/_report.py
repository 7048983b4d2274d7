"""Reports and tables of traces, from the program `ulpscope`."""

import functools
import html
import json
import math
import os
import subprocess
from typing import Any, Dict, List, Union

from ._library import Error, find_program

# How JSON of the program writes them.
_NOT_FINITE: Dict[str, Any] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _run(*arguments: str) -> str:
    program = find_program()
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, encoding="utf-8", check=False)
    except OSError as error:
        raise Error(f"the program {program} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise Error(done.stderr.strip() or f"ulpscope {arguments[0]} ended with {done.returncode}")
    return done.stdout


class Report:
    """The report of a trace."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(path)
        self.data: Dict[str, Any] = json.loads(_run("report", self.path, "--format", "json"))
        if "verdict" not in self.data:
            raise Error(f"{self.path} has no step: nothing was recorded of a whole one")

    @functools.cached_property
    def text(self) -> str:
        """The report as the program prints it."""
        return _run("report", self.path)

    @property
    def verdict(self) -> str:
        """ok, warning or broken."""
        return self.data["verdict"]

    @property
    def findings(self) -> List[Dict[str, Any]]:
        """The findings, as docs/report.schema.json has them."""
        return self.data["findings"]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ulpscope report of {self.path}: {self.verdict}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class Trace:
    """The tables of a trace."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(path)

    def table(self, name: str) -> List[Dict[str, Any]]:
        """The rows of a table that docs/trace_format.md describes; None: not known."""
        rows: List[Dict[str, Any]] = json.loads(_run("export", self.path, "--table", name, "--format", "json"))
        return [{column: _NOT_FINITE.get(value, value) if isinstance(value, str) else value for column, value in row.items()}
                for row in rows]

    def __repr__(self) -> str:
        return f"<ulpscope trace {self.path}>"
