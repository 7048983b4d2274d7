#!/usr/bin/env python3
"""What a GPU does, beside what the CPU predicts: one JSON file and a table of it.

    gpu.py pack FOLDER --build BUILD     collects programs and libraries for a machine that has a GPU's driver, the CUDA runtime and
                                         cuBLAS (of the toolkit, or of Python's packages) and nothing else of what they need
    gpu.py run [FOLDER] --output JSON    runs all that is in the folder, in the order of what matters most, until the time is over
    gpu.py sanitize [FOLDER]             compute-sanitizer (of the CUDA Toolkit) over the tests of devices
    gpu.py table JSON                    the table for docs/gpu.md

Needs Python 3.9 and nothing beside. With --device emulated[:GPU] the runs of presets work where there is no GPU.
"""

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What such a machine has.
SYSTEM_LIBRARIES = re.compile(
    r"^(ld-linux|libc|libm|libdl|libpthread|librt|libresolv|libnsl|libutil|libanl|libcuda|libcudart|libcublas|libcublasLt)\.|^linux-vdso")

# Presets and what makes them small enough for a device that is emulated.
PRESETS = {
    "mlp": [],
    "fashion_cnn": ["training.batch_size=4"],
    "conv_sine": ["data.height=32", "data.width=32", "training.batch_size=1"],
    "resnet20": ["training.batch_size=2"],
    "gpt_mini": ["training.batch_size=1"],
    "autoencoder": ["training.batch_size=4"],
    "gru_text": ["training.batch_size=4"],
    "lstm_text": ["training.batch_size=4"],
    "transformer_seq2seq": ["training.batch_size=4"],
    "checkpointing": ["training.batch_size=4"],
}
PRECISIONS = ["fp32", "fp16", "bf16"]
# Data that a machine may lack, and what presets that read them train on there: the texts are packed, pictures are generated.
PICTURES = pathlib.Path(os.environ.get("ULPSCOPE_DATA", "/usr/share/datasets/fashion-mnist"))
TEXTS = pathlib.Path("/usr/share/common-licenses")
OF_PICTURES = {"fashion_cnn", "autoencoder"}
OF_TEXTS = {"gpt_mini", "gru_text", "lstm_text"}
LONG_RUNS = {("gpt_mini", "fp16"): 200}  # steps
STEPS = {"resnet20": 3, "gpt_mini": 3}  # of those that the CPU takes seconds for; others make 10
# Random sums for each instruction; and so many for each of Hopper's 24 a process makes and predicts in a second at least (measured on
# a CPU of 2024: 1.6 million, for one of them).
LONG_SUMS, SUMS_A_SECOND = 10**8, 50_000
# Seconds that a part may take at most, so that one that hangs leaves the others their time: a suite of tests, one probe, a side of a
# preset (and of a long run), the products of a step, the benchmark of kernels, and steps of a workload beside PyTorch's.
LIMITS = {"tests": 60, "probe": 60, "long probe": 600, "preset": 60, "long preset": 150, "products": 20, "measured": 40, "steps": 40}
STEP_WORKLOADS = ("mlp_big", "gpt_mini", "resnet20", "conv_sine_512", "gpt_large")
# The parts of a run, in the order of what matters most, and those that need a GPU.
PARTS = ("tests", "probe", "presets", "products", "measured", "steps", "long_probe")
OF_GPUS = ("tests", "steps", "long_probe")
KEPT_TEXT = 2000  # characters of what a test that failed said
# What a script ends with that says no more than its line: as ulpscope does.
USAGE, UNREADABLE, FAILED = 2, 3, 4


def refuse(code, text):
    print(f"gpu.py: {text}", file=sys.stderr)
    sys.exit(code)


def needed_libraries(program):
    """The shared libraries of a program that other machines may lack: name -> file."""
    found = {}
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.MULTILINE):
        if not SYSTEM_LIBRARIES.match(name):
            found[name] = path
    return found


