#!/usr/bin/env python3
"""Recomputes every number of the reports of a trace, or of the comparison of two, from the tables of the trace.

usage: recompute_numbers.py ULPSCOPE TRACE [TRACE]
Every number of a title, a suggestion, a verdict, evidence, a fact, a table or a plot is computed again, with h5py and numpy, as docs/
defines it. A number that no rule recomputes is a mistake too: recompute/ has the rules, one for each finding's code.
"""

import json
import sys

from recompute.program import Program

try:
    from recompute.checks import mistakes
    from recompute.facts import Facts
    from recompute.nan_rules import nan_mistakes
    from recompute.promises import MADE_BY, broken_promises
    from recompute import whatif_rules
    from recompute.trace import Trace
except ImportError:
    Facts, MADE_BY = None, {}  # and nothing else here is asked for

SKIPPED = 77
promising_runs = set(MADE_BY.values())  # those whose reports have to promise something


def said(program, verb, *arguments):
    return json.loads(program.told(verb, *arguments, "--json", "--limit", "0"))


def has_histograms(path):
    trace = Trace(path)
    has = bool(trace.tables.stats.is_any("known", "values").any())
    trace.close()
    return has


def reports(program, traces):
    """Of one trace what `report`, `ranges`, `scale`, `updates` and `whatif` say, of two what `compare` says; nothing that runs anything again."""
    if len(traces) == 1:
        for verb in ("report", "ranges", "scale"):
            yield verb, said(program, verb, *traces)
        yield "updates", said(program, "updates", *traces, "--no-trials")
        if has_histograms(traces[0]):
            yield "whatif", said(program, "whatif", *traces, *whatif_rules.ARGUMENTS)
    else:
        yield "compare", said(program, "compare", *traces)


def wrong_numbers(program, facts):
    whole = None
    for verb, report in reports(program, [each.path for each in facts]):
        whole = whole or report
        for mistake in mistakes(facts, report, whole):
            yield f"{verb}: {mistake}"


def wrong(program, trace, first, name, report, brief, every, record_fp32):
    """What is wrong with the numbers of a run, and of the comparison with the first of its experiment, and with what commands show."""
    facts = [Facts(first), Facts(trace)] if first != trace else [Facts(trace)]
    yield from wrong_numbers(program, facts[-1:])
    nan = said(program, "nan", trace, "--no-trials")
    yield from (f"nan: {mistake}" for mistake in nan_mistakes(facts[-1], nan))
    if nan["verdict"] != report["verdict"]:
        yield f"nan: verdict {nan['verdict']}, of the report {report['verdict']}"
    made = set()
    yield from broken_promises(program, facts[-1], report, brief, every, record_fp32, made)
    yield from (f"does not promise what recompute/promises.py holds {check.__name__}() to" for check in MADE_BY
                if MADE_BY[check] == name and check not in made)
    if len(facts) > 1:
        yield from wrong_numbers(program, facts)
    for each in facts:
        each.trace.close()


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    if Facts is None:
        print("skipped: h5py or numpy cannot be imported")
        return SKIPPED
    found = list(wrong_numbers(Program(sys.argv[1]), [Facts(trace) for trace in sys.argv[2:]]))
    print("\n".join(found) or "every number was recomputed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
