"""Losses, divergence, and what a run is."""

import math
import re

import numpy

from .facts import median
from .rules import Rule, Step, no_problem
from .sentences import Claim, general

ENDS = 10  # losses at the end of a run
BLOCK = 20  # losses that are compared with as many


# The loss.


def nonfinite_losses(case, said):
    s = case.f.steps
    return {"nonfinite": int(s.nonfinite.sum()), "steps": s.n, "first_step": int(s.step[s.nonfinite][0])}


def loss_came_back(case, said):
    s = case.f.steps
    return Claim(the_last_loss_is_finite=not s.nonfinite[-1])


def last_loss_is_nonfinite(case, said):
    s = case.f.steps
    return Claim(the_last_loss_is_not_finite=bool(s.nonfinite[-1]), the_run_goes_on=not s.is_broken)


def loss_stays_nonfinite(case, said):
    return Claim(the_run_broke=case.f.steps.is_broken)


def origin_step(case, said):
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


def large_update(case, said):
    step, ratio, tensor = first_large_update(case)
    return {"step": step, "ratio": ratio, "parameter": case.f.trace.text_of(case.f.tables.tensors["parameter"][tensor])}


def nothing_before(case, said):
    bad = case.f.rows.step[case.f.rows.bad]
    return Claim(nothing_overflowed_before=bad.size == 0 or int(bad[0]) > first_large_update(case)[0])


def first_nonfinite(case, taken):
    """The first step in which an op gave NaN or infinity, of all or of those that were taken; infinity: none."""
    steps = case.f.tables.events["step"][case.f.events("nonfinite")]
    if taken:
        steps = steps[numpy.isin(steps, case.f.steps.step[~case.f.steps.skipped])]
    return float(steps.min()) if len(steps) else math.inf


def losses_compared(case, known):
    """The last ten of some steps, but for the first of the run."""
    s = case.f.steps
    ends = numpy.flatnonzero(known & s.known)[-ENDS:]
    return s.loss[ends[ends > numpy.flatnonzero(s.known)[0]]]


def change(case, said, known, **more):
    """From the first loss to the median of the last ones."""
    s, ends = case.f.steps, losses_compared(case, known)
    first, last = float(s.loss[s.known][0]), median(ends)
    claim = {"first": first, "first_step": int(s.step[0])} | more
    if "last" in said.values:
        claim |= {"last": last, "losses": len(ends)}
    return Claim(claim, it_rose=(said["rose"].id == "loss.rose") == (last > first))


def median_over(case, said):
    change = case.said("loss.went_before_it_broke") or case.said("loss.went_before_nonfinite")
    ends = losses_compared(case, case.f.steps.step < change["until"])
    return {"last": median(ends)} | ({"losses": len(ends)} if "losses" in said.values else {})


def went_to_median(case, said):
    s = case.f.steps
    return change(case, said, ~s.broken)


def went_until_broken(case, said):
    s = case.f.steps
    return change(case, said, ~s.broken, until=s.broken_from)


def went_until_nonfinite(case, said):
    step = first_nonfinite(case, taken=False)
    return change(case, said, case.f.steps.step < step, until=step)


def went_to_peak(case, said):
    first, first_step, most, step = peak(case)
    return Claim(
        {"first": first, "first_step": first_step, "last": most, "step": step},
        it_rose=said["rose"].id == "loss.rose",
        it_is_more_than_ten_times_the_first=most > 10 * first,
    )


def scattered(case, said):
    """Of the last 50 losses, up to the first NaN or infinity in a step that was taken, those above ten times the first."""
    s, until = case.f.steps, first_nonfinite(case, taken=True)
    asked = s.known & numpy.isfinite(s.loss) & (s.step < until)
    steps, losses = s.step[asked][-50:], s.loss[asked][-50:]
    return Claim(
        {
            "above": int((losses > 10 * s.loss[0]).sum()),
            "losses": len(losses),
            "times": 10,
            "first": float(s.loss[0]),
            "highest": float(losses.max()),
            "step": int(steps[losses.argmax()]),
        },
        it_ends_early=(said.id == "loss.scattered_before_nonfinite") == (until < math.inf),
    )


