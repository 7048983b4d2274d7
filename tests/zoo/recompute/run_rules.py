"""Losses, divergence, and what a run is."""

import math

import numpy

from .facts import median
from .rules import Rule, Step, setting_now
from .samples import sample_of
from .sentences import Claim, general

ENDS = 10  # losses at the end of a run
BLOCK = 20  # losses that are compared with as many


# The loss.


def nonfinite_losses(case, match):
    s = case.f.steps
    return Claim(
        {"some": s.nonfinite.sum(), "all": s.n, "step": s.step[s.nonfinite][0]},
        the_last_loss_is_finite=("finite in the last step" in match[0]) == (not s.nonfinite[-1]),
        it_goes_on=("finite one behind" in match[0]) == (not s.is_broken and bool(s.nonfinite[-1])),
    )


def origin_step(case, match):
    """Where the NaN or infinity of the first such loss was made: where what did the harm began, or else in its step, or in steps before that
    led there."""
    f = case.f
    step = f.steps.last_bout if f.steps.is_broken else int(f.steps.step[f.steps.nonfinite][0])
    with_bad = set(f.rows.step[f.rows.bad & ~f.rows.skipped].tolist())  # a skipped step did nothing to the weights
    began = [int(f.rows.step[row]) for row in f.origins if f.rows.step[row] <= step and int(f.rows.step[row]) in with_bad]
    if began:
        step = began[0]
    while not began and step - 1 in with_bad:
        step -= 1
    row = f.first_row(f.rows.bad & (f.rows.step == step))
    return Claim({"step": step}, the_step_has_a_nonfinite_tensor=row is not None)


def first_large_update(case):
    """The first step in which some matrix had an update as large as itself, with the largest ratio of that step."""
    f, p = case.f, case.f.tables.parameters
    ratios = {}
    for row in range(p.rows):
        if len(f.trace.shapes[p["tensor"][row]]) >= 2 and p["weight_norm"][row] > 0 and math.isfinite(p["update_norm"][row]):
            ratio = float(p["update_norm"][row] / p["weight_norm"][row])
            step = int(p["step"][row])
            ratios[step] = max(ratios.get(step, (0.0, -1)), (ratio, int(p["tensor"][row])))
    return next(((step, *best) for step, best in sorted(ratios.items()) if best[0] >= 1), None)


def diverged(case, match):
    f, s = case.f, case.f.steps
    known = s.known & ~s.broken
    overflowed = match["until"] == " before anything was NaN or infinite"
    if overflowed:  # of the steps before the first one that an op gave NaN or infinity in, skipped or not
        known = s.known & (s.step < min(f.tables.events["step"][f.events("nonfinite")]))
    ends = s.loss[known][-ENDS:]
    claim = {
        "first": general(float(s.loss[known][0]), 4),
        "begin": s.step[0],
        "last": general(median(ends), 4),
        "n": len(ends),
        "until": match["until"],
    }
    holds = {"the_run_broke": overflowed or bool(match["until"]) == s.is_broken}
    if "ratio" in match.groupdict() and match["ratio"]:
        step, ratio, tensor = first_large_update(case)
        bad = f.rows.step[f.rows.bad]
        claim |= {"step": step, "ratio": general(ratio, 3), "parameter": f.trace.text_of(f.tables.tensors["parameter"][tensor])}
        holds["nothing_overflowed_before"] = bad.size == 0 or int(bad[0]) > step
    return Claim(claim, **holds)


def scattered(case, match):
    """Of the last 50 losses, up to the first NaN or infinity in a step that was taken, those above ten times the first."""
    f, s = case.f, case.f.steps
    nonfinite = f.tables.events["step"][f.events("nonfinite")]
    taken = nonfinite[numpy.isin(nonfinite, s.step[~s.skipped])]
    until = taken.min(initial=numpy.iinfo(taken.dtype).max)
    asked = s.known & numpy.isfinite(s.loss) & (s.step < until)
    steps, losses = s.step[asked][-50:], s.loss[asked][-50:]
    claim = {
        "some": (losses > 10 * s.loss[0]).sum(),
        "all": len(losses),
        "times": 10,
        "first": general(s.loss[0], 4),
        "highest": general(losses.max(), 4),
        "at": steps[losses.argmax()],
    }
    holds = {"it_ends_early": bool(match["until"]) == bool(taken.size)}
    if match.groupdict().get("ratio"):
        step, ratio, tensor = first_large_update(case)
        claim |= {"step": step, "ratio": general(ratio, 3), "parameter": f.trace.text_of(f.tables.tensors["parameter"][tensor])}
    return Claim(claim, **holds)