def pack(folder, build, limit):
    paths = ("bin/ulpscope", "tests/cuda/cuda_tests", "bench/device_bench", "bench/step_bench")
    programs = [build / path for path in paths if (build / path).exists()]
    if not programs or programs[0].name != "ulpscope":
        refuse(USAGE, f"no program at '{build}/bin/ulpscope': expected a build with the preset cuda (./dev build cuda)")
    if folder.exists() and any(folder.iterdir()):
        refuse(USAGE, f"'{folder}' is not empty")
    for part in ("bin", "lib"):
        (folder / part).mkdir(parents=True)
    for program in programs:
        subprocess.run(["strip", "-o", folder / "bin" / program.name, program], check=True)
        for name, path in needed_libraries(program).items():
            if not (folder / "lib" / name).exists():
                shutil.copy(os.path.realpath(path), folder / "lib" / name)
    for file in (__file__, ROOT / "bench/compare_torch.py", ROOT / "bench/targets.py", ROOT / "bench/gpt_large.toml"):
        shutil.copy(file, folder)
    if TEXTS.exists():
        shutil.copytree(TEXTS, folder / "texts")
    if not limit:
        return
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(folder, "gpu")
        size = packed.tell()
    print(f"{folder}: {size / 2**20:.1f} MiB compressed")
    if size > limit << 20:
        refuse(FAILED, f"expected at most {limit} MiB")