def largest_update(case, said):
    f, p = case.f, case.f.tables.parameters
    rows = [i for i in range(p.rows) if len(f.trace.shapes[p["tensor"][i]]) >= 2 and p["weight_norm"][i] > 0]
    return {"ratio": max(float(p["update_norm"][i] / p["weight_norm"][i]) for i in rows)}


def losses_behind(case):
    """Those behind the first update as large as its weight, up to the first NaN or infinity in a step that was taken."""
    s = case.f.steps
    behind = (s.step > first_large_update(case)[0]) & (s.step < first_nonfinite(case, taken=True)) & numpy.isfinite(s.loss)
    return s.step[behind], s.loss[behind]


def thrown_up(case, said):
    first, (_, losses) = float(case.f.steps.loss[0]), losses_behind(case)
    return Claim(large_update(case, said) | {"first": first, "highest": float(losses.max())}, it_was_thrown_up=losses.max() > 2 * first)


def thrown_up_peak(case, said):
    steps, losses = losses_behind(case)
    above = int((losses > case.f.steps.loss[0]).sum())
    return {"highest_step": int(steps[losses.argmax()]), "above": above, "steps": len(losses)}


def test_losses(f):
    """The step and the loss of each evaluation."""
    events = f.tables.events
    rows = [i for i in f.events("metric") if f.trace.text_of(events["text"][i]) == "test_loss"]
    return [(int(events["step"][i]), float(events["value"][i])) for i in rows]


def overfits(case, said):
    """The lowest test loss and the last."""
    losses = test_losses(case.f)
    (lowest_step, lowest), (last_step, last) = min(losses, key=lambda loss: loss[1]), losses[-1]
    return Claim({"lowest_step": lowest_step, "lowest": lowest, "last_step": last_step, "last": last}, it_rose=last > 1.5 * lowest)


def training_fell(case, said):
    """The medians of the 20 losses of training up to either."""
    f, losses = case.f, test_losses(case.f)
    steps = min(losses, key=lambda loss: loss[1])[0], losses[-1][0]
    before, after = (median(f.steps.loss[(f.steps.step <= s) & (f.steps.step > s - 20) & numpy.isfinite(f.steps.loss)]) for s in steps)
    return Claim({"before": before, "after": after}, it_fell=after < before)


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


def rise(case, said):
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
        {"lowest": least, "steps": BLOCK, "step": begin, "last": end},
        it_is_no_chance=deviations > 4.5,
        it_is_much=is_much(loss[0], least, min(end, median(behind))),
    )


def test_accuracy(case, said):
    """What a classifier is compared with: the classes are the columns of the logits."""
    classes = number_of_classes(case)
    return {"accuracy": case.f.metric("test_accuracy"), "classes": classes, "guessing_accuracy": 1 / classes}


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


def guessing_loss(case, said):
    classes = number_of_classes(case)
    return {"losses": len(last_losses(case)), "least": float(last_losses(case).min()), "classes": classes, "guessing": math.log(classes)}


def median_of_guessing(case, said):
    classes = number_of_classes(case)
    return {"losses": len(last_losses(case)), "median": float(numpy.median(last_losses(case))), "classes": classes, "guessing": math.log(classes)}


def is_worse(case):
    return bool(last_losses(case).min() > 2 * math.log(number_of_classes(case)))


def accuracy_all_the_same(case, said):
    accuracy = case.f.metric("test_accuracy")
    worse = case.said("run.no_better_than_guessing.worse") is not None
    return Claim(
        {"accuracy": accuracy},
        it_is_worse_than_guessing=worse == is_worse(case),
        it_is_no_better=worse or accuracy < 2 / number_of_classes(case),
    )


def least_possible_loss(case):
    """The entropy of a target that has a part of its share spread over all classes alike: no model has a lower mean loss."""
    classes, smoothing = number_of_classes(case), float(case.f.setting("loss.label_smoothing"))
    shares = numpy.full(classes, smoothing / classes)
    shares[0] += 1 - smoothing
    return float(-(shares * numpy.log(shares)).sum())


