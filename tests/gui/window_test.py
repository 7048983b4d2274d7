#!/usr/bin/env python3
"""Opens the real window on a virtual display, presses keys, and looks at what it shows and remembers; opens one beside a run, and kills it; and
calls both where there is no display.

usage: window_test.py ULPSCOPE
Skipped where Xvfb or xdotool are not installed, or where OpenGL 3 is not to be had.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
EXPERIMENT = pathlib.Path(__file__).resolve().parent.parent.parent / "experiments" / "failures" / "loss_scale_too_large.toml"


def train_beside(program, trace, **options):
    arguments = ["train", str(EXPERIMENT), "--threads", "1", "-o", trace, "--force", "--view"]
    return subprocess.Popen([program, *arguments], cwd=EXPERIMENT.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def xdotool(environment, *arguments):
    return subprocess.run(["xdotool", *arguments], env=environment, capture_output=True, text=True)


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.h5")
        subprocess.run([program, "train", str(EXPERIMENT), "--threads", "1", "-o", trace], cwd=EXPERIMENT.parent, check=True, capture_output=True)
        no_display = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
        refused = subprocess.run([program, "view", trace], env=no_display, capture_output=True, text=True)
        if refused.returncode != 4 or "no display" not in refused.stderr or len(refused.stderr.splitlines()) != 1:
            print(f"without a display: exit code {refused.returncode}, {refused.stderr!r}")
            return 1
        beside = os.path.join(folder, "beside.h5")
        run = train_beside(program, beside, env=no_display)
        said = run.communicate()[1]
        if run.returncode != 4 or "--view: no display" not in said or len(said.splitlines()) != 1 or os.path.exists(beside):
            print(f"train --view without a display: exit code {run.returncode}, {said!r}")
            return 1
        missing = [name for name in ("Xvfb", "xdotool") if not shutil.which(name)]
        if missing:
            print(f"skipped: {' and '.join(missing)} not installed")
            return SKIPPED
        read, write = os.pipe()
        server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x800x24"], pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(write)
        display = os.read(read, 16).decode().strip()
        environment = no_display | {"DISPLAY": f":{display}", "LIBGL_ALWAYS_SOFTWARE": "1", "XDG_STATE_HOME": folder}
        # Graphics drivers leave memory behind when they are unloaded, which nothing tells from ours then: leaks of what a window shows
        # are found by the tests that need none.
        environment["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0"]))
        window = None
        try:
            window = subprocess.Popen([program, "view", trace], env=environment, stderr=subprocess.PIPE, text=True)
            # The title is the command line that shows the same.
            found = xdotool(environment, "search", "--sync", "--onlyvisible", "--name", "view overview") if window.poll() is None else None
            if window.poll() is not None:
                said = window.stderr.read()
                if "OpenGL" in said:
                    print(f"skipped: {said.strip()}")
                    return SKIPPED
                print(f"the window ended: {window.returncode}, {said}")
                return 1
            name = found.stdout.split()[0]
            xdotool(environment, "windowfocus", "--sync", name)
            # Keys come up at once: a busy machine draws no frame in between.
            xdotool(environment, "key", "--delay", "0", "2")
            changed = subprocess.run(
                ["timeout", "60", "xdotool", "search", "--sync", "--name", "view ranges"], env=environment, capture_output=True, text=True
            )
            if changed.returncode != 0:
                print("key 2 did not lead to the ranges")
                return 1
            # Chords of no length, one by one, of which none is lost: as many steps back as there were forward.
            for key, view in [("3", "timeline"), ("4", "why-nan"), ("5", "step"), *(("ctrl+z", view) for view in ("why-nan", "timeline", "ranges"))] * 3:
                xdotool(environment, "key", "--delay", "0", key)
                found = subprocess.run(["timeout", "60", "xdotool", "search", "--sync", "--name", f"view {view}"], env=environment, capture_output=True)
                if found.returncode != 0:
                    print(f"key {key} did not lead to {view}")
                    return 1
            # Closed with a key, it remembers how it looked.
            xdotool(environment, "key", "--delay", "0", "ctrl+q")
            if window.wait(timeout=60) != 0:
                print(f"Ctrl+Q: exit code {window.returncode}, {window.stderr.read()}")
                return 1
            remembered = pathlib.Path(environment["XDG_STATE_HOME"], "ulpscope", "window").read_text()
            if "view ranges\n" not in remembered:
                print(f"it was closed at the ranges, and remembered: {remembered!r}")
                return 1
            # A run goes on whatever becomes of the window beside it, and what it prints ends with it.
            run = train_beside(program, beside, env=environment)
            found = subprocess.run(
                ["timeout", "60", "xdotool", "search", "--sync", "--onlyvisible", "--name", "beside.h5"],
                env=environment,
                capture_output=True,
                text=True,
            )
            if found.returncode != 0:
                run.kill()
                print(f"no window beside the run: {run.communicate()[1]}")
                return 1
            xdotool(environment, "windowkill", found.stdout.split()[0])
            said = run.communicate()[1]
            if run.returncode != 0 or not os.path.exists(beside):
                print(f"the run ended with its window: {run.returncode}, {said}")
                return 1
            print("the window opened, and key 2 led to the ranges; a run went on when the one beside it was killed")
            return 0
        finally:
            for process in (window, server):
                if process:
                    process.terminate()
                    process.wait()


if __name__ == "__main__":
    sys.exit(main())
