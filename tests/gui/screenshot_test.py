#!/usr/bin/env python3
"""Makes the picture of each view twice, in processes that find another number of threads, language and time zone and no display: the
same bytes both times. And refuses what is not in the trace.

usage: screenshot_test.py ULPSCOPE
"""

import os
import pathlib
import subprocess
import sys
import tempfile

EXPERIMENT = pathlib.Path(__file__).resolve().parent.parent.parent / "experiments" / "failures" / "loss_scale_too_large.toml"
VIEWS = ("overview", "ranges", "timeline", "why-nan", "step", "updates", "compare", "number")


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    bare = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    surroundings = (bare | {"OMP_NUM_THREADS": "1", "LANG": "C", "TZ": "UTC"}, bare | {"OMP_NUM_THREADS": "2", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo"})
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.h5")
        subprocess.run([program, "train", str(EXPERIMENT), "--threads", "1", "-o", trace], cwd=EXPERIMENT.parent, check=True, capture_output=True)
        seen = {}
        for view in VIEWS:
            pictures = []
            for i, environment in enumerate(surroundings):
                path = pathlib.Path(folder, f"{view}{i}.png")
                subprocess.run([program, "screenshot", trace, trace, "--view", view, "-o", str(path)], env=environment, check=True)
                pictures.append(path.read_bytes())
            if pictures[0] != pictures[1]:
                print(f"{view}: two runs made different bytes")
                return 1
            if not pictures[0].startswith(b"\x89PNG\r\n\x1a\n") or pictures[0] in seen:
                print(f"{view}: no picture of its own (the same as {seen.get(pictures[0])})")
                return 1
            seen[pictures[0]] = view
        # What is not there, or cannot be written, is said in a line, in every view.
        steps = "expected one of 0 to"
        refused = [
            *((["--view", view, "--tensor", "nope"], "no tensor 'nope' in the trace") for view in VIEWS),
            *((["--view", view, "--step", "1000"], steps) for view in VIEWS),
            (["--steps", "1000..2000"], "no step of 1000 to 2000 in the trace; expected some of 0 to"),
            (["-o", os.path.join(folder, "z.jpg")], "z.jpg': a picture is written as PNG"),
        ]
        for options, expected in refused:
            output = [] if "-o" in options else ["-o", os.path.join(folder, "refused.png")]
            said = subprocess.run([program, "screenshot", trace, *options, *output], env=bare, capture_output=True, text=True)
            if said.returncode != 2 or expected not in said.stderr or len(said.stderr.splitlines()) != 1 or os.path.exists(os.path.join(folder, "refused.png")):
                print(f"{options}: exit code {said.returncode}, {said.stderr!r}")
                return 1
    print(f"{len(VIEWS)} views, each the same bytes twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