def test_losses(f):
    """The step and the loss of each evaluation."""
    events = f.tables.events
    rows = [i for i in f.events("metric") if f.trace.text_of(events["text"][i]) == "test_loss"]
    return [(int(events["step"][i]), float(events["value"][i])) for i in rows]


def overfits(case, match):
    """The lowest test loss and the last, and the medians of the 20 losses of training up to either."""
    f = case.f
    losses = test_losses(f)
    steps, values = zip(min(losses, key=lambda loss: loss[1]), losses[-1])
    before, after = (median(f.steps.loss[(f.steps.step <= s) & (f.steps.step > s - 20) & numpy.isfinite(f.steps.loss)]) for s in steps)
    return Claim(
        {
            "step": steps[0],
            "lowest": general(values[0], 4),
            "last": general(values[1], 4),
            "end": steps[1],
            "before": general(before, 4),
            "after": general(after, 4),
        },
        it_rose_while_training_fell=values[1] > 1.5 * values[0] and after < before,
    )


def largest_update(case, match):
    f, p = case.f, case.f.tables.parameters
    rows = [i for i in range(p.rows) if len(f.trace.shapes[p["tensor"][i]]) >= 2 and p["weight_norm"][i] > 0]
    return {"ratio": general(max(float(p["update_norm"][i] / p["weight_norm"][i]) for i in rows), 3)}


def thrown_up(case, match):
    f, s = case.f, case.f.steps
    step, ratio, tensor = first_large_update(case)
    nonfinite = f.tables.events["step"][f.events("nonfinite")]
    taken = nonfinite[numpy.isin(nonfinite, s.step[~s.skipped])]
    behind = (s.step > step) & (s.step < taken.min(initial=numpy.iinfo(taken.dtype).max)) & numpy.isfinite(s.loss)
    losses = s.loss[behind]
    return Claim(
        {
            "step": step,
            "ratio": general(ratio, 3),
            "parameter": f.trace.text_of(f.tables.tensors["parameter"][tensor]),
            "first": general(s.loss[0], 4),
            "highest": general(losses.max(), 4),
            "at": s.step[behind][losses.argmax()],
            "above": (losses > s.loss[0]).sum(),
            "all": len(losses),
        },
        it_was_thrown_up=losses.max() > 2 * s.loss[0],
    )


def decay_times_rate(case, match):
    decay, rate = (float(case.f.trace.settings_by_kind[kind][1]) for kind in ("weight_decay", "learning_rate"))
    return Claim({"product": general(decay * rate, 3), "one": 1}, it_is_above_1=decay * rate > 1)