def execute(command, environment, seconds):
    """The exit code, stdout and stderr; the code is None where that took too long, and nothing that it started runs on."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment,
                               start_new_session=True)
    try:
        output, error = process.communicate(timeout=seconds)
        return process.returncode, output, error
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            output, error = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # it hangs in the driver
            output, error = "", ""
        return None, output, error
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def why_of(code, error):
    """Why a program did not do what it was to: its last line, and the code that it ended with where that tells more."""
    return error if code in (None, USAGE, FAILED) and error else f"exit code {code}" + (f": {error}" if error else "")


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


class Bench:
    """The programs in a folder, a device, and the time that is left."""

    def __init__(self, folder, device, minutes):
        self.folder, self.device = folder, device
        self.end = time.monotonic() + 60 * minutes
        self.environment = dict(os.environ)
        wheels = [str(path) for site in sys.path for path in pathlib.Path(site).glob("nvidia/*/lib")]
        libraries = [str(folder / "lib"), *wheels, os.environ.get("LD_LIBRARY_PATH", "")]
        self.libraries = ":".join(path for path in libraries if path)  # of the programs, not of PyTorch
        if not TEXTS.exists():
            self.environment["ULPSCOPE_TEXTS"] = str(folder / "texts")

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def execute(self, part, command, more):
        """The exit code, stdout and the last line of stderr; the code is None where the time of the part was over. `more`: what is
        added to the environment."""
        limit = min(self.left(), LIMITS[part])
        code, output, error = execute(command, {**self.environment, **more}, limit)
        return code, output, f"not done after {limit:.0f} seconds" if code is None else last_line(error)

    def command(self, part, *arguments, program="ulpscope", **more):
        return self.execute(part, [self.folder / "bin" / program, *arguments], {"LD_LIBRARY_PATH": self.libraries, **more})

    def json_of(self, part, *arguments):
        code, output, error = self.command(part, *arguments, "--json")
        try:
            return code, json.loads(output)
        except ValueError:
            return code, {"error": why_of(code, error)}


def run_suite(bench, suite):
    """A suite of tests, in a process of its own, since an error of a GPU ends all that comes behind it in one."""
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "tests.json"
        code, output, error = bench.command("tests", f"--gtest_filter={suite}.*", f"--gtest_output=json:{report}", program="cuda_tests")
        if not report.exists():
            begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE) or [f"{suite}.*"]
            failed = re.findall(r"^\[  FAILED  \] (\S+)", output, re.MULTILINE)
            return {"run": len(begun), "skipped": 0, "failed": [{"test": name, "text": ""} for name in failed if name != begun[-1]] +
                    [{"test": begun[-1], "text": why_of(code, error)}]}
        told = json.loads(report.read_text())
    ends_badly = [] if code in (0, 1) else [{"test": f"{suite}.*", "text": why_of(code, error)}]
    tests = [test for each in told["testsuites"] for test in each["testsuite"]]
    return {"run": len(tests), "skipped": sum(test["result"] == "SKIPPED" for test in tests),
            "failed": [{"test": f"{test['classname']}.{test['name']}", "text": test["failures"][0]["failure"][:KEPT_TEXT]}
                       for test in tests if test.get("failures")] + ends_badly}


def run_tests(bench):
    """All tests but the probe, which is a part of its own. Of the first that fails in a suite also what it says alone, with a wait
    for each kernel, so that an error is told where it is made."""
    if not (bench.folder / "bin/cuda_tests").exists():
        return {"not_run": "no program cuda_tests"}
    code, output, error = bench.command("tests", "--gtest_list_tests", program="cuda_tests")
    suites = re.findall(r"^(\S+)\.(?:\s+#.*)?$", output, re.MULTILINE)
    if code != 0 or not suites:
        return {"not_run": why_of(code, error)}
    result = {"run": 0, "skipped": 0, "failed": []}
    for suite in suites:
        if suite == "CudaProbe":
            continue
        if bench.left() < 5:
            result["failed"].append({"test": f"{suite}.*", "text": "not run: the time was over"})
            continue
        told = run_suite(bench, suite)
        for failed in told["failed"][:1]:
            _, alone, error = bench.command("tests", f"--gtest_filter={failed['test']}", program="cuda_tests",
                                            CUDA_LAUNCH_BLOCKING="1")
            failed["alone"] = f"{alone}\n{error}".strip()[-KEPT_TEXT:]
        for key in result:
            result[key] += told[key]
    return result


def data_of(folder, preset):
    """What makes a preset train on this machine, where its data are not."""
    if preset in OF_PICTURES and not PICTURES.exists():
        return ["data.kind=random_classification", "data.shape=1,28,28"]
    if preset in OF_TEXTS and not TEXTS.exists():
        return [f"data.path={folder / 'texts'}"]
    return []


def settings_of(overrides):
    return [word for override in overrides for word in ("--set", override)]


def probe(bench, sums, processes=1):
    """So many random sums for each instruction, shared between processes that each draw others."""
    def part(seed):
        return bench.json_of("probe" if processes == 1 else "long probe", "gpu", "--device", bench.device, "--probe",
                             "--sums", str(sums // processes), "--seed", str(seed))

    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        done = list(pool.map(part, range(processes)))
    told = [each for code, each in done if code in (0, 1)]
    lost = [each.get("error") for code, each in done if code not in (0, 1)]
    if not told:
        return {"not_run": lost[0]}
    return {"sums": sums // processes * len(told), "processes": len(told), "explained": all(code in (0, None) for code, _ in done),
            "first": told[0], "not_explained": [each for code, each in done if code == 1], "lost": lost}


def compare_preset(bench, preset, precision, gpu, steps, tiny, scratch):
    """The preset with the sums of the GPU's matrix units, on the CPU and on the device: equal losses, weights and records?"""
    overrides = [f"arithmetic.accumulate={gpu}", f"training.steps={steps}", "training.evaluation=\"never\""]
    overrides += data_of(bench.folder, preset) + (PRESETS[preset] if tiny else [])
    result = {"preset": preset, "precision": precision, "steps": steps}
    part = "long preset" if (preset, precision) in LONG_RUNS else "preset"
    for side, device in (("cpu", "cpu"), ("device", bench.device)):
        trace = str(scratch / f"{side}.h5")
        code, told = bench.json_of(part, "train", preset, "--precision", precision, *settings_of(overrides), "--device", device,
                                   "-o", trace, "--force")
        if code != 0:
            return {**result, "not_run": f"{side}: {told.get('error', code)}"}
        result[side] = {"seconds": told["seconds"], "weights": told["weights_fingerprint"], "final_loss": told["final_loss"]}
    _, told = bench.json_of(part, "compare", str(scratch / "cpu.h5"), str(scratch / "device.h5"))
    result["losses_equal"] = any(finding["code"] == "compare.losses_equal" for finding in told.get("findings", []))
    result["weights_equal"] = result["cpu"]["weights"] == result["device"]["weights"]
    result["first_different_output"] = told.get("first_different_output")
    return result


