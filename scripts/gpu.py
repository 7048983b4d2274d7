#!/usr/bin/env python3
"""What a GPU does, beside what the CPU predicts: one JSON file and a table of it.

    gpu.py pack FOLDER --build BUILD     collects programs and libraries for a machine that has a GPU's driver, the CUDA runtime and
                                         cuBLAS (of the toolkit, or of Python's packages) and nothing else of what they need
    gpu.py run [FOLDER] --output JSON    runs all that is in the folder, in the order of what matters most, until the time is over
    gpu.py sanitize [FOLDER]             compute-sanitizer over the tests of devices
    gpu.py table JSON                    the table for docs/gpu.md

Needs Python 3.9 and nothing beside. With --device emulated[:GPU] the runs of presets work where there is no GPU.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What such a machine has.
SYSTEM_LIBRARIES = re.compile(r"^(ld-linux|libc|libm|libdl|libpthread|librt|libcuda|libcudart|libcublas|libcublasLt)\.|^linux-vdso")

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
# Random sums for each instruction; and so many for each of Hopper's 24 a process makes and predicts in a second at least (measured on
# a CPU of 2024: 1.6 million, for one of them).
LONG_SUMS, SUMS_A_SECOND = 10**8, 50_000


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
        sys.exit(f"gpu.py: no program at '{build}/bin/ulpscope': expected a build with the preset cuda (./dev build cuda)")
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"gpu.py: '{folder}' is not empty")
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
        sys.exit(f"gpu.py: expected at most {limit} MiB")


class Bench:
    """The programs in a folder, a device, and the time that is left."""

    def __init__(self, folder, device, minutes):
        self.folder, self.device = folder, device
        self.end = time.monotonic() + 60 * minutes
        self.environment = dict(os.environ)
        wheels = [str(path) for site in sys.path for path in pathlib.Path(site).glob("nvidia/*/lib")]
        libraries = [str(folder / "lib"), *wheels, os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment["LD_LIBRARY_PATH"] = ":".join(path for path in libraries if path)
        if not TEXTS.exists():
            self.environment["ULPSCOPE_TEXTS"] = str(folder / "texts")

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def command(self, *arguments, program="ulpscope"):
        """The exit code, stdout and the last line of stderr; the code is None where the time was over."""
        try:
            done = subprocess.run([self.folder / "bin" / program, *arguments], capture_output=True, text=True, env=self.environment,
                                  timeout=self.left())
        except subprocess.TimeoutExpired:
            return None, "", "the time was over"
        lines = done.stderr.strip().splitlines()
        return done.returncode, done.stdout, lines[-1] if lines else ""

    def json_of(self, *arguments):
        code, output, error = self.command(*arguments, "--json")
        try:
            return code, json.loads(output)
        except ValueError:
            return code, {"error": error}


def run_tests(bench):
    if not (bench.folder / "bin/cuda_tests").exists():
        return {"not_run": "no program cuda_tests"}
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "tests.json"
        code, _, error = bench.command(f"--gtest_output=json:{report}", program="cuda_tests")
        if not report.exists():
            return {"not_run": error or f"exit code {code}"}
        told = json.loads(report.read_text())
    tests = [test for suite in told["testsuites"] for test in suite["testsuite"]]
    return {"run": len(tests), "skipped": sum(test["result"] == "SKIPPED" for test in tests),
            "failed": [f"{test['classname']}.{test['name']}" for test in tests if test.get("failures")]}


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
        return bench.json_of("gpu", "--device", bench.device, "--probe", "--sums", str(sums // processes), "--seed", str(seed))

    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        done = list(pool.map(part, range(processes)))
    codes, told = [code for code, _ in done], [each for _, each in done]
    if any(code not in (0, 1) for code in codes):
        return {"not_run": next(each.get("error") or "the time was over" for code, each in done if code not in (0, 1))}
    return {"sums": sums // processes * processes, "processes": processes, "explained": all(code == 0 for code in codes),
            "first": told[0], "not_explained": [each for code, each in done if code != 0]}


def compare_preset(bench, preset, precision, gpu, steps, tiny, scratch):
    """The preset with the sums of the GPU's matrix units, on the CPU and on the device: equal losses, weights and records?"""
    overrides = [f"arithmetic.accumulate={gpu}", f"training.steps={steps}", "training.evaluation=\"never\""]
    overrides += data_of(bench.folder, preset) + (PRESETS[preset] if tiny else [])
    result = {"preset": preset, "precision": precision, "steps": steps}
    for side, device in (("cpu", "cpu"), ("device", bench.device)):
        trace = str(scratch / f"{side}.h5")
        code, told = bench.json_of("train", preset, "--precision", precision, *settings_of(overrides), "--device", device, "-o", trace, "--force")
        if code != 0:
            return {**result, "not_run": f"{side}: {told.get('error', code)}"}
        result[side] = {"seconds": told["seconds"], "weights": told["weights_fingerprint"], "final_loss": told["final_loss"]}
    _, told = bench.json_of("compare", str(scratch / "cpu.h5"), str(scratch / "device.h5"))
    result["losses_equal"] = any(finding["code"] == "compare.losses_equal" for finding in told.get("findings", []))
    result["weights_equal"] = result["cpu"]["weights"] == result["device"]["weights"]
    result["first_different_output"] = told.get("first_different_output")
    return result


