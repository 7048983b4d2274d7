#!/usr/bin/env python3
"""Runs ulpscope on files that are damaged in their structure, and tells how it fails.

usage: fuzz.py PROGRAM [--cases N] [--seed S] [--only KIND] [--first CASE] [--keep FOLDER]

Small files that the program or this script made are valid: traces, checkpoints and capsules, experiments (toml) and data. Each case changes one of
them, in its values, extents, types, attributes, links, keys or numbers, behind the checksums where there are some, and now and then in
its bytes, and runs the commands that read such a file. A failure is

- a signal, a report of a sanitizer, more processor time or memory than limited;
- an exit code beyond 5; an error that is not the one last line on stderr;
- success with what cannot be: JSON that is none, counts below 0, shares beyond 0 to 1, or NaN where neither can be;
- a file left beside its target (.new-).

A case depends on the seed and its number alone: --first 17 --cases 1 repeats it. Failing files stay in --keep. Exits with 1 where a
case failed, with 77 without h5py.
"""

import argparse
import collections
import gzip
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import zlib

try:
    import h5py
    import numpy
except ImportError:
    print("fuzz.py needs h5py and numpy")
    sys.exit(77)

CPU_SECONDS, MEMORY = 20, 2 << 30
EXPERIMENT = """name = "tiny"
precision = "fp16"
[data]
kind = "random_classification"
shape = [8]
classes = 4
train_size = 64
test_size = 16
[model]
layers = [
  { type = "linear", out_features = 6 }, { type = "layer_norm" }, { type = "relu" }, { type = "linear", out_features = 6 },
  { type = "batch_norm" }, { type = "gelu" }, { type = "linear", name = "head", out_features = 4 },
]
[optimizer]
type = "adam"
learning_rate = 0.01
[training]
batch_size = 16
steps = 6
[scaler]
initial = 256.0
"""
DATA_EXPERIMENT = """precision = "fp32"
[model]
layers = [{ type = "flatten" }, { type = "linear", out_features = 3 }]
[data]
classes = 3
test_share = 0.25
%s
[optimizer]
type = "sgd"
learning_rate = 0.1
[training]
batch_size = 4
steps = 3
[recording]
level = "off"
"""

# ---- the program, and what is wrong with a run of it