def compare_products(bench, preset, precision, tiny):
    """Which products of a step of the preset the library gives the bits of the matrix units."""
    code, told = bench.json_of("products", "gpu", "--device", bench.device, "--products", preset, "--precision", precision, "--limit", "0",
                               *settings_of(data_of(bench.folder, preset) + (PRESETS[preset] if tiny else [])))
    return told if code == 0 else {"not_run": told.get("error", code)}


def need(folder, program):
    if not (folder / "bin" / program).is_file():
        refuse(USAGE, f"no program at '{folder}/bin/{program}': expected a folder that gpu.py pack made")


def run(folder, device, output, minutes, tiny, sums, presets, parts):
    need(folder, "ulpscope")
    if output.exists() and not output.is_file():
        refuse(USAGE, f"'{output}' is not a regular file, and is not replaced")
    bench = Bench(folder, device, minutes)
    result = {"date": datetime.date.today().isoformat(), "device": device, "parts": list(parts)}

    def keep():
        """In place of an earlier result, which is whole till then."""
        beside = output.with_name(output.name + ".new")
        beside.write_text(json.dumps(result, indent=1) + "\n")
        beside.replace(output)

    code, told = bench.json_of("probe", "gpu", "--device", device)
    result["gpu"] = told
    if code == 0 or (code != USAGE and not output.exists()):
        keep()
    if code != 0:
        refuse(USAGE if code == USAGE else FAILED, told.get("error", code))
    gpu = told["gpu"]
    is_emulated = device.startswith("emulated")
    processes = min(os.cpu_count() or 1, 10)

    def run_presets():
        rows = result["presets"] = []
        with tempfile.TemporaryDirectory() as scratch:
            for preset in presets:
                for precision in PRECISIONS:
                    if bench.left() < 5:
                        rows.append({"preset": preset, "precision": precision, "not_run": "the time was over"})
                    else:
                        steps = 2 if tiny else LONG_RUNS.get((preset, precision), STEPS.get(preset, 10))
                        rows.append(compare_preset(bench, preset, precision, gpu, steps, tiny, pathlib.Path(scratch)))
                    keep()
        return rows

    def run_products():
        rows = result["products"] = []
        for preset in presets:
            for precision in PRECISIONS[1:]:  # of FP32 factors none are predicted
                rows.append({"preset": preset, "precision": precision, **compare_products(bench, preset, precision, tiny)})
                keep()
        return rows

    def run_long_probe():
        # In a third of the time that is left at that rate: the processes share the GPU, and one that is not done has told nothing.
        long_sums = min(LONG_SUMS, int(bench.left() / 3 * SUMS_A_SECOND) * processes)
        return probe(bench, long_sums, processes) if long_sums > sums else {"not_run": "the time was over"}

    runs = {
        "tests": lambda: run_tests(bench),
        "probe": lambda: probe(bench, sums),
        "presets": run_presets,
        "products": run_products,
        "measured": lambda: measure(bench, tiny),
        "steps": lambda: compare_steps(bench),
        "long_probe": run_long_probe,
    }
    for part in parts:
        result[part] = {"not_run": "an emulated device"} if is_emulated and part in OF_GPUS else runs[part]()
        keep()
    print(table(result))
    return 0 if all(is_good(part, result[part]) for part in parts if not (is_emulated and part in OF_GPUS)) else 1


def is_good(part, told):
    """Whether a part was done, and came out as it has to."""
    rows = told if isinstance(told, list) else [told]
    if any("not_run" in row or "error" in row for row in rows):
        return False
    if part == "tests":
        return told["failed"] == []
    if part == "presets":
        return all(row["losses_equal"] and row["weights_equal"] for row in rows)
    return all(row.get("explained", True) for row in rows)