def smoothed_far(case, said):
    guess, least = math.log(number_of_classes(case)), least_possible_loss(case)
    return Claim({"least": least, "guessing": guess}, little_is_left=guess - least < 0.05 * guess)


def still_falls(case, said):
    losses = case.f.steps.loss[~case.f.steps.broken & case.f.steps.known]
    third = len(losses) / 3
    middle, last = median(losses[int(third) : math.ceil(2 * third)]), median(losses[math.ceil(2 * third) :])
    return Claim({"before": middle, "last": last, "steps": len(losses)}, it_does=last < 0.995 * middle, it_is_short=len(losses) < 200)


def far_from_1(case, said):
    """The first data of training that are far from 1."""
    f, stats = case.f, case.f.tables.stats
    for tensor, (role, kind, phase) in enumerate(zip(f.tensors.role, f.tensors.function, f.tensors.phase)):
        if (role, kind) != ("input", "source") or phase == "evaluation":
            continue
        rows = numpy.flatnonzero(f.rows_of(tensor) & numpy.isin(f.rows.step, f.steps.step[~f.steps.broken]))
        count = stats["count"][rows].astype(float).sum()
        mean, square = stats["sum"][rows].sum() / count, stats["sum_of_squares"][rows].sum() / count
        if not 1 / 30 <= math.sqrt(square) <= 30:
            return {"mean": mean, "deviation": math.sqrt(square - mean * mean)}
    return Claim(an_input_is_far_from_1=False)


def smoothed_labels(case, said):
    return Claim({"classes": number_of_classes(case)}, nothing_is_left=float(case.f.setting("loss.label_smoothing")) > 1 - 1e-6)


def peak(case):
    """The first loss and its step, the highest and its step."""
    s = case.f.steps
    judged = s.known & ~s.broken & numpy.isfinite(s.loss)
    highest = int(numpy.argmax(numpy.where(judged, s.loss, -math.inf)))
    return float(s.loss[0]), int(s.step[0]), float(s.loss[highest]), int(s.step[highest])


