"""What the window costs from outside: the real one on a virtual display, pictures of it, and a report in a browser."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time


class Display:
    """A virtual one, drawn on by the CPU."""

    def __init__(self):
        self.said, write = os.pipe()
        self.server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "1920x1080x24"], pass_fds=[write],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        self.environment = os.environ | {"DISPLAY": ":" + os.read(self.said, 16).decode().strip(), "LIBGL_ALWAYS_SOFTWARE": "1"}

    def __enter__(self):
        return self.environment

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        os.close(self.said)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_share(program, trace, environment, seconds=5):
    """Of one core, of a window that nobody touches, on a trace that nobody writes."""
    window = subprocess.Popen([program, "view", trace], env=environment, stderr=subprocess.DEVNULL)
    try:
        # Until it has read all and sleeps: half a second without work.
        before = -1.0
        for _ in range(60):
            time.sleep(0.5)
            now = cpu_seconds(window.pid)
            if now == before:
                break
            before = now
        before = cpu_seconds(window.pid)
        time.sleep(seconds)
        if window.poll() is not None:
            raise RuntimeError(f"the window ended: {window.returncode}")
        return (cpu_seconds(window.pid) - before) / seconds
    finally:
        window.terminate()
        window.wait()


def slow_down(build, rounds=3):
    """How much longer a step takes, in the median, while a window follows the run and nobody touches it."""
    program = build / "bin/ulpscope"

    def step_seconds(folder, environment, is_watched):
        trace = os.path.join(tempfile.mkdtemp(dir=folder), "live.h5")
        run = subprocess.Popen([program, "train", "gpt_mini", "--steps", "60", "--set", "training.evaluation=never", "-o", trace],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        window = None
        if is_watched:
            while not os.path.exists(trace):
                time.sleep(0.01)
            window = subprocess.Popen([program, "view", trace], env=environment, stderr=subprocess.DEVNULL)
        try:
            if run.wait() != 0 or (window and window.poll() is not None):
                raise RuntimeError("the run or the window ended early")
        finally:
            if window:
                window.terminate()
                window.wait()
        rows = json.loads(subprocess.run([program, "export", trace, "--table", "steps", "--json"], check=True, capture_output=True).stdout)
        return statistics.median(row["seconds"] for row in rows[len(rows) // 3:])

    with tempfile.TemporaryDirectory(prefix="ulpscope_bench_") as folder, Display() as environment:
        ratios = []
        for _ in range(rounds):
            alone, watched = (step_seconds(folder, environment, is_watched) for is_watched in (False, True))
            ratios.append(watched / alone - 1)
    return statistics.median(ratios)


class Browser:
    """Headless Chromium, spoken to through its debugging pipe."""

    def __init__(self, program, folder):
        to_browser, self.to = os.pipe()
        self.answers, from_browser = os.pipe()

        def connect():
            # The browser reads from 3 and writes to 4. Both are first moved away from where they could lie.
            read, write = os.dup(to_browser), os.dup(from_browser)
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate((read, write))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={folder}"],
            close_fds=False, preexec_fn=connect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"HOME": folder})
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.buffer = 0, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.answers, 1 << 16)
            if not more:
                raise RuntimeError("the browser ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def first_paint(self, url):
        """Seconds from the start of the navigation to the first paint of content."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable", session)
        self.call("Page.navigate", session, url=url)
        expression = "(performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime"
        for _ in range(200):
            found = self.call("Runtime.evaluate", session, expression=expression)["result"]
            if "value" in found:
                self.call("Target.closeTarget", targetId=target)
                return found["value"] / 1000
            time.sleep(0.05)
        raise RuntimeError("nothing was painted in ten seconds")


def seconds_of(command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(build, tensors):
    """Figures of a trace of 10^6 rows in steps of so many tensors."""
    program, figures = build / "bin/ulpscope", {}
    with tempfile.TemporaryDirectory(prefix="ulpscope_bench_") as folder:
        trace, page = os.path.join(folder, "rows.h5"), os.path.join(folder, "report.html")

        def add(arguments, environment=None):
            printed = subprocess.run([build / "bench/gui_bench", *arguments], check=True, capture_output=True, text=True, env=environment).stdout
            figures.update(json.loads(printed))

        add([str(tensors), trace])
        add(["--compare", trace])
        for view in ("overview", "ranges"):
            figures[f"screenshot_seconds/{view}"] = seconds_of(
                [program, "screenshot", trace, "--view", view, "--size", "1920x1080", "--force", "-o", os.path.join(folder, "x.png")])
        figures["html_write_seconds"] = seconds_of([program, "report", trace, "--format", "html", "-o", page])
        figures["html_megabytes"] = 1e-6 * os.path.getsize(page)
        if chromium := shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"):
            with Browser(chromium, os.path.join(folder, "browser")) as browser:
                figures["html_first_paint_seconds"] = browser.first_paint("file://" + page)
        if shutil.which("Xvfb"):
            with Display() as environment:
                add(["--gl", trace], environment)
                figures["idle_share"] = idle_share(program, trace, environment)
    return figures
