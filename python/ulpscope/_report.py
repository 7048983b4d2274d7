"""Reports and tables of traces, from the program `ulpscope`. A trace is a file, or a folder with one of each rank."""

import contextlib
import functools
import html
import importlib
import json
import math
import os
import shlex
import subprocess
import sys
from typing import Any, Dict, List, Union

from ._library import Error, find_program

# Background and name of the labels in notebooks.
_VERDICTS = {"ok": ("#2e7d32", "OK"), "warning": ("#a65c00", "WARNING"), "broken": ("#b3261e", "BROKEN")}
_SEVERITIES = {"error": "#b3261e", "warning": "#a65c00"}
_SHOWN = 8  # findings, in a notebook; the text below has all of them

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


def _finite_or_not(value: Any) -> Any:
    """With numbers where JSON has their names."""
    if isinstance(value, dict):
        return {key: _finite_or_not(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite_or_not(each) for each in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def named(value: Any) -> Any:
    """With names where JSON has no numbers: the reverse of _finite_or_not."""
    if isinstance(value, dict):
        return {key: named(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [named(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def recorded(trace: str, given: str) -> str:
    """The line on a trace that is written. `given`: the name that the user gave, which is the folder where several ranks record."""
    return f"recorded {trace}; python -m ulpscope report {shlex.quote(given)} explains it"


def tell(text: str) -> None:
    """A line on stderr, which the program may have closed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"ulpscope: {text}", file=sys.stderr)


def difference(candidate: str, reference: str, exact: str, number_format: str) -> Dict[str, Any]:
    """The report of `ulpscope diff`, of files of numpy.save."""
    said = _run("diff", candidate, reference, "--exact", exact, "--format", f"{number_format},json")
    found: Dict[str, Any] = _finite_or_not(json.loads(said))
    return found


class Report:
    """The report of a trace."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(path)
        self.data: Dict[str, Any] = json.loads(_run("report", self.path, "--format", "json"))
        if "verdict" not in self.data:
            raise Error(f"{self.path} has no whole step yet")

    @functools.cached_property
    def text(self) -> str:
        """The report as the program prints it."""
        return _run("report", self.path)

    @property
    def verdict(self) -> str:
        """ok, warning or broken."""
        verdict: str = self.data["verdict"]
        return verdict

    @property
    def findings(self) -> List[Dict[str, Any]]:
        """The findings, as docs/report.schema.json has them."""
        findings: List[Dict[str, Any]] = self.data["findings"]
        return findings

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ulpscope report of {self.path}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """The verdict as a label, the findings as a list, and the report in a fold. Without styles it reads as well."""
        colour, label = _VERDICTS.get(self.verdict, ("#555", self.verdict))
        parts = [f"<p>{_label(label, colour)} {html.escape(self.data.get('verdict_text', ''))}</p>"]
        if self.findings:
            items = [_finding(finding) for finding in self.findings[:_SHOWN]]
            if len(self.findings) > _SHOWN:
                items.append(f"<li>{len(self.findings) - _SHOWN} more</li>")
            parts.append(f"<ul>{''.join(items)}</ul>")
        parts.append(f"<details><summary>{html.escape(self.path)}</summary><pre>{html.escape(self.text)}</pre></details>")
        return f"<div>{''.join(parts)}</div>"


def _label(text: str, colour: str) -> str:
    return f'<b style="background:{colour};color:#fff;padding:.1em .5em;border-radius:.3em">{html.escape(text)}</b>'


def _finding(finding: Dict[str, Any]) -> str:
    severity = str(finding.get("severity", ""))
    said = f'<b style="color:{_SEVERITIES.get(severity, "inherit")}">{html.escape(severity)}</b> {html.escape(finding.get("title", ""))}'
    suggestion = finding.get("suggestion")
    advised = f"<br/><i>{html.escape(suggestion)}</i>" if suggestion else ""
    code = "".join(f"<pre>{html.escape(snippet['code'])}</pre>" for snippet in finding.get("snippets", ()))
    return f"<li>{said}{advised}{code}</li>"


class Trace:
    """The tables of a trace."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(path)

    def table(self, name: str) -> List[Dict[str, Any]]:
        """The rows of a table that docs/trace_format.md describes; None: not known."""
        try:
            exported = _run("export", self.path, "--table", name, "--format", "json")
        except Error as error:  # the program's users wrote an option
            raise Error(str(error).replace("--table takes", "table() takes")) from error
        rows: List[Dict[str, Any]] = _finite_or_not(json.loads(exported))
        return rows

    def to_pandas(self, name: str) -> Any:
        """The rows of a table as a pandas.DataFrame, in whose columns of numbers what is not known is NaN."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            raise Error("to_pandas needs pandas, which is not installed; table() gives the same rows") from error
        return pandas.DataFrame(self.table(name))

    def __repr__(self) -> str:
        return f"<ulpscope trace {self.path}>"