def compare_products(bench, preset, precision, tiny):
    """Which products of a step of the preset the library gives the bits of the matrix units."""
    code, told = bench.json_of("gpu", "--device", bench.device, "--products", preset, "--precision", precision, "--limit", "0",
                               *settings_of(data_of(bench.folder, preset) + (PRESETS[preset] if tiny else [])))
    return told if code == 0 else {"not_run": told.get("error", code)}


def run(folder, device, output, minutes, tiny, sums, presets):
    bench = Bench(folder, device, minutes)
    result = {"date": datetime.date.today().isoformat(), "device": device}

    def keep():
        """In place of an earlier result, which is whole till then."""
        beside = output.with_name(output.name + ".new")
        beside.write_text(json.dumps(result, indent=1) + "\n")
        beside.replace(output)

    code, told = bench.json_of("gpu", "--device", device)
    result["gpu"] = told
    if code == 0 or not output.exists():
        keep()
    if code != 0:
        print(f"gpu.py: {told.get('error', code)}", file=sys.stderr)
        return 4
    gpu = told["gpu"]
    is_emulated = device.startswith("emulated")
    processes = min(os.cpu_count() or 1, 10)
    result["tests"] = {"not_run": "an emulated device"} if is_emulated else run_tests(bench)
    keep()
    result["probe"] = probe(bench, sums)
    keep()
    result["measured"] = measure(bench, tiny)
    keep()
    result["steps"] = {"not_run": "an emulated device"} if is_emulated else compare_steps(bench)
    keep()
    result["products"] = []
    for preset in presets:
        for precision in PRECISIONS[1:]:  # of FP32 factors none are predicted
            result["products"].append({"preset": preset, "precision": precision, **compare_products(bench, preset, precision, tiny)})
            keep()
    # Of the time that is left, at most half.
    long_sums = min(LONG_SUMS, int(bench.left() / 2 * SUMS_A_SECOND) * processes)
    if is_emulated or long_sums <= sums:
        result["long_probe"] = {"not_run": "an emulated device" if is_emulated else "the time was over"}
    else:
        result["long_probe"] = probe(bench, long_sums, processes)
    keep()
    result["presets"] = []
    with tempfile.TemporaryDirectory() as scratch:
        for preset in presets:
            for precision in PRECISIONS:
                if bench.left() < 5:
                    result["presets"].append({"preset": preset, "precision": precision, "not_run": "the time was over"})
                else:
                    steps = 2 if tiny else LONG_RUNS.get((preset, precision), 10)
                    result["presets"].append(compare_preset(bench, preset, precision, gpu, steps, tiny, pathlib.Path(scratch)))
                keep()
    print(table(result))
    is_equal = all("not_run" not in row and row["losses_equal"] and row["weights_equal"] for row in result["presets"])
    is_tested = is_emulated or result["tests"].get("failed") == []
    is_explained = all(result[key].get("explained", "not_run" in result[key] and key == "long_probe") for key in ("probe", "long_probe"))
    return 0 if is_equal and is_tested and is_explained else 1


