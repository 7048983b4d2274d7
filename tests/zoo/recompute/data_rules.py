"""What is wrong with the data of a run."""

import math

import numpy

from .nonfinite_rules import KINDS, is_called
from .rules import Rule
from .run_rules import loss_step, mean_guess
from .samples import named_element, named_sample, sample_of
from .sentences import Claim

# NaN and Inf.


def bad_data(case, said):
    f = case.f
    tensor = case.first_tensor
    mine = f.rows.bad & f.rows_of(tensor)
    row = f.first_row(mine)
    numbers = {"batches": int(mine.sum())} if "batches" in said.values else {}
    return Claim(
        numbers | ({"step": int(f.rows.step[row])} if "step" in said.values else {}),
        it_came_in_as_data=f.tensors.role[tensor] == "input" and f.tensors.function[tensor] == "source",
        no_rounding_made_it=f.rows.became_infinite[row] == 0,
        it_held_that="kind" not in said.values or KINDS[said["kind"].id] == (bool(f.rows.nan[mine].any()), bool(f.rows.infinite[mine].any())),
        it_is_that_batch="place" not in said.values or is_called(said["place"], case.first_name),
        the_sample_is_that="sample" not in said.values or said["sample"] == bad_sample(case),
        it_is_one_batch="batches" in said.values or "sample" in said.values or int(mine.sum()) == 1,
    )


def bad_sample(case):
    """As reports name it: the sample of the batch that the captured element is of."""
    f = case.f
    c = f.tables.captures
    step = f.rows.step[f.first_row(f.rows.bad & f.rows_of(case.first_tensor))]
    root = next(i for i in range(c.rows) if c["step"][i] == step and c["tensor"][i] == case.first_tensor and c["node"][i] == 0)
    return named_element(f, *sample_of(f, case.first_tensor, root))


def bad_rows(case, tensor, _=None):
    return case.f.first_row(case.f.rows.bad & case.f.rows_of(tensor))


# Batches that are unlike the others.