class Program:
    def __init__(self, path):
        self.path = str(pathlib.Path(path).resolve())
        self.sanitized = b"__asan_init" in pathlib.Path(self.path).read_bytes()
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="exitcode=99:allocator_may_return_null=1",
                                UBSAN_OPTIONS="exitcode=99:print_stacktrace=1", LC_ALL="C")

    def limit(self):
        seconds = CPU_SECONDS * (4 if self.sanitized else 1)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self.sanitized:
            resource.setrlimit(resource.RLIMIT_AS, (2 * MEMORY, 2 * MEMORY))

    def run(self, words, folder):
        """Exit code, stdout, stderr, and the most memory that was in use, in bytes."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([self.path, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       preexec_fn=self.limit, env=self.environment)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            return process.returncode, out.read(), err.read(), usage.ru_maxrss * 1024


def refuse_constant(name):
    raise ValueError(f"{name} in JSON")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number_of(value):
    """What a cell stands for: JSON has no infinities, so they are texts."""
    return float(value) if value in ("Infinity", "-Infinity") else value


def wrong_value(value, unit):
    if value is None:
        return None
    if isinstance(value, dict) and set(value) == {"lower", "upper"}:
        lower, upper = number_of(value["lower"]), number_of(value["upper"])
        return wrong_value(lower, unit) or wrong_value(upper, unit) or (f"bounds of {value}" if not lower <= upper else None)
    if unit == "count" and not (is_number(value) and value >= 0 and (value == float("inf") or value == int(value))):
        return f"a count of {value}"
    if unit == "share" and not (is_number(value) and -1e-9 <= value <= 1 + 1e-9):
        return f"a share of {value}"
    return None


def wrong_report(report):
    for table in report.get("tables", []):
        units = {column["name"]: column["unit"] for column in table["columns"]}
        for row in table["rows"]:
            for name, value in row["values"].items():
                if found := wrong_value(value, units.get(name)):
                    return f"{table['name']}.{name}: {found}"
    for finding in report.get("findings", []):
        for evidence in finding["evidence"]:
            for name, value in evidence["values"].items():
                if found := wrong_value(value["value"], value["unit"]):
                    return f"{finding['code']}.{name}: {found}"
    for name in ("steps", "skipped_steps", "tensor_rows", "tensors", "ops", "events", "rows", "mismatches"):
        if name in report and (found := wrong_value(report[name], "count")):
            return f"{name}: {found}"
    return None


ROW_COUNTS = ("nan", "positive_infinity", "negative_infinity", "zeros", "negatives", "flushed", "subnormal", "overflowed", "saturated")


def wrong_row(row):
    for name in ROW_COUNTS:
        value = row.get(name)
        if value is not None and not (is_number(value) and 0 <= value <= row.get("count", value)):
            return f"{name} is {value} of {row.get('count')}"
    return None


def wrong_output(words, out):
    if "--json" not in words:
        try:
            out.decode()
        except UnicodeDecodeError:
            return "stdout is not UTF-8"
        return None
    try:
        parsed = json.loads(out.decode(), parse_constant=refuse_constant)
    except ValueError as error:
        return f"no JSON: {error}"
    if isinstance(parsed, list):
        return next((found for row in parsed if (found := wrong_row(row))), None)
    return wrong_report(parsed)


def wrong_run(program, words, folder):
    """What is wrong with a run, or None, and its exit code."""
    code, out, err, memory = program.run(words, folder)
    text = err.decode(errors="replace")
    lines = text.splitlines()
    if code == 99 or "Sanitizer" in text or "runtime error:" in text:
        report = next((line for line in lines if "ERROR:" in line or "runtime error:" in line), lines[:1])
        return f"sanitizer: {report}", code
    if code < 0:
        return f"signal {-code}", code
    if code > 5:
        return f"exit code {code}: {lines[-1:]}", code
    if memory > MEMORY and not program.sanitized:
        return f"{memory >> 20} MiB of memory", code
    left = [name for name in os.listdir(folder) if ".new-" in name]
    if left:
        return f"left {left[0]}", code
    errors = [line for line in lines if line.startswith("ulpscope: ") and not line.startswith("ulpscope: warning: ")]
    if code >= 2:
        if not lines or not lines[-1].startswith("ulpscope: ") or "internal error" in lines[-1] or "out of memory" in lines[-1]:
            return f"exit code {code} and the message {lines[-1:]}", code
        if words[0] != "train" and len(errors) != 1:
            return f"{len(errors)} lines of errors: {errors[:3]}", code
        try:
            err.decode()
        except UnicodeDecodeError:
            return "stderr is not UTF-8", code
        return None, code
    return wrong_output(words, out), code


# ---- changes of HDF5 files


def special_values(r, dtype, old):
    if dtype.kind in "iu":
        info = numpy.iinfo(dtype)
        return r.choice([0, 1, info.max, info.min, info.max - 1, int(old) ^ (1 << r.randrange(info.bits)), r.randint(info.min, info.max),
                         min(info.max, int(old) + 1), max(info.min, int(old) - 1), info.max // 2 + 1])
    if dtype.kind == "f":
        return r.choice([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1e308, 1e-310, float(old) * -1,
                         float(old) * 2, 1e39, 2.0**r.randint(-160, 160)])
    return old


def datasets_of(file):
    found = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found


def groups_of(file):
    found = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Group) else None)
    return found


def pick_dataset(r, file, filled=True):
    names = datasets_of(file)
    # A table first, so that those with many columns do not take all.
    folder = r.choice(sorted({name.rpartition("/")[0] for name in names}))
    inside = [name for name in names if name.rpartition("/")[0] == folder and (not filled or file[name].size)]
    return r.choice(inside or [name for name in names if file[name].size])


def change_values(r, file):
    dataset = file[pick_dataset(r, file)]
    values = dataset[()]
    flat = values.reshape(-1)
    for _ in range(r.choice([1, 1, 2, flat.size])):
        at = r.randrange(flat.size)
        flat[at] = special_values(r, flat.dtype, flat[at])
    dataset[...] = flat.reshape(dataset.shape)


def reorder(r, file):
    dataset = file[pick_dataset(r, file)]
    values = dataset[()]
    if values.ndim == 0 or len(values) < 2:
        return
    a, b = sorted(r.sample(range(len(values)), 2))
    changed = [lambda: values[::-1], lambda: numpy.roll(values, 1, 0), lambda: numpy.sort(values, 0)[::-1],
               lambda: numpy.repeat(values[a:a + 1], len(values), 0), lambda: numpy.concatenate([values[:a], values[b:], values[a:b]])]
    dataset[...] = r.choice(changed)()


def change_extent(r, file):
    name = pick_dataset(r, file, filled=False)
    names = [name] if r.random() < 0.7 else [other for other in datasets_of(file) if other.rpartition("/")[0] == name.rpartition("/")[0]]
    rows = file[name].shape[0] if file[name].shape else 0
    extent = r.choice([0, 1, rows - 1, rows + 1, 2 * rows, 10**6, 2**31, 2**40, 2**62])
    for each in names:
        if file[each].maxshape and file[each].maxshape[0] is None:
            file[each].resize(max(0, extent), axis=0)


def change_type(r, file):
    name = pick_dataset(r, file, filled=False)
    old = file[name]
    values, attributes = old[()], dict(old.attrs)
    del file[name]
    kind = r.choice(["u1", "i1", "u4", "i8", "f4", "f8", ">f8", "S4", "text", "scalar", "2d", "empty", "compound", "sparse"])
    if kind == "text":
        file.create_dataset(name, data=["a", "b"], dtype=h5py.string_dtype())
    elif kind == "scalar":
        file.create_dataset(name, data=3.0)
    elif kind == "2d":
        file.create_dataset(name, data=numpy.stack([values.reshape(-1)] * 2) if values.size else numpy.zeros((2, 0)))
    elif kind == "empty":
        file.create_dataset(name, data=h5py.Empty("f4"))
    elif kind == "compound":
        file.create_dataset(name, data=numpy.zeros(3, [("x", "f4"), ("y", "i4")]))
    elif kind == "sparse":
        file.create_dataset(name, (2**r.randint(8, 50),) + values.shape[1:], values.dtype, chunks=(64,) + (values.shape[1:] or ()))
    else:
        with numpy.errstate(all="ignore"):
            file.create_dataset(name, data=values.astype(kind), maxshape=(None,) + values.shape[1:] if values.shape else None)
    for key, value in attributes.items():
        file[name].attrs[key] = value


def change_links(r, file):
    names = datasets_of(file) + groups_of(file)
    name = r.choice(names)
    how = r.choice(["remove", "soft", "loop", "external", "other", "rename", "more", "group"])
    if how == "more":
        file.create_dataset(r.choice(["a", "stats/a", "parameters/a", "b\udcff"]).encode("utf-8", "surrogateescape"), data=[1.0, 2.0])
        return
    if how == "rename":
        file.move(name, name + r.choice(["x", "%", " ", "é"]))
        return
    other = r.choice(names)
    if how == "other" and other != name:
        target = file[other]
        del file[name]
        if other in file and not name.startswith(other + "/"):
            file[name] = target
        return
    del file[name]
    if how == "soft":
        file[name] = h5py.SoftLink("/" + other)
    elif how == "loop":
        file[name] = h5py.SoftLink("/" + name)
    elif how == "external":
        file[name] = h5py.ExternalLink("elsewhere.h5", "/" + other)
    elif how == "group":
        group = file.create_group(name)
        for i in range(r.choice([0, 3, 30])):
            group.create_dataset(str(i), data=[1.0])


def change_attribute(r, file):
    places = [(item, key) for name in ["/", *datasets_of(file), *groups_of(file)] for item in [file[name]] for key in item.attrs]
    if not places:
        return
    # Those of few objects count as much as those of all columns.
    item, key = r.choice(places if r.random() < 0.5 else [(item, key) for item, key in places if item.name.count("/") == 1] or places)
    old = item.attrs[key]
    how = r.randrange(5)
    if how == 0:
        del item.attrs[key]
    elif how == 1 and isinstance(old, numpy.generic) and old.dtype.kind in "iuf":
        item.attrs.create(key, special_values(r, old.dtype, old), dtype=old.dtype)
    elif isinstance(old, (bytes, str)) and how < 4:
        text = old if isinstance(old, bytes) else old.encode()
        item.attrs[key] = numpy.bytes_(change_text(r, text) or b"x")
    else:
        item.attrs[key] = r.choice([0, -1, 2**63, 1.5, float("nan"), "text", numpy.zeros(3), numpy.bytes_(b"\xff\xfe"), 2**31, h5py.Empty("f4")])


def change_record(r, file):
    """A commit record of a trace that claims something else, with a checksum that fits."""
    if "commit" not in file:
        return change_values(r, file)
    records = file["commit"][()]
    for record in records:
        at = r.randrange(len(record) - 1)
        record[at] = r.choice([0, 1, int(record[at]) + 1, max(0, int(record[at]) - 1), 2 * int(record[at]) % 2**63, 2**22, 2**30, 2**40,
                               2**63, 2**64 - 1])
        record[-1] = zlib.crc32(record[:-1].tobytes())
    file["commit"][...] = records
    return None


def change_hdf5(r, path):
    if r.random() < 0.12:
        return change_bytes(r, path)
    with h5py.File(path, "r+", libver=r.choice(["latest", "earliest"])) as file:
        for _ in range(r.choice([1, 1, 1, 2, 4])):
            r.choice([change_values, change_values, change_values, reorder, change_extent, change_type, change_links, change_attribute,
                      change_record])(r, file)
    return None


# ---- changes of bytes and texts


def change_bytes(r, path):
    data = bytearray(path.read_bytes())
    for _ in range(r.choice([1, 1, 2, 8])):
        how = r.randrange(4)
        at = r.randrange(len(data)) if data else 0
        if how == 0 and len(data) > 1:
            del data[r.randrange(1, len(data)):]
        elif how == 1:
            data[at:at] = bytes(r.randrange(256) for _ in range(r.choice([1, 8, 300])))
        elif data:
            # Headers are at the front.
            at = min(at, r.choice([len(data) - 1, 15, 127]))
            data[at] = r.choice([0, 255, data[at] ^ (1 << r.randrange(8)), r.randrange(256)])
    path.write_bytes(data)


NUMBERS = [b"0", b"-1", b"1", b"1e400", b"nan", b"inf", b"-inf", b"9223372036854775807", b"9223372036854775808", b"1099511627776",
           b"0.1", b"5e-324", b"4294967296", b"true", b'"x"', b"[]", b"{}", b"2147483648", b"-9223372036854775808", b"65536", b"1e9"]


def change_text(r, text):
    """Another number, a word twice or not at all, lines elsewhere, deep nesting, bytes that are no text."""
    lines = text.split(b"\n")
    at = r.randrange(len(lines))
    how = r.randrange(8)
    if how <= 2:
        pieces = lines[at].replace(b",", b" , ").replace(b"]", b" ] ").replace(b"[", b" [ ").split(b" ")
        places = [i for i, piece in enumerate(pieces) if piece[:1].isdigit() or piece in (b"true", b"false") or piece[:1] == b'"']
        if places:
            pieces[r.choice(places)] = r.choice(NUMBERS)
        lines[at] = b" ".join(pieces)
    elif how == 3:
        del lines[at]
    elif how == 4:
        lines.insert(r.randrange(len(lines) + 1), lines[at])
    elif how == 5:
        deep = r.choice([50, 99, 101, 3000, 40000])
        lines.insert(at, r.choice([b"a" + b".a" * deep + b" = 1", b"[a" + b".a" * deep + b"]", b"a = " + b"[" * deep, b"a = " + b"{a=" * deep,
                                   b"x," * deep, b"[[a" + b".a" * deep + b"]]"]))
    elif how == 6:
        place = r.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + r.choice([b"\xff", b"\x00", b"\xed\xa0\x80", b'"', b"'", b"[", b"}", b"\r", b"\xc3", b"=", b"#"]) + lines[at][place:]
    else:
        lines[at] = lines[at] * r.choice([2, 100])
    return b"\n".join(lines)


def change_text_file(r, path):
    text = path.read_bytes()
    packed = text[:2] == b"\x1f\x8b"
    if packed:
        text = gzip.decompress(text)
    for _ in range(r.choice([1, 1, 2, 3])):
        text = change_text(r, text)
    path.write_bytes(gzip.compress(text) if packed else text)


def change_array_file(r, path):
    """npy and idx: shapes and types stand in the header, as text or as numbers of four bytes."""
    data = bytearray(path.read_bytes())
    how = r.randrange(3)
    if how == 0:
        return change_bytes(r, path)
    if data[:6] == b"\x93NUMPY":
        end = 10 + int.from_bytes(data[8:10], "little")
        header = bytes(data[10:end])
        old, new = r.choice([(b"(24,", b"(%d," % r.choice([0, 1, 23, 25, 2**40, 2**62, -1])), (b"2)", b"%d)" % r.choice([0, 3, 2**40, -5])),
                             (b"<f4", r.choice([b"<f8", b"<i8", b"|O", b">f4", b"<c8", b"|S4", b"|V0", b"<U1", b"<f2", b"|b1"])),
                             (b"False", b"True"), (b"shape", b"shapes"), (b"}", b", 'x': 1}"), (b"(", b"(" * 5000)])
        header = header.replace(old, new, 1)
        data[8:end] = min(len(header), 65535).to_bytes(2, "little") + header
    else:
        field = r.randrange(4, 16, 4) if len(data) > 16 else 4
        data[field:field + 4] = r.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 25]).to_bytes(4, "big")
        if r.random() < 0.3:
            data[r.randrange(2, 4)] = r.randrange(256)
    path.write_bytes(data)
    return None


# ---- the valid files and the commands that read them


class Traces:
    """Of level full and of level stats in FP16, and one of FP32."""

    def __init__(self, program, folder):
        self.files = []
        (folder / "tiny.toml").write_text(EXPERIMENT)
        for name, options in (("full", ["--record", "full"]), ("stats", ["--record", "stats,bits", "--precision", "bf16"]),
                              ("overflow", ["--record", "stats", "--set", "scaler.initial=1e30"])):
            made(program, ["train", "tiny.toml", "--steps", "4", "-o", f"{name}.h5", *options], folder)
            self.files.append(folder / f"{name}.h5")
        shutil.copy(self.files[0], folder / "other.h5")
        self.beside = {"other.h5": folder / "other.h5"}

    change = staticmethod(change_hdf5)

    @staticmethod
    def commands(r, name):
        table = r.choice(["run", "settings", "sources", "products", "ops", "tensors", "edges", "steps", "batches", "stats", "parameters", "fingerprints", "events",
                          "captures", "samples", "measures", "sums", "bits"])
        return [["info", name, "--json"], ["report", name, "--json"], ["ranges", name, "--json", "--limit", "0"], ["scale", name, "--json"],
                ["whatif", name, "--json", "--limit", "0", "--format", "fp16,e4m3", "--scaling", "dynamic"],
                ["updates", name, "--json", "--limit", "0"], ["compare", name, "other.h5", "--json"], ["export", name, "--table", "stats", "--json"], ["report", name], ["ranges", name],
                ["export", name, "--table", table, "--json"], ["export", name, "--table", table, "-o", "table.csv", "--force"],
                ["recover", name, "recovered.h5", "--force"]]


class Checkpoints:
    def __init__(self, program, folder):
        self.files, self.beside = [], {}
        (folder / "tiny.toml").write_text(EXPERIMENT)
        for name, options in (("adam", []), ("fp32", ["--precision", "fp32"]), ("sgd", ["--set", "optimizer.type=sgd"])):
            made(program, ["train", "tiny.toml", "--steps", "2", "--record", "off", "--checkpoint", f"{name}.ckpt", *options], folder)
            self.files.append(folder / f"{name}.ckpt")
        for name, options in (("fp16", []), ("fp8", ["--precision", "fp8", "--set", "fp8.recipe=delayed"]), ("kept", ["--keep-samples"]),
                              ("failing", ["--keep-samples", "--set", "scaler.initial=2^60", "--set", "scaler.dynamic=false"])):
            made(program, ["train", "tiny.toml", "--steps", "6", "--threads", "1", "-o", "run.h5", "--force", "--capsule", f"{name}.capsule",
                           "--capsule-on", "step=5", "--keep-steps", "2", *options], folder)
            self.files.append(folder / f"{name}.capsule")
        made(program, ["replay", "failing.capsule", "--minimize", "smallest.capsule"], folder)
        self.files.append(folder / "smallest.capsule")
        self.beside["run.h5"] = folder / "run.h5"

    @staticmethod
    def change(r, path):
        if r.random() < 0.25:  # the experiment within
            with h5py.File(path, "r+") as file:
                if "experiment" in file:
                    text = change_text(r, file["experiment"][()].tobytes())
                    del file["experiment"]
                    file["experiment"] = numpy.frombuffer(text or b"\n", "u1")
            return None
        return change_hdf5(r, path)

    @staticmethod
    def commands(_, name):
        if name.endswith(".capsule"):
            return [["replay", name, "--json"], ["replay", name, "--against", "run.h5", "--json"],
                    ["replay", name, "--as", "fp32", "-o", "replay.h5", "--force"], ["replay", name, "--scale", "2^4", "--json"],
                    ["replay", name, "--as", "fp64", "--json"], ["replay", name, "--minimize", "small.capsule", "--budget", "1", "--force"],
                    ["train", "--resume", name, "--steps", "6", "--record", "off", "--json"]]
        return [["train", "--resume", name, "--steps", "3", "--record", "off", "--json"],
                ["train", "--resume", name, "--steps", "3", "--record", "off", "--checkpoint", "next.ckpt", "--save-weights", "next.safetensors",
                 "--force", "--json"]]


class Experiments:
    def __init__(self, program, folder):
        del program
        self.files, self.beside = [folder / "tiny.toml"], {}
        self.files[0].write_text(EXPERIMENT + "[recording]\nlevel = \"stats\"\n[autocast.ops]\nlayer_norm = \"fp16\"\n")
        others = {"sequence": '[data]\nkind = "copy_task"\nclasses = 4\ncontext = 3\ntrain_size = 8\n[model]\nlayers = [\n'
                              '{ type = "embedding", embedding_dim = 4 },\n{ type = "linear", out_features = 4 },\n]\n',
                  "image": '[data]\nkind = "random_classification"\nshape = [1, 6, 6]\ntrain_size = 8\n[model]\nlayers = [\n'
                           '{ type = "conv2d", out_channels = 2, kernel_size = 3 },\n{ type = "max_pool2d", kernel_size = 2 },\n'
                           '{ type = "residual", layers = [{ type = "relu" }] },\n{ type = "flatten" },\n{ type = "linear", out_features = 10 },\n]\n'}
        for name, text in others.items():
            path = folder / f"{name}.toml"
            path.write_text(text + '[training]\nbatch_size = 4\nsteps = 2\n[optimizer]\ntype = "sgd"\nmomentum = 0.5\n')
            self.files.append(path)

    change = staticmethod(change_text_file)

    @staticmethod
    def commands(r, name):
        setting = change_text(r, r.choice([b"optimizer.learning_rate=0.1", b"training.batch_size=2", b"name=x", b"model.preset=mlp",
                                           b"autocast.ops.linear=fp32"])).replace(b"\0", b"")[:100000]
        return [["train", name, "--steps", "2", "-o", "run.h5", "--force", "--json"],
                ["train", "good.toml", "--steps", "1", "--record", "off", "--set", os.fsdecode(setting)]]


class Data:
    """Data sets in every kind of file, and rows for dot."""

    def __init__(self, program, folder):
        del program
        self.beside, self.settings = {}, {}
        random_numbers = numpy.random.default_rng(1)
        inputs, labels = random_numbers.normal(size=(24, 2)).astype("f4"), (numpy.arange(24) % 3).astype("u1")
        numpy.save(folder / "inputs.npy", inputs)
        numpy.save(folder / "labels.npy", labels.astype("i8"))
        rows = "\n".join(f"{a:.3},{b:.3},{label}" for (a, b), label in zip(inputs, labels))
        (folder / "rows.csv").write_text("a,b,label\n" + rows + "\n")
        (folder / "rows.csv.gz").write_bytes(gzip.compress(("a,b,label\n" + rows + "\n").encode()))
        (folder / "images").write_bytes(b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (24, 2, 2)) + bytes(range(96)))
        (folder / "image_labels").write_bytes(b"\0\0\x08\x01" + (24).to_bytes(4, "big") + labels.tobytes())
        for libver in ("earliest", "latest"):
            with h5py.File(folder / f"{libver}.h5", "w", libver=libver) as file:
                file.create_dataset("inputs", data=inputs, chunks=(5, 2), compression="gzip", maxshape=(None, 2))
                file.create_dataset("targets", data=labels)
                for i in range(12):
                    file.create_dataset(f"more/{i}", data=[i])
        with h5py.File(folder / "dot.h5", "w") as file:
            for name, shape in (("a", (6, 16)), ("b", (6, 16)), ("c", (6,)), ("d", (6,))):
                file.create_dataset(name, data=random_numbers.integers(-4, 4, shape).astype("f4"))
        patterns = random_numbers.integers(-4, 4, (6, 9)).astype("f4").view("u4")
        (folder / "dot.csv").write_text("\n".join(",".join(f"{x:08x}" for x in row) for row in patterns) + "\n")
        kinds = {"inputs.npy": 'kind = "npy"\ninputs = "inputs.npy"\ntargets = "labels.npy"',
                 "labels.npy": 'kind = "npy"\ninputs = "inputs.npy"\ntargets = "labels.npy"',
                 "rows.csv": 'kind = "csv"\npath = "rows.csv"', "rows.csv.gz": 'kind = "csv"\npath = "rows.csv.gz"',
                 "images": 'kind = "idx"\ntrain_images = "images"\ntrain_labels = "image_labels"',
                 "image_labels": 'kind = "idx"\ntrain_images = "images"\ntrain_labels = "image_labels"',
                 "earliest.h5": 'kind = "hdf5"\npath = "earliest.h5"', "latest.h5": 'kind = "hdf5"\npath = "latest.h5"'}
        for name, text in kinds.items():
            (folder / f"{name}.toml").write_text(DATA_EXPERIMENT % text)
        for path in folder.iterdir():
            self.beside[path.name] = path
        self.files = [folder / name for name in [*kinds, "dot.h5", "dot.csv"]]

    @staticmethod
    def change(r, path):
        if path.suffix == ".h5":
            return change_hdf5(r, path)
        if ".csv" in path.name:
            return change_text_file(r, path) if r.random() < 0.8 else change_bytes(r, path)
        return change_array_file(r, path)

    @staticmethod
    def commands(r, name):
        if name.startswith("dot"):
            return [["dot", name, "--gpu", r.choice(["a100", "h100", "v100"]), "--input", "fp16", "--json"]]
        return [["train", f"{name}.toml", "--json"]]


KINDS = {"traces": Traces, "checkpoints": Checkpoints, "tomls": Experiments, "data": Data}
FLOATS = [b"0.1", b"1e400", b"nan", b"-inf", b"0x1p-1074", b"0x", b"1e-5000", b"1" * 5000, b"0x1.8p", b"\xff", b"-0", b"0b1", b"1e99999999999", b"5e-324"]


def made(program, words, folder):
    code, _, err, _ = program.run(words, folder)
    if code != 0:
        sys.exit(f"{' '.join(words)} exits with {code}: {err.decode(errors='replace')[-400:]}")


def run_case(program, kind, source, seed, number, folder):
    """(what is wrong, words) of the case, or None; and the exit codes."""
    r = random.Random(f"{seed} {number}")
    path = r.choice(source.files)
    for name, original in source.beside.items():
        shutil.copy(original, folder / name)
    changed = folder / path.name
    shutil.copy(path, changed)
    try:
        source.change(r, changed)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, OverflowError, MemoryError, UnicodeError):
        pass  # HDF5 refuses some changes; what it has done of them stays
    if kind == "tomls":
        (folder / "good.toml").write_text(EXPERIMENT)
    commands = source.commands(r, path.name)
    commands = r.sample(commands, min(len(commands), 4))
    if r.random() < 0.1:
        commands.append(["float", "--", os.fsdecode(r.choice(FLOATS))])
    codes = []
    for words in commands:
        wrong, code = wrong_run(program, words, folder)
        codes.append(code)
        if wrong:
            return (wrong, words), codes
    return None, codes


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=list(KINDS))
    parser.add_argument("--keep", type=pathlib.Path)
    arguments = parser.parse_args()
    program = Program(arguments.program)
    failures, codes = [], collections.Counter()
    with tempfile.TemporaryDirectory(prefix="ulpscope_fuzz_") as name:
        scratch = pathlib.Path(name)
        sources = {}
        for number in range(arguments.first, arguments.first + arguments.cases):
            kinds = [arguments.only] if arguments.only else list(KINDS)
            kind = kinds[number % len(kinds)]
            if kind not in sources:
                (scratch / kind).mkdir()
                sources[kind] = KINDS[kind](program, scratch / kind)
            folder = scratch / "case"
            folder.mkdir()
            failure, exits = run_case(program, kind, sources[kind], arguments.seed, number, folder)
            codes.update((kind, code) for code in exits)
            if failure:
                wrong, words = failure
                failures.append(wrong)
                shown = " ".join(word if len(word) < 80 else word[:77] + "..." for word in words)
                print(f"case {number} ({kind}): {shown!r}: {wrong}", flush=True)
                if arguments.keep:
                    shutil.copytree(folder, arguments.keep / str(number), dirs_exist_ok=True)
            shutil.rmtree(folder)
    for (kind, code), count in sorted(codes.items()):
        print(f"{kind}: exit code {code}: {count}")
    print(f"{arguments.cases} cases, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