def lines_of_json(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def measure(bench, tiny):
    """What reading, statistics and products take."""
    if not (bench.folder / "bin/device_bench").exists():
        return {"not_run": "no program device_bench"}
    sizes = ["--elements", "5000", "--extent", "40"] if tiny else []
    code, output, error = bench.command(bench.device, *sizes, program="device_bench")
    return lines_of_json(output) if code == 0 else {"not_run": error or f"exit code {code}"}


def compare_steps(bench):
    """Steps beside PyTorch's, in one run."""
    program = bench.folder / "bin/step_bench"
    if not program.exists():
        return {"not_run": "no program step_bench"}
    command = [sys.executable, bench.folder / "compare_torch.py", "mlp_big", "conv_sine_512", "gpt_mini", "resnet20", "gpt_large",
               "--rounds", "1", "--seconds", "0.5", "--turns", "2", "--precision", "fp32", "--precision", "fp16", "--record", "off",
               "--record", "stats", "--program", program, "--device", "cuda"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=bench.environment, timeout=bench.left())
    except subprocess.TimeoutExpired as over:
        return lines_of_json((over.stdout or b"").decode()) or {"not_run": "the time was over"}
    lines = done.stderr.strip().splitlines()
    return lines_of_json(done.stdout) or {"not_run": lines[-1] if lines else f"exit code {done.returncode}"}


def sanitize(folder):
    tool = shutil.which("compute-sanitizer")
    if not tool:
        sys.exit("gpu.py: no compute-sanitizer: it comes with the CUDA Toolkit")
    bench = Bench(folder, "cuda:0", 60)
    for check in ("memcheck", "racecheck", "synccheck"):
        done = subprocess.run([tool, "--tool", check, "--error-exitcode", "1", folder / "bin/cuda_tests", "--gtest_filter=Device*"],
                              env=bench.environment)
        if done.returncode != 0:
            return 1
    return 0


def table(result):
    lines = [f"{result['date']}, {result['gpu'].get('description', result['device'])}", "", "| what | result |", "|---|---|"]
    tests = result["tests"]
    lines.append("| tests of devices | " + (f"not run: {tests['not_run']}" if "not_run" in tests else
                 f"{tests['run'] - tests['skipped'] - len(tests['failed'])} passed, {len(tests['failed'])} failed, {tests['skipped']} skipped") + " |")
    for key, name in (("probe", "matrix units"), ("long_probe", "matrix units, for long")):
        told = result[key]
        lines.append(f"| {name} | " + (f"not run: {told['not_run']}" if "not_run" in told else
                     f"{'explained' if told['explained'] else 'not explained'} by the rows of the GPU, {told['sums']} random sums for each instruction") + " |")
    for row in result["products"]:
        told = f"not run: {row['not_run']}" if "not_run" in row else f"{row['equal']} of {row['predicted']} as predicted"
        lines.append(f"| products of the library in {row['preset']}, {row['precision']} | {told} |")
    lines += ["",
             "| preset | precision | steps | losses | weights | first output that differs | step on the CPU over the device |", "|---|---|---|---|---|---|---|"]
    for row in result["presets"]:
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


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packs = verbs.add_parser("pack")
    packs.add_argument("folder", type=pathlib.Path)
    packs.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda")
    packs.add_argument("--limit", type=int, default=64, help="MiB that it may have, compressed; 0: any")
    runs = verbs.add_parser("run")
    sanitizes = verbs.add_parser("sanitize")
    for each in (runs, sanitizes):
        each.add_argument("folder", type=pathlib.Path, nargs="?", default=pathlib.Path(__file__).resolve().parent)
    runs.add_argument("--device", default="cuda:0", help="cuda:N, emulated or emulated:GPU; cuda:0")
    runs.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    runs.add_argument("--output", type=pathlib.Path, required=True, help="the JSON file, written after each part")
    runs.add_argument("--minutes", type=float, default=9, help="after which what is left is not run; 9")
    runs.add_argument("--tiny", action="store_true", help="presets in little, for a device that is emulated")
    runs.add_argument("--sums", type=positive, default=10**6, help="random ones of the first probe, for each instruction; 1000000")
    tables = verbs.add_parser("table")
    tables.add_argument("json", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.verb == "pack":
        return pack(arguments.folder, arguments.build, arguments.limit)
    if arguments.verb == "run":
        return run(arguments.folder, arguments.device, arguments.output, arguments.minutes, arguments.tiny, arguments.sums,
                   arguments.presets)
    if arguments.verb == "sanitize":
        return sanitize(arguments.folder)
    try:
        print(table(json.loads(arguments.json.read_text())))
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"gpu.py: '{arguments.json}' is no whole result of a run ({type(error).__name__}: {error})")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(f"gpu.py: {error}")