def lowest_block(case):
    """Of 20 steps each, from a multiple of 20 on, the lowest median of the losses, the first step and the losses."""
    s = case.f.steps
    blocks = {int(step) // BLOCK: [] for step in s.step}
    for step, loss in zip(s.step[numpy.isfinite(s.loss)], s.loss[numpy.isfinite(s.loss)]):
        blocks[int(step) // BLOCK].append(float(loss))
    return min((median(all_of), BLOCK * number, all_of) for number, all_of in blocks.items() if len(all_of) == BLOCK)


def is_much(first, lowest, end):
    """Of what the run had won; of its loss where it had won nothing."""
    risen = end - lowest
    won = risen > 0.1 * (first - lowest) or (lowest > 0 and numpy.log(end / lowest) > 0.25 * numpy.log(first / lowest))
    return risen > 0.05 * abs(lowest) and won


def rise(case, match):
    loss, step = case.f.steps.loss, case.f.steps.step
    least, begin, block = lowest_block(case)
    end = median(loss[-BLOCK:])
    behind = loss[step >= begin + BLOCK][-2 * BLOCK :]
    # The rank sum of the two, its mean and its variance where their order is chance.
    both = numpy.concatenate([block, behind])
    ranks = numpy.array([(both < x).sum() + ((both == x).sum() + 1) / 2 for x in behind])
    n, m = len(block), len(behind)
    deviations = (ranks.sum() - m * (n + m + 1) / 2) / (n * m * (n + m + 1) / 12) ** 0.5
    return Claim(
        {"least": general(least, 4), "n": BLOCK, "begin": begin, "end": general(end, 4), "again": BLOCK},
        it_is_no_chance=deviations > 4.5,
        it_is_much=is_much(loss[0], least, min(end, median(behind))),
    )


LOSSES = (
    r"the loss went from (?P<first>\S+) in step (?P<begin>\d+) to (?P<last>\S+?), the median of the last (?P<n>\d+) losses"
    r"(?P<until> before it broke| before anything was NaN or infinite)?[.,]"
)


SCATTERED = (
    r"(?P<some>\d+) of the last (?P<all>\d+) losses(?P<until> before anything was NaN or infinite)? are more than (?P<times>\d+) times the first one, "
    r"(?P<first>\S+), up to (?P<highest>\S+) in step (?P<at>\d+)"
)


def guessing(case, match):
    """What a classifier is compared with: the classes are the columns of the logits."""
    classes = number_of_classes(case)
    return {"accuracy": general(100 * case.f.metric("test_accuracy"), 3), "classes": classes, "guess": general(100 / classes, 3)}


def number_of_classes(case):
    f = case.f
    loss = next(
        op
        for op, name in enumerate(f.tables.ops.words("function"))
        if name == "cross_entropy" and f.tables.ops.words("phase")[op] != "evaluation"
    )
    producer, slot = next((producer, slot) for number, producer, slot in f.trace.inputs_of(loss) if number == 0)
    return f.trace.shapes[f.trace.tensor_of_output[(int(f.tables.ops["id"][producer]), slot)]][1]


def last_losses(case):
    s = case.f.steps
    return s.loss[~s.broken & s.known][-ENDS:]


def guessing_loss(case, match):
    classes = number_of_classes(case)
    return {
        "n": len(last_losses(case)),
        "least": general(float(last_losses(case).min()), 4),
        "classes": classes,
        "again": classes,
        "guess": general(math.log(classes), 4),
    }


def peak(case, match):
    s = case.f.steps
    judged = s.known & ~s.broken & numpy.isfinite(s.loss)
    highest = int(numpy.argmax(numpy.where(judged, s.loss, -math.inf)))
    first, most = float(s.loss[0]), float(s.loss[highest])
    return Claim(
        {"first": general(first, 4), "begin": s.step[0], "most": general(most, 4), "step": s.step[highest]},
        it_is_more_than_ten_times_the_first=most > 10 * first,
    )


# Notes of the producer.


def told_by_program(kind):
    """Of what the program noted or warned of: the first text and how many there are more, and as evidence each."""

    def rows_of(case):
        """The first with each text."""
        texts = {}
        for row in case.f.events(kind):
            texts.setdefault(case.f.trace.text_of(case.f.tables.events["text"][row]), row)
        return list(texts.values())

    def row_of(case, evidence):
        return rows_of(case)[case.finding["evidence"].index(evidence)]

    def texts(case, match):
        rows = rows_of(case)
        return {"text": case.f.trace.text_of(case.f.tables.events["text"][rows[0]]), "more": len(rows) - 1}

    return Rule(
        [(r"^(?P<text>.+?)(?: \(and (?P<more>\d+) more\))?$", texts)],
        {"text": lambda case, tensor, evidence: case.f.trace.text_of(case.f.tables.events["text"][row_of(case, evidence)])},
        lambda case, tensor, evidence: Step(int(case.f.tables.events["step"][row_of(case, evidence)])),
    )


def loss_step(where):
    return lambda case, tensor, _: Step(int(case.f.steps.step[where(case.f.steps)]))


def changed_memory(case, match):
    """What the recorder said when it saw it; of what was written it kept the sum."""
    f = case.f
    row = f.events("memory_changed")[0]
    events, written = f.tables.events, f.tables.fingerprints
    kept = written["written"][(written["step"] == events["count"][row]) & (written["tensor"] == events["tensor"][row])]
    return Claim(
        {
            "text": f.trace.text_of(events["text"][row]),
            "writer": events["count"][row],
            "reader": events["step"][row],
            "sum": f"{int(kept[0]):#x}" if len(kept) else None,
        },
        it_is_told_of_the_tensor_and_step_that_changed=case.first_tensor == events["tensor"][row]
        and case.finding["evidence"][0]["key"]["step"] == events["step"][row],
    )


def last_test(f):
    """The step of the last test loss."""
    rows = [i for i in f.events("metric") if f.trace.text_of(f.tables.events["text"][i]) == "test_loss"]
    return int(f.tables.events["step"][rows[-1]])


def test_loss(case, match):
    value = case.f.metric("test_loss")
    return Claim(
        {"value": "NaN" if math.isnan(value) else "infinite", "step": last_test(case.f)},
        it_is_not_finite=not math.isfinite(value),
        the_run_did_not_break=not case.f.steps.is_broken,
    )


def mean_guess(case, match):
    """What the mean of all targets costs in the last 50 steps, from the sums of the targets of each step, where the loss is the mean of
    squared errors."""
    f, s = case.f, case.f.steps
    words = f.tables.ops.words("function")
    loss = next(op for op, name in enumerate(words) if name == "mse" and f.tables.ops.words("phase")[op] != "evaluation")
    producer, slot = next((producer, slot) for number, producer, slot in f.trace.inputs_of(loss) if number == 1)
    tensor = f.trace.tensor_of_output[(int(f.tables.ops["id"][producer]), slot)]
    judged = s.step[~s.broken].tolist()
    sums = {step: numpy.zeros(3) for step in judged}
    stats = f.tables.stats
    for row in numpy.flatnonzero(f.rows_of(tensor)):
        if int(f.rows.step[row]) in sums:
            sums[int(f.rows.step[row])] += [stats[name][row] for name in ("count", "sum", "sum_of_squares")]
    count, total, _ = sum(sums.values())
    mean, last = total / count, judged[-50:]
    cost = numpy.mean([(q - 2 * mean * t) / n + mean * mean for n, t, q in (sums[step] for step in last)])
    of_run = float(numpy.mean(s.loss[~s.broken][-50:]))
    return of_run, len(last), mean, float(cost)


def told_mean_guess(case, match):
    of_run, steps, mean, cost = mean_guess(case, match)
    return Claim(
        {"run": general(of_run, 4), "n": steps, "mean": general(mean, 4), "cost": general(cost, 4)}, it_is_no_better=of_run >= 0.98 * cost
    )


def far_targets(case, match):
    of_run, _, mean, cost = mean_guess(case, match)
    return Claim(
        {"zero": 0, "mean": general(mean, 4), "deviation": general(math.sqrt(cost), 4)},
        they_lie_far=mean**2 > 10 * cost or cost > 1e4,
        it_is_no_better=of_run >= 0.98 * cost,
    )


def learned_by_heart(case, match):
    losses, classes = last_losses(case), number_of_classes(case)
    return Claim(
        {
            "n": len(losses),
            "median": general(median(losses), 4),
            "guess": general(math.log(classes), 4),
            "accuracy": general(100 * case.f.metric("test_accuracy"), 3),
            "classes": classes,
            "by_chance": general(100 / classes, 3),
        },
        the_losses_are_below_those_of_guessing=median(losses) < 0.5 * math.log(classes),
    )


def loss_stayed(case, match):
    losses = case.f.steps.loss[case.f.steps.known]
    first, last = median(losses[:ENDS]), median(losses[-ENDS:])
    return Claim(
        {"first": general(first, 4), "n": ENDS, "last": general(last, 4), "again": ENDS}, it_did_not_fall=last >= first
    )


def ratios_before(f, step):
    """By step before this one, the largest ratio of an update to a weight of two dimensions or more."""
    p, largest = f.tables.parameters, {}
    for row in range(p.rows):
        weight, update = float(p["weight_norm"][row]), float(p["update_norm"][row])
        if int(p["step"][row]) < step and len(f.trace.shapes[p["tensor"][row]]) >= 2 and weight > 0 and 0 < update < math.inf:
            largest[int(p["step"][row])] = max(largest.get(int(p["step"][row]), 0), update / weight)
    return largest


def update_leapt(case, match):
    f = case.f
    step, ratio, tensor = first_large_update(case)
    before = ratios_before(f, step)
    return Claim(
        {
            "step": step,
            "ratio": general(ratio, 3),
            "parameter": f.trace.text_of(f.tables.tensors["parameter"][tensor]),
            "n": len(before),
            "most": general(max(before.values()), 3),
        },
        it_is_far_above_all_before=len(before) >= 10 and ratio > 100 * max(before.values()),
    )


def out_of_line(f, step):
    """The first row of the step, in order, that is 30 times as large as all of its tensor in the ten steps before."""
    r, before = f.rows, {}
    for row in range(r.n):
        if not r.has_values[row] or not step - 10 <= r.step[row] <= step:
            continue
        tensor, largest = int(r.tensor[row]), float(r.largest[row]) / float(f.tables.stats["scale"][row])
        if r.step[row] < step:
            before[tensor] = max(before.get(tensor, 0), largest)
        elif before.get(tensor, 0) > 0 and largest > 30 * before[tensor]:
            return tensor, largest, before[tensor]
    return None


def first_out_of_line(case, match):
    step = first_large_update(case)[0]
    tensor, largest, before = out_of_line(case.f, step)
    return Claim(
        {"step": step, "tensor": None, "largest": general(largest, 4), "before": general(before, 4)},
        it_is_the_named_one=case.tensor_of(case.finding["evidence"][1]) == tensor,
    )


def outlier_batches(case, match):
    """Of the rows of an input, sorted by their largest magnitudes, those behind the first gap of a factor of 30 among the last fifth."""
    f, tensor = case.f, case.first_tensor
    rows = numpy.flatnonzero(f.rows_of(tensor) & f.rows.has_values)
    values = numpy.sort(f.rows.largest[rows])
    n = len(values)
    first = next(i for i in range(n - n // 5, n) if values[i - 1] > 0 and values[i] > 30 * values[i - 1])
    outliers = rows[f.rows.largest[rows] >= values[first]]
    return outliers, n, float(values[-1]), float(values[first - 1])


def data_outlier(case, match):
    outliers, n, largest, others = outlier_batches(case, match)
    return Claim(
        {
            "some": "One" if len(outliers) == 1 else str(len(outliers)),
            "all": n,
            "tensor": case.first_name,
            "step": case.f.rows.step[outliers[0]],
            "largest": general(largest, 4),
            "others": general(others, 4),
        }
    )


def samples_of_outliers(case):
    """For each of these batches the samples that no other recorded batch has."""
    f = case.f
    b, outliers = f.tables.batches, outlier_batches(case, None)[0]
    places = [(int(step), int(micro_batch)) for step, micro_batch in zip(f.rows.step, f.rows.micro_batch)]
    recorded = {places[row] for row in numpy.flatnonzero(f.rows_of(case.first_tensor) & f.rows.has_values)}
    suspects, elsewhere = {places[row]: set() for row in outliers}, set()
    for row in numpy.flatnonzero(numpy.array(b.words("phase")) != "evaluation"):
        at, sample = (int(b["step"][row]), int(b["micro_batch"][row])), (int(b["source"][row]), int(b["sample"][row]))
        if at in suspects:
            suspects[at].add(sample)
        elif at in recorded:
            elsewhere.add(sample)
    return [suspects[at] - elsewhere for at in sorted(suspects)]


def the_sample(case, match):
    suspects = samples_of_outliers(case)
    return Claim({"sample": min(suspects[0])[1], "places": None}, there_is_one=all(each == suspects[0] for each in suspects) and len(suspects[0]) == 1)


def each_its_sample(case, match):
    suspects = samples_of_outliers(case)
    return Claim({"n": len(set.union(*suspects)), "sample": min(suspects[0])[1], "places": None}, each_has_one=all(len(each) == 1 for each in suspects))


def the_shared_sample(case, match):
    suspects = samples_of_outliers(case)
    shared = set.intersection(*suspects)
    return Claim({"n": len(suspects), "sample": min(shared)[1], "places": None}, there_is_one=len(shared) == 1)


def captured_sample(case, match):
    """By a capture that has an element of the batch with its largest magnitude."""
    f, row = case.f, outlier_batches(case, None)[0][0]
    c = f.tables.captures
    is_here = (c["step"] == f.rows.step[row]) & (c["micro_batch"] == f.rows.micro_batch[row]) & (c["made_by"] == case.first_tensor)
    nodes = numpy.flatnonzero(is_here & (numpy.abs(c["value"]) == f.rows.largest[row]))
    if not len(nodes):
        return Claim({}, it_was_captured=False)
    element, _, sample, _ = sample_of(f, case.first_tensor, nodes[0])
    return Claim({"element": element, "sample": sample, "places": None})


RULES = {
    "data.outlier": Rule(
        [
            (
                r"^(?P<some>\S+) of (?P<all>\d+) batches of (?P<tensor>.+?) (?:is|are) unlike all others, first in step (?P<step>\d+): the largest "
                r"magnitude is (?P<largest>\S+), and (?P<others>\S+) in the others\.",
                data_outlier,
            ),
            (r"^It is sample (?P<sample>\d+) of \w+(?P<places>.*?)\. Look at", the_sample),
            (r"^(?P<n>\d+) samples make them so, the first is sample (?P<sample>\d+) of \w+(?P<places>.*?)\. Look at", each_its_sample),
            (
                r"^Of the samples that no other batch has, one is in all (?P<n>\d+) of them: sample (?P<sample>\d+) of \w+(?P<places>.*?)\. Look at",
                the_shared_sample,
            ),
            (
                r"^(?:It|The first) is element (?P<element>\d+) of sample (?P<sample>\d+) of \w+(?P<places>.*?)\. Look at",
                captured_sample,
            ),
            (
                r"^At least one of the (?P<n>\d+) samples that no other batch has is at fault\.",
                lambda case, match: {"n": len(set.union(*samples_of_outliers(case)))},
            ),
            (r"--step (?P<step>\d+)`", lambda case, match: {"step": case.f.rows.step[outlier_batches(case, match)[0][0]]}),
        ],
        {"largest": lambda case, *_: float(case.f.rows.largest[outlier_batches(case, None)[0][0]])},
        lambda case, tensor, _=None: int(outlier_batches(case, None)[0][0]),
    ),
    "run.update_leapt": Rule(
        [
            (
                r"^One update threw the run: that of step (?P<step>\d+) was (?P<ratio>\S+) times as large as (?P<parameter>\S+), and in the "
                r"(?P<n>\d+) steps before none was more than (?P<most>\S+) times as large as its weight\.",
                update_leapt,
            ),
            (
                r"The first that was out of line in step (?P<step>\d+) is (?P<tensor>.+?): up to (?P<largest>\S+), and (?P<before>\S+) in "
                r"the steps before\.",
                first_out_of_line,
            ),
        ],
        {
            "update_over_weight": lambda case, *_: first_large_update(case)[1],
            "largest": lambda case, *_: out_of_line(case.f, first_large_update(case)[0])[1],
        },
        lambda case, tensor, _=None: Step(first_large_update(case)[0]),
    ),
    "run.loss_stayed": Rule(
        [
            (
                r"^The loss did not fall: its median was (?P<first>\S+) in the first (?P<n>\d+) steps, and is (?P<last>\S+) in the last "
                r"(?P<again>\d+)\.",
                loss_stayed,
            ),
        ],
        {
            "median_loss": lambda case, *_: median(case.f.steps.loss[-ENDS:]),
            "first_median_loss": lambda case, *_: median(case.f.steps.loss[:ENDS]),
        },
        lambda case, tensor, _=None: Step(int(case.f.steps.step[-1])),
    ),
    "recording.memory_changed": Rule(
        [
            (
                r"^(?P<text>\S.* changed between .* in step \d+, which wrote it, and .* in step \d+, which read it: .*)\.$",
                changed_memory,
            ),
            (r"in step (?P<writer>\d+), which wrote it, and .* in step (?P<reader>\d+), which read it:", changed_memory),
            (r"the sum of its bit patterns was (?P<sum>0x\w+) and is", changed_memory),
        ],
        {"written_in_step": lambda case, *_: int(case.f.tables.events["count"][case.f.events("memory_changed")[0]])},
        lambda case, tensor, _=None: Step(int(case.f.tables.events["step"][case.f.events("memory_changed")[0]])),
        first=lambda case: int(case.f.tables.events["count"][case.f.events("memory_changed")[0]]),
    ),
    "run.overfits": Rule(
        [
            (
                r"^The test loss was lowest after step (?P<step>\d+), (?P<lowest>\S+), and is (?P<last>\S+) after step (?P<end>\d+), while "
                r"the loss of training fell from (?P<before>\S+) to (?P<after>\S+)\.$",
                overfits,
            ),
        ],
        {"test_loss": lambda case, tensor, evidence: dict(test_losses(case.f))[evidence["key"]["step"]]},
        lambda case, tensor, evidence=None: Step(int(evidence["key"]["step"])) if evidence else Step(test_losses(case.f)[-1][0]),
    ),
    "run.test_loss_nonfinite": Rule(
        [
            (
                r"^The test loss was (?P<value>NaN|infinite) after step (?P<step>\d+), and the loss of that step was not\.$",
                test_loss,
            ),
        ],
        {"test_loss": lambda case, *_: case.f.metric("test_loss")},
        lambda case, tensor, _=None: Step(last_test(case.f)),
    ),
    "run.loss_nonfinite": Rule(
        [
            (
                r"^The loss was NaN or infinity in (?P<some>\d+) of (?P<all>\d+) steps?, first in step (?P<step>\d+)(?:, and finite in the last step|; all but the last of these steps had a finite one behind them)?\.",
                nonfinite_losses,
            ),
            (r"Where it began, in step (?P<step>\d+), is where to look", origin_step),
            (r"--step (?P<step>\d+)`", origin_step),
        ],
        {"steps": lambda case, *_: int(case.f.steps.nonfinite.sum())},
        loss_step(lambda s: numpy.flatnonzero(s.nonfinite)[0]),
    ),
    "run.diverged": Rule(
        [
            (
                r"^The run (?:diverged|may diverge): the update of step (?P<step>\d+) was (?P<ratio>\S+) times as large as (?P<parameter>\S+), before anything "
                r"overflowed in a step that was taken, and " + LOSSES,
                diverged,
            ),
            (r"^The run diverge[ds]: " + LOSSES, diverged),
            (
                r"^The run (?:diverged|may diverge): the update of step (?P<step>\d+) was (?P<ratio>\S+) times as large as (?P<parameter>\S+), before anything "
                r"overflowed in a step that was taken, and " + SCATTERED,
                scattered,
            ),
            (r"^The run diverged: " + SCATTERED, scattered),
            (
                r"^Updates were too long: that of step (?P<step>\d+) was (?P<ratio>\S+) times as large as (?P<parameter>\S+), and the loss rose "
                r"from (?P<first>\S+) to (?P<highest>\S+) in step (?P<at>\d+); it was above the first one in (?P<above>\d+) of (?P<all>\d+) steps\.$",
                thrown_up,
            ),
            (r"Updates were up to (?P<ratio>\S+) times as large as the weights that they changed\.$", largest_update),
            (r"(?:Lower|times) the learning rate \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("learning_rate")),
            (r"Lower the weight decay \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("weight_decay")),
            (r"times the learning rate .*?it is (?P<product>\S+), and above (?P<one>1) it turns weights around", decay_times_rate),
        ],
        {"update_over_weight": lambda case, *_: first_large_update(case)[1]},
        lambda case, tensor, _: Step(first_large_update(case)[0]) if tensor is not None else Step(int(case.f.steps.step[-1])),
    ),
    "run.no_better_than_guessing": Rule(
        [
            (
                r"it has (?P<accuracy>\S+)% of the test set right, and guessing among (?P<classes>\d+) classes (?P<guess>\S+)%\.",
                guessing,
            ),
            (
                r"each of its last (?P<n>\d+) losses is (?P<least>\S+) or more, and guessing all (?P<classes>\d+) classes alike gives "
                r"log\((?P<again>\d+)\) = (?P<guess>\d+(?:\.\d+)?)\.(?: |$)",
                guessing_loss,
            ),
            (
                r"^The run ended (?P<how>worse|hardly better) than guessing: each of its last (?P<n>\d+) losses is (?P<least>\S+) or more, and guessing all "
                r"(?P<classes>\d+) classes alike gives log\((?P<again>\d+)\) = (?P<guess>[^\s,]+), though it has (?P<accuracy>\S+)% of the "
                r"test set right\.",
                lambda case, match: Claim(
                    guessing_loss(case, match)
                    | {
                        "accuracy": general(100 * case.f.metric("test_accuracy"), 3),
                        "how": "worse" if last_losses(case).min() > 2 * math.log(number_of_classes(case)) else "hardly better",
                    },
                    it_is_so=last_losses(case).min() > 2 * math.log(number_of_classes(case))
                    or case.f.metric("test_accuracy") < 2 / number_of_classes(case),
                ),
            ),
            (
                r"^The run learned nothing that helps: its mean loss is (?P<run>\S+) in the last (?P<n>\d+) steps, and to give the mean of all "
                r"targets, (?P<mean>\S+), would have cost (?P<cost>\S+) there\.",
                told_mean_guess,
            ),
            (
                r"^The run learned its training samples, and nothing that helps with others: the median of its last (?P<n>\d+) losses is "
                r"(?P<median>\S+), where guessing gives (?P<guess>\S+), and it has (?P<accuracy>\S+)% of the test set right, where guessing "
                r"among (?P<classes>\d+) classes gives (?P<by_chance>\S+)%\.",
                learned_by_heart,
            ),
            (
                r"its labels are smoothed so far that all (?P<classes>\d+) classes are alike\.$",
                lambda case, match: Claim(
                    {"classes": number_of_classes(case)}, nothing_is_left=float(case.f.setting("loss.label_smoothing")) > 1 - 1e-6
                ),
            ),
            (r"features far from (?P<one>1) saturate", lambda *_: {"one": 1}),
            (
                r"the loss went from (?P<first>\S+) in step (?P<begin>\d+) up to (?P<most>\S+) in step (?P<step>\d+)\.",
                peak,
            ),
            (r"learning rate \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("learning_rate")),
        ],
        {
            "test_accuracy": lambda case, *_: case.f.metric("test_accuracy"),
            "of_guessing": lambda case, *_: 1 / number_of_classes(case),
            "least_loss": lambda case, *_: float(last_losses(case).min()),
            "mean_loss": lambda case, *_: mean_guess(case, None)[0],
            "loss_of_the_mean": lambda case, *_: mean_guess(case, None)[3],
            "loss_of_guessing": lambda case, *_: math.log(number_of_classes(case)),
            "least_possible_loss": lambda case, *_: math.log(number_of_classes(case)),
        },
        loss_step(lambda s: numpy.flatnonzero(~s.broken)[-1]),
    ),
    "data.targets_far": Rule(
        [
            (
                r"^The targets lie far from where the outputs of a model begin, near (?P<zero>0): their mean is (?P<mean>\S+), they deviate from it "
                r"by (?P<deviation>\S+), and the run did not get there\.$",
                far_targets,
            ),
        ],
        {
            "mean_loss": lambda case, *_: mean_guess(case, None)[0],
            "loss_of_the_mean": lambda case, *_: mean_guess(case, None)[3],
        },
        loss_step(lambda s: numpy.flatnonzero(~s.broken)[-1]),
    ),
    "run.loss_negative": Rule(
        [
            (
                r"^The loss fell below (?P<zero>0), and its median is (?P<end>\S+) in the last (?P<n>\d+) steps: \w+ of [\w -]+ is never below "
                r"(?P<again>0)\.$",
                lambda case, match: Claim(
                    {"zero": 0, "again": 0, "end": general(median(last_losses(case)), 4), "n": 10},
                    all_are_below=last_losses(case).max() < 0,
                    it_is_no_rounding=median(last_losses(case)) < -0.01 * abs(case.f.steps.loss[0]),
                ),
            ),
        ],
        {
            "median_loss": lambda case, *_: median(last_losses(case)),
            "first_loss": lambda case, *_: float(case.f.steps.loss[0]),
        },
        lambda case, tensor, evidence: Step(
            int(case.f.steps.step[0 if "first_loss" in evidence["values"] else numpy.flatnonzero(~case.f.steps.broken)[-1]])
        ),
    ),
    "run.loss_rose": Rule(
        [
            (
                r"^The loss rose: its median was (?P<least>\S+) in the (?P<n>\d+) steps from (?P<begin>\d+) on, and is (?P<end>\S+) "
                r"in the last (?P<again>\d+)\.$",
                rise,
            ),
            (r"learning rate \((?P<name>[\w.]+), now (?P<value>[^)]+)\)", setting_now("learning_rate")),
        ],
        {
            "median_loss": lambda case, *_: median(case.f.steps.loss[-BLOCK:]),
            "lowest_median_loss": lambda case, *_: lowest_block(case)[0],
        },
        lambda case, tensor, evidence: Step(
            int(case.f.steps.step[-1]) if evidence is None or "median_loss" in evidence["values"] else lowest_block(case)[1]
        ),
    ),
    "recording.other_ranks": Rule(
        [
            (
                r"^The trace is of rank (?P<rank>\d+) of a run of (?P<ranks>\d+): the others are not read\.$",
                lambda case, *_: {"rank": int(case.f.trace.run("rank")), "ranks": int(case.f.trace.run("world_size"))},
            ),
        ],
        {},
        lambda case, tensor, _=None: None,
    ),
    "recording.note": told_by_program("note"),
    "recording.warning": told_by_program("warning"),
}


FACTS = {
    "precision": lambda case: case.f.trace.text_of(case.f.trace.run("precision")),
    "steps": lambda case: case.f.steps.n,
    "first_loss": lambda case: float(case.f.steps.loss[0]),
    "final_loss": lambda case: float(case.f.steps.loss[-1]),
    "arithmetic": lambda case: case.f.trace.text_of(case.f.trace.run("arithmetic")),
    "test_accuracy": lambda case: case.f.metric("test_accuracy"),
    "quantization_scaling": lambda case: case.f.setting("fp8.recipe").strip('"'),
    "skipped_steps": lambda case: int(case.f.steps.skipped.sum()),
    "fitted_steps": lambda case: int(case.f.steps.fitted.sum()),
    "loss_scale": lambda case: float(case.f.steps.scale_after[-1]),
}