def outlier_batches(case):
    """Of the rows of an input, sorted by their largest magnitudes, those behind the first gap of a factor of 30 among the last fifth."""
    f, tensor = case.f, case.first_tensor
    rows = numpy.flatnonzero(f.rows_of(tensor) & f.rows.has_values)
    values = numpy.sort(f.rows.largest[rows])
    n = len(values)
    first = next(i for i in range(n - n // 5, n) if values[i - 1] > 0 and values[i] > 30 * values[i - 1])
    outliers = rows[f.rows.largest[rows] >= values[first]]
    return outliers, n, float(values[-1]), float(values[first - 1])


def samples_of_outliers(case):
    """For each of these batches the samples that no other recorded batch has."""
    f = case.f
    b, outliers = f.tables.batches, outlier_batches(case)[0]
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


def captured_sample(case):
    """By a capture that has an element of the first of these batches with its largest magnitude: its name and the sample's number, or None
    twice."""
    f, row = case.f, outlier_batches(case)[0][0]
    c = f.tables.captures
    is_here = (c["step"] == f.rows.step[row]) & (c["micro_batch"] == f.rows.micro_batch[row]) & (c["made_by"] == case.first_tensor)
    nodes = numpy.flatnonzero(is_here & (numpy.abs(c["value"]) == f.rows.largest[row]))
    if not len(nodes):
        return None, None
    element, of_sample, sample, source = sample_of(f, case.first_tensor, nodes[0])
    return named_element(f, element, of_sample, sample, source), sample


def outlier_sample(case, said):
    """The one sample that these batches alone have, or one that was captured."""
    suspects, (outliers, _, _, others) = samples_of_outliers(case), outlier_batches(case)
    captured, number = captured_sample(case)
    is_only = all(each == suspects[0] for each in suspects) and len(suspects[0]) == 1
    name = named_sample(case.f, *min(suspects[0])[::-1]) if is_only else captured
    is_in_all = is_only or all(number in {sample for _, sample in each} for each in suspects)
    return Claim(
        {"largest": float(case.f.rows.largest[outliers[0]]), "others": others},
        it_is_that_sample=said["sample"] == name,
        it_is_in_all_of_them=is_in_all or case.said("data.outlier.first_of_batches") is not None,
        it_is_of_that_batch=is_called(said["place"], case.first_name),
    )


def outlier_counts(case, said):
    outliers, n, largest, others = outlier_batches(case)
    known = {"outliers": len(outliers), "batches": n, "step": int(case.f.rows.step[outliers[0]]), "largest": largest, "others": others}
    return Claim(
        {name: value for name, value in known.items() if name in said.values},
        there_are_so_many="outliers" in said.values or len(outliers) == 1 or said.id == "data.outlier.first_in_step",
        it_is_of_that_batch="place" not in said.values or is_called(said["place"], case.first_name),
    )


def own_samples(case, said):
    suspects = samples_of_outliers(case)
    return Claim(
        {"samples": len(set.union(*suspects))},
        each_has_one=all(len(each) == 1 for each in suspects),
        it_is_the_first=said["sample"] == named_sample(case.f, *min(suspects[0])[::-1]),
    )


def shared_sample(case, said):
    suspects = samples_of_outliers(case)
    shared = set.intersection(*suspects)
    return Claim(
        {"batches": len(suspects)}, there_is_one=len(shared) == 1, it_is_that=said["sample"] == named_sample(case.f, *min(shared)[::-1])
    )


def outliers_overflow(case, said):
    """A cast of the batch to a narrow type makes Inf of some element of it."""
    f = case.f
    outliers = outlier_batches(case)[0]
    casts = [
        i
        for i in range(f.tensors.n)
        if f.tensors.function[i] == "cast"
        and f.tensors.is_plain[i]
        and any(producer == f.tensors.op[case.first_tensor] for _, producer, _ in f.trace.inputs_of(f.tensors.op[i]))
    ]
    fmt = f.format_of(casts[0])
    count = int((f.rows.largest[outliers] >= fmt.largest + fmt.ulp_of_largest / 2).sum())
    numbers = {"batches": count} if "batches" in said.values else {}
    return Claim(numbers | {"format": fmt.name.upper()}, so_many_do=count > 0 and ("batches" in said.values or count == len(outliers)))


def outlier_steps(case):
    return sorted({int(step) for step in case.f.rows.step[outlier_batches(case)[0]]})


def outliers_skipped(case, said):
    s = case.f.steps
    is_of_outlier = numpy.isin(s.step, outlier_steps(case))
    skipped = int((is_of_outlier & s.skipped).sum())
    fell = skipped == int(s.skipped.sum()) and lowest_scale(case) < s.scale_before[0]
    known = {"skipped": skipped, "steps": int(is_of_outlier.sum())}
    return Claim(
        {name: value for name, value in known.items() if name in said.values},
        the_scale_fell_for_these_alone=bool(said["scale"]) == fell,
        so_many_were_skipped="skipped" in said.values or skipped == known["steps"],
    )


def lowest_scale(case):
    s = case.f.steps
    return float(min(s.scale_before.min(), s.scale_after.min()))


# Targets that no output gets to.


def far_targets(case, said):
    of_run, _, mean, cost = mean_guess(case, None)
    return Claim(
        {"mean": mean, "deviation": math.sqrt(cost)},
        they_lie_far=mean**2 > 10 * cost or cost > 1e4,
        it_is_no_better=of_run >= 0.98 * cost,
    )


RULES = {
    "data.nonfinite": Rule(
        values={
            "batches": lambda case, tensor, _: int((case.f.rows.bad & case.f.rows_of(tensor)).sum()),
            "elements": lambda case, tensor, _: int(case.f.sums("nonfinite", case.f.rows.known)[tensor]),
        },
        place=bad_rows,
    ),
    "data.outlier": Rule(
        values={"largest": lambda case, *_: float(case.f.rows.largest[outlier_batches(case)[0][0]])},
        place=lambda case, tensor, _=None: int(outlier_batches(case)[0][0]),
    ),
    "data.targets_far": Rule(
        values={
            "mean_loss": lambda case, *_: mean_guess(case, None)[0],
            "loss_of_the_mean": lambda case, *_: mean_guess(case, None)[3],
        },
        place=loss_step(lambda s: numpy.flatnonzero(~s.broken)[-1]),
    ),
}

SAID = {
    "data.nonfinite": bad_data,
    "data.nonfinite.one_batch": bad_data,
    "data.nonfinite.sample": bad_data,
    "data.nonfinite.batches_hold": bad_data,
    "advice.scale_before_cast": lambda case, said: {
        "format": case.f.format_of(case.first_tensor).name.upper(),
        "largest": case.f.format_of(case.first_tensor).largest,
    },
    "data.nonfinite.harmless": lambda case, said: Claim(
        no_loss_was_nonfinite_in_a_step_that_was_taken=not (case.f.steps.nonfinite & ~case.f.steps.skipped).any(),
        none_of_it_reached_a_weight=not case.f.reached_weights,
    ),
    "data.outlier.sample": outlier_sample,
    "data.outlier.sample_in_one_batch": outlier_counts,
    "data.outlier.sample_in_batches": outlier_counts,
    "data.outlier.first_of_batches": outlier_counts,
    "data.outlier.one_batch": outlier_counts,
    "data.outlier.batches": outlier_counts,
    "data.outlier.in_step": outlier_counts,
    "data.outlier.first_in_step": outlier_counts,
    "data.outlier.own_samples": own_samples,
    "data.outlier.share_sample": shared_sample,
    "data.outlier.one_of_samples": lambda case, said: {"samples": len(set.union(*samples_of_outliers(case)))},
    "data.outlier.overflows": outliers_overflow,
    "data.outlier.overflows_each": outliers_overflow,
    "data.outlier.overflows_once": outliers_overflow,
    "data.outlier.skipped": outliers_skipped,
    "data.outlier.all_skipped": outliers_skipped,
    "data.outlier.step_skipped": outliers_skipped,
    "data.outlier.scale_fell": lambda case, said: {"scale": lowest_scale(case)},
    "data.targets_far": far_targets,
    "data.targets_far.large": far_targets,
    "data.targets_far.not_reached": lambda case, said: {"steps": int((~case.f.steps.broken).sum())},
    "advice.export_lists_batch": lambda case, said: {"step": case.finding["evidence"][0]["key"]["step"]},
}