def lines_of_json(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def measure(bench, tiny):
    """What reading, statistics and products take."""
    if not (bench.folder / "bin/device_bench").exists():
        return {"not_run": "no program device_bench"}
    sizes = ["--elements", "5000", "--extent", "40"] if tiny else []
    code, output, error = bench.command("measured", bench.device, *sizes, program="device_bench")
    return lines_of_json(output) + ([] if code == 0 else [{"error": why_of(code, error)}])


def compare_steps(bench):
    """Steps of each workload beside PyTorch's, in one run. PyTorch does not get the libraries that are packed."""
    program = bench.folder / "bin/step_bench"
    if not program.exists():
        return {"not_run": "no program step_bench"}
    lines = []
    for name in STEP_WORKLOADS:
        command = [sys.executable, bench.folder / "compare_torch.py", name, "--rounds", "1", "--seconds", "0.5", "--turns", "2",
                   "--precision", "fp32", "--precision", "fp16", "--record", "off", "--record", "stats", "--program", program,
                   "--libraries", bench.libraries, "--device", "cuda"]
        code, output, error = bench.execute("steps", command, {})
        lines += lines_of_json(output)
        if code != 0:
            lines.append({"name": name, "error": why_of(code, error)})
    return lines


def sanitize(folder):
    need(folder, "cuda_tests")
    tool = shutil.which("compute-sanitizer")
    if not tool:
        refuse(FAILED, "no compute-sanitizer: it comes with the CUDA Toolkit")
    bench = Bench(folder, "cuda:0", 60)
    for check in ("memcheck", "racecheck", "synccheck"):
        done = subprocess.run([tool, "--tool", check, "--error-exitcode", "1", folder / "bin/cuda_tests", "--gtest_filter=Device*"],
                              env={**bench.environment, "LD_LIBRARY_PATH": bench.libraries})
        if done.returncode != 0:
            return 1
    return 0


def rows_of_steps(steps):
    """A row for each step of ours, with its time over PyTorch's and, where it is recorded, over that of the bare one."""
    rows = steps if isinstance(steps, list) else []
    times = {row["name"]: row["ms"] for row in rows if "ms" in row}
    lines = []
    for row in rows:
        if "error" in row:
            lines.append(f"| steps of {row['name']} | not measured: {row['error']} |")
        elif row["name"].startswith("ours/"):
            name, precision, record = row["name"].split("/")[1:]
            others = {"PyTorch's": f"torch/{name}/{precision}"}
            if record != "off":
                others["that without recording"] = f"ours/{name}/{precision}/off"
            ratios = [f"{row['ms'] / times[other]:.2f} of {what}" for what, other in others.items() if other in times]
            lines.append(f"| step of {name} in {precision}, recording {record} | {', '.join([format(row['ms'], '.3f') + ' ms', *ratios])} |")
    return lines


def row_of_probe(name, told):
    if "not_run" in told:
        return f"| {name} | not run: {told['not_run']} |"
    lost = f"; {len(told['lost'])} processes lost: {told['lost'][0]}" if told.get("lost") else ""
    explained = "explained" if told["explained"] else "not explained"
    return f"| {name} | {explained} by the rows of the GPU, {told['sums']} random sums for each instruction{lost} |"


def table(result):
    """Of all parts that were run; a run that was killed has the first ones."""
    def part(name):
        return result.get(name, {"not_run": "the time was over" if name in result.get("parts", PARTS) else "not asked for"})

    lines = [f"{result['date']}, {result['gpu'].get('description', result['device'])}", "", "| what | result |", "|---|---|"]
    tests = part("tests")
    passed = f"{tests['run'] - tests['skipped'] - len(tests['failed'])} passed" if "run" in tests else f"not run: {tests['not_run']}"
    more = f", {len(tests['failed'])} failed, {tests['skipped']} skipped" if "run" in tests else ""
    lines.append(f"| tests of devices | {passed}{more} |")
    for key, name in (("probe", "matrix units"), ("long_probe", "matrix units, for long")):
        lines.append(row_of_probe(name, part(key)))
    for row in result.get("products", []):
        told = f"not run: {row['not_run']}" if "not_run" in row else f"{row['equal']} of {row['predicted']} as predicted"
        lines.append(f"| products of the library in {row['preset']}, {row['precision']} | {told} |")
    measured = part("measured")
    for row in measured if isinstance(measured, list) else []:
        unit = next((unit for unit in ("gigabytes_per_second", "teraflops") if unit in row), None)
        told = f"not measured: {row['error']}" if "error" in row else f"{row[unit]:g} {unit.replace('_', ' ')}"
        lines.append(f"| {row.get('name', 'benchmark of kernels')} | {told} |")
    lines += rows_of_steps(part("steps"))
    columns = ("preset", "precision", "steps", "losses", "weights", "first output that differs", "step on the CPU over the device")
    lines += ["", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in result.get("presets", []):
        start = f"| {row['preset']} | {row['precision']} |"
        if "not_run" in row:
            lines.append(f"{start} - | not run: {row['not_run']} | | | |")
            continue
        equal = ["equal" if row[key] else "differ" for key in ("losses_equal", "weights_equal")]
        ratio = row["cpu"]["seconds"] / row["device"]["seconds"]
        different = row["first_different_output"]
        where = "none" if not different else different if isinstance(different, str) else json.dumps(different)
        lines.append(f"{start} {row['steps']} | {equal[0]} | {equal[1]} | {where} | {ratio:.2f} |")
    return "\n".join(lines)


def table_of(file):
    if file.exists() and not file.is_file():
        refuse(UNREADABLE, f"'{file}' is not a regular file")
    try:
        return table(json.loads(file.read_text()))
    except OSError as error:
        refuse(UNREADABLE, error)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        refuse(UNREADABLE, f"'{file}' is no whole result of a run ({type(error).__name__}: {error})")


def number(kind, least, expected):
    """What argparse makes of a text: a number that is `least` or more, and says what was expected where it is not."""
    def parse(text):
        try:
            parsed = kind(text)
        except ValueError:
            parsed = math.nan
        if not least <= parsed < math.inf:
            raise argparse.ArgumentTypeError(f"expected {expected}, got '{text}'")
        return parsed
    return parse


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with what it started
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packs = verbs.add_parser("pack")
    packs.add_argument("folder", type=pathlib.Path, help="what is collected there: a new folder, or an empty one")
    packs.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda",
                       help="the folder of the build whose programs are packed; build/cuda of this project")
    packs.add_argument("--limit", type=number(int, 0, "a whole number of MiB, 0 or more"), default=64,
                       help="MiB that it may have, compressed; 0: any; 64")
    runs = verbs.add_parser("run")
    sanitizes = verbs.add_parser("sanitize", description="Needs compute-sanitizer, of the CUDA Toolkit, in the path.")
    for each in (runs, sanitizes):
        each.add_argument("folder", type=pathlib.Path, nargs="?", default=pathlib.Path(__file__).resolve().parent,
                          help="one that gpu.py pack made; that of this script")
    runs.add_argument("--device", default="cuda:0", help="cuda:N, emulated or emulated:GPU; cuda:0")
    runs.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS), help="which of them; all")
    runs.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which, in the order that they are given in; all")
    runs.add_argument("--output", type=pathlib.Path, required=True, help="the JSON file, written after each part")
    runs.add_argument("--minutes", type=number(float, 0.1, "minutes, 0.1 or more"), default=9,
                      help="after which what is left is not run; 9")
    runs.add_argument("--tiny", action="store_true", help="presets in little, for a device that is emulated")
    runs.add_argument("--sums", type=number(int, 1, "a whole number, 1 or more"), default=10**6,
                      help="random ones of the first probe, for each instruction; 1000000")
    tables = verbs.add_parser("table")
    tables.add_argument("json", type=pathlib.Path, help="the file that a run wrote")
    arguments = parser.parse_args()
    if arguments.verb == "pack":
        return pack(arguments.folder, arguments.build, arguments.limit)
    if arguments.verb == "run":
        if len(set(arguments.parts)) < len(arguments.parts):
            runs.error("--parts: a part is named twice")
        return run(arguments.folder, arguments.device, arguments.output, arguments.minutes, arguments.tiny, arguments.sums,
                   arguments.presets, arguments.parts)
    if arguments.verb == "sanitize":
        return sanitize(arguments.folder)
    print(table_of(arguments.json))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        refuse(FAILED, error)