def rate_of_peak(case, said):
    first, first_step, most, step = peak(case)
    return Claim(
        {"first": first, "first_step": first_step, "peak": most, "peak_step": step}, it_is_more_than_ten_times_the_first=most > 10 * first
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

    return Rule(
        values={"text": lambda case, tensor, evidence: case.f.trace.text_of(case.f.tables.events["text"][row_of(case, evidence)])},
        place=lambda case, tensor, evidence: Step(int(case.f.tables.events["step"][row_of(case, evidence)])),
    )


def events_told(case, said):
    """The first of the texts of that kind, and how many others there are."""
    f, kind = case.f, case.finding["code"].partition(".")[2]
    texts = list(dict.fromkeys(f.trace.text_of(f.tables.events["text"][row]) for row in f.events(kind)))
    return {"event": texts[0]} | ({"more": len(texts) - 1} if said.id == "recording.event_and_more" else {})


def loss_step(where):
    return lambda case, tensor, _: Step(int(case.f.steps.step[where(case.f.steps)]))


def changed_memory(case, said):
    """Where it was written and where it was read, as the recorder had it."""
    f = case.f
    row = f.events("memory_changed")[0]
    events = f.tables.events
    return Claim(
        {"written": int(events["count"][row]), "read": int(events["step"][row])},
        it_is_told_of_the_tensor_and_step_that_changed=case.first_tensor == events["tensor"][row]
        and case.finding["evidence"][0]["key"]["step"] == events["step"][row],
    )


def bits_changed(case, said):
    """As the recorder said it; of what was written it kept the sum."""
    f = case.f
    row = f.events("memory_changed")[0]
    events, written = f.tables.events, f.tables.fingerprints
    kept = written["written"][(written["step"] == events["count"][row]) & (written["tensor"] == events["tensor"][row])]
    told = re.fullmatch(r"was (0x\w+) and is 0x\w+", said["change"])
    return Claim(
        it_is_what_the_recorder_said=f.trace.text_of(events["text"][row]).endswith(f"the sum of its bit patterns {said['change']}"),
        the_sum_is_the_one_that_was_kept=told is None or not len(kept) or told[1] == f"{int(kept[0]):#x}",
    )


def change_of_memory(case, evidence):
    """The row of the event that a piece of evidence is about."""
    return case.f.events("memory_changed")[case.finding["evidence"].index(evidence)]


def last_test(f):
    """The step of the last test loss."""
    rows = [i for i in f.events("metric") if f.trace.text_of(f.tables.events["text"][i]) == "test_loss"]
    return int(f.tables.events["step"][rows[-1]])


def test_loss(case, said):
    value = case.f.metric("test_loss")
    return Claim(
        {"loss": value, "step": last_test(case.f)}, it_is_not_finite=not math.isfinite(value), the_run_did_not_break=not case.f.steps.is_broken
    )


def test_losses_before(case, said):
    losses = test_losses(case.f)
    bad = [step for step, loss in losses if not math.isfinite(loss)]
    return {"nonfinite": len(bad), "evaluations": len(losses), "first": bad[0]}


def nonfinite_statistic(case, said):
    """The first running statistic that holds some after the step of the test, and since when."""
    f = case.f
    held = [f.rows.step[f.rows.bad & f.rows_of(i)] for i in numpy.flatnonzero(f.tensors.is_statistic)]
    return {"first": next(int(steps[0]) for steps in held if last_test(f) in steps)}


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


def told_mean_guess(case, said):
    of_run, steps, mean, cost = mean_guess(case, None)
    return Claim({"loss": of_run, "steps": steps, "mean": mean, "guessing": cost}, it_is_no_better=of_run >= 0.98 * cost)


def learned_by_heart(case, said):
    losses, guess = last_losses(case), math.log(number_of_classes(case))
    return Claim(
        {"losses": len(losses), "median": median(losses), "guessing": guess}, the_losses_are_below_those_of_guessing=median(losses) < 0.5 * guess
    )


def loss_stayed(case, said):
    losses = case.f.steps.loss[case.f.steps.known]
    first, last = median(losses[:ENDS]), median(losses[-ENDS:])
    return Claim({"first": first, "last": last, "steps": ENDS}, it_did_not_fall=last >= first)


def negative_loss(case, said):
    return Claim(
        {"median": median(last_losses(case)), "steps": ENDS},
        all_are_below=last_losses(case).max() < 0,
        it_is_no_rounding=median(last_losses(case)) < -0.01 * abs(case.f.steps.loss[0]),
    )


def ratios_before(f, step):
    """By step before this one, the largest ratio of an update to a weight of two dimensions or more."""
    p, largest = f.tables.parameters, {}
    for row in range(p.rows):
        weight, update = float(p["weight_norm"][row]), float(p["update_norm"][row])
        if int(p["step"][row]) < step and len(f.trace.shapes[p["tensor"][row]]) >= 2 and weight > 0 and 0 < update < math.inf:
            largest[int(p["step"][row])] = max(largest.get(int(p["step"][row]), 0), update / weight)
    return largest


def before_leap(case, said):
    step, ratio, _ = first_large_update(case)
    before = ratios_before(case.f, step)
    return Claim(
        {"steps": len(before), "before": max(before.values())},
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


def first_out_of_line(case, said):
    tensor, largest, before = out_of_line(case.f, first_large_update(case)[0])
    return Claim({"largest": largest, "before": before}, it_is_the_named_one=case.tensor_of(case.finding["evidence"][1]) == tensor)


RULES = {
    "run.update_leapt": Rule(
        values={
            "update_over_weight": lambda case, *_: first_large_update(case)[1],
            "largest": lambda case, *_: out_of_line(case.f, first_large_update(case)[0])[1],
        },
        place=lambda case, tensor, _=None: Step(first_large_update(case)[0]),
    ),
    "run.loss_stayed": Rule(
        values={
            "median_loss": lambda case, *_: median(case.f.steps.loss[-ENDS:]),
            "first_median_loss": lambda case, *_: median(case.f.steps.loss[:ENDS]),
        },
        place=lambda case, tensor, _=None: Step(int(case.f.steps.step[-1])),
    ),
    "recording.memory_changed": Rule(
        values={
            "written_in_step": lambda case, tensor, evidence: int(case.f.tables.events["count"][change_of_memory(case, evidence)]),
            "text": lambda case, tensor, evidence: case.f.trace.text_of(case.f.tables.events["text"][change_of_memory(case, evidence)]),
        },
        place=lambda case, tensor, evidence: Step(int(case.f.tables.events["step"][change_of_memory(case, evidence)])),
        first=lambda case: int(case.f.tables.events["count"][case.f.events("memory_changed")[0]]),
    ),
    "run.overfits": Rule(
        values={"test_loss": lambda case, tensor, evidence: dict(test_losses(case.f))[evidence["key"]["step"]]},
        place=lambda case, tensor, evidence=None: Step(int(evidence["key"]["step"])) if evidence else Step(test_losses(case.f)[-1][0]),
    ),
    "run.test_loss_nonfinite": Rule(
        values={"test_loss": lambda case, *_: case.f.metric("test_loss")}, place=lambda case, tensor, _=None: Step(last_test(case.f))
    ),
    "run.loss_nonfinite": Rule(
        values={"steps": lambda case, *_: int(case.f.steps.nonfinite.sum())}, place=loss_step(lambda s: numpy.flatnonzero(s.nonfinite)[0])
    ),
    "run.diverged": Rule(
        values={"update_over_weight": lambda case, *_: first_large_update(case)[1]},
        place=lambda case, tensor, _: Step(first_large_update(case)[0]) if tensor is not None else Step(int(case.f.steps.step[-1])),
    ),
    "run.no_better_than_guessing": Rule(
        values={
            "test_accuracy": lambda case, *_: case.f.metric("test_accuracy"),
            "of_guessing": lambda case, *_: 1 / number_of_classes(case),
            "least_loss": lambda case, *_: float(last_losses(case).min()),
            "mean_loss": lambda case, *_: mean_guess(case, None)[0],
            "loss_of_the_mean": lambda case, *_: mean_guess(case, None)[3],
            "loss_of_guessing": lambda case, *_: math.log(number_of_classes(case)),
            "least_possible_loss": lambda case, *_: math.log(number_of_classes(case)),
        },
        place=loss_step(lambda s: numpy.flatnonzero(~s.broken)[-1]),
    ),
    "run.loss_negative": Rule(
        values={
            "median_loss": lambda case, *_: median(last_losses(case)),
            "first_loss": lambda case, *_: float(case.f.steps.loss[0]),
        },
        place=lambda case, tensor, evidence: Step(
            int(case.f.steps.step[0 if "first_loss" in evidence["values"] else numpy.flatnonzero(~case.f.steps.broken)[-1]])
        ),
    ),
    "run.loss_rose": Rule(
        values={
            "median_loss": lambda case, *_: median(case.f.steps.loss[-BLOCK:]),
            "lowest_median_loss": lambda case, *_: lowest_block(case)[0],
        },
        place=lambda case, tensor, evidence: Step(
            int(case.f.steps.step[-1]) if evidence is None or "median_loss" in evidence["values"] else lowest_block(case)[1]
        ),
    ),
    "recording.other_ranks": Rule(place=lambda case, tensor, _=None: None),
    "recording.note": told_by_program("note"),
    "recording.warning": told_by_program("warning"),
}


def nothing(case, said):
    """Of a sentence whose numbers are those of its phrases, or no numbers of the run: what these stand for is said beside its id."""
    return {}


SAID = {
    "loss.nonfinite_steps": nonfinite_losses,
    "run.loss_nonfinite": loss_stays_nonfinite,
    "run.loss_nonfinite.recovered": loss_came_back,
    "run.loss_nonfinite.in_last_step": last_loss_is_nonfinite,
    "advice.look_where_it_began": origin_step,
    "run.diverged.update": large_update,
    "run.diverged.update_may": large_update,
    "run.diverged.nothing_before": nothing_before,
    "run.diverged": nothing,
    "run.diverged.from_the_start": nothing,
    "run.diverged.then": nothing,
    "run.diverged.without_overflow": lambda case, said: Claim(nothing_overflowed=first_nonfinite(case, taken=True) == math.inf),
    "run.diverged.thrown_up": thrown_up,
    "run.diverged.thrown_up.peak": thrown_up_peak,
    "run.diverged.updates_up_to": largest_update,
    "loss.median_over": median_over,
    "loss.one": median_over,
    "loss.went_to_median": went_to_median,
    "loss.went_before_it_broke": went_until_broken,
    "loss.went_before_nonfinite": went_until_nonfinite,
    "loss.went_in_step": went_to_peak,
    "loss.scattered": scattered,
    "loss.scattered_before_nonfinite": scattered,
    "run.update_leapt": large_update,
    "run.update_leapt.before": before_leap,
    "run.update_leapt.first": first_out_of_line,
    "loss.of_the_mean": told_mean_guess,
    "run.no_better_than_guessing.smoothed_far": smoothed_far,
    "run.no_better_than_guessing.yet": nothing,
    "run.no_better_than_guessing.hardly_yet": nothing,
    "run.no_better_than_guessing.wrong_by_far": lambda case, said: Claim(
        {"accuracy": case.f.metric("test_accuracy")}, it_is_right_often=case.f.metric("test_accuracy") >= 2 / number_of_classes(case)
    ),
    "run.no_better_than_guessing.accuracy_yet": test_accuracy,
    "run.no_better_than_guessing.still_falls": still_falls,
    "advice.normalize_inputs": far_from_1,
    "advice.standardize_these_targets": far_from_1,
    "run.no_better_than_guessing.learned_samples": test_accuracy,
    "run.no_better_than_guessing.training_losses": learned_by_heart,
    "run.no_better_than_guessing.test_set": test_accuracy,
    "run.no_better_than_guessing.smoothed_labels": smoothed_labels,
    "run.no_better_than_guessing": nothing,
    "run.no_better_than_guessing.worse": nothing,
    "run.no_better_than_guessing.hardly_better": nothing,
    "run.no_better_than_guessing.accuracy": accuracy_all_the_same,
    "loss.of_guessing": guessing_loss,
    "loss.median_of_guessing": median_of_guessing,
    "advice.begin_with_smaller_weights": lambda case, said: {"first": float(case.f.steps.loss[0])},
    "advice.lower_rate_of_peak": rate_of_peak,
    "advice.features_saturate": nothing,  # 1, near which features are meant to lie
    "run.overfits": overfits,
    "run.overfits.training_loss": training_fell,
    "advice.learns_by_heart": lambda case, said: {"step": min(test_losses(case.f), key=lambda loss: loss[1])[0]},
    "run.test_loss_nonfinite": test_loss,
    "run.test_loss_nonfinite.before": test_losses_before,
    "run.test_loss_nonfinite.statistic": nonfinite_statistic,
    "run.loss_stayed": loss_stayed,
    "run.loss_rose": rise,
    "advice.lower_rate_before": lambda case, said: {"step": lowest_block(case)[1]},
    "run.loss_negative": negative_loss,
    "run.loss_negative.bound": nothing,  # 0, the bound of the function
    "advice.bring_targets_to_1": nothing,  # 0 and 1, the bounds of what it is meant for
    "recording.event": events_told,
    "recording.event_and_more": events_told,
    "recording.memory_changed": changed_memory,
    "recording.memory_changed.bits": bits_changed,
    "recording.memory_changed.times": lambda case, said: {"times": len(case.f.events("memory_changed"))},
    "recording.other_ranks": lambda case, said: {"rank": int(case.f.trace.run("rank")), "ranks": int(case.f.trace.run("world_size"))},
    "verdict.no_problem_until_end": no_problem,
    "verdict.stopped": lambda case, said: {"done": int(case.f.steps.step[-1]) + 1},
    "verdict.trace_ends": lambda case, said: {"done": int(case.f.steps.step[-1]) + 1},
    "verdict.steps": lambda case, said: {"done": int(case.f.steps.step[-1]) + 1},
    "verdict.of_steps": lambda case, said: {"steps": int(case.f.setting("training.steps"))},
    "verdict.cut_short": lambda case, said: {"step": int(case.f.tables.events["step"][case.f.events("cut_short")[0]])},
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
