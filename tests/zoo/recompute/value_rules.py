"""What casts, additions and subtractions lost of what they read, from the measures that samples of elements left."""

import collections
import math

import numpy

from .formats import FORMATS
from .nonfinite_rules import is_called
from .rules import Rule
from .sentences import Claim

FELT, HARMFUL, LEAST = 0.1, 0.5, 2.0**-11
HANDS_ON = ("cast", "copy", "abs", "neg", "relu", "scale", "masked_fill")
NAMES = (
    *("addend_lost", "addend_size", "cancelled", "cancelled_size"),
    *("whole_numbers_rounded", "neighbours_merged", "features_merged", "merged_feature"),
)
ROOTS = {"sqrt": "root", "rsqrt": "root", "log": "logarithm", "pow": "power", "reciprocal": "reciprocal", "div": None}


class Losses:
    def __init__(self, f):
        m, names = f.tables.measures, f.tables.measures.texts("name")
        self.f, self.of = f, collections.defaultdict(lambda: collections.defaultdict(list))
        rows = [row for row in zip(names, m["tensor"].tolist(), m["step"].tolist(), m["value"].tolist()) if row[0] in NAMES]
        self.of_all = collections.defaultdict(lambda: collections.defaultdict(list))
        steps = collections.defaultdict(list)
        for name, tensor, step, value in rows:
            self.of_all[name][tensor].append((step, value))
            steps[tensor].append(step)
        # The last half of the steps in which a tensor has measures.
        begin = {tensor: min(each) + (max(each) - min(each) + 1) // 2 for tensor, each in steps.items()}
        for name, tensor, step, value in rows:
            if step >= begin[tensor]:
                self.of[name][tensor].append((step, value))
        ops = f.tables.ops
        self.function, self.kind, self.name = ops.words("function"), ops.words("kind"), ops.texts("name")
        self.attributes = [dict(each.split("=", 1) for each in text.split() if "=" in each) for text in ops.texts("attributes")]
        self.phase = ops.words("phase")
        self.uses, self.read = collections.defaultdict(set), collections.defaultdict(set)
        for (_, consumer), read in f.trace.inputs.items():
            for number, producer, slot in read:
                self.uses[producer].add((consumer, number, slot))
                self.read[consumer].add(producer)

    def share(self, name, tensor):
        return float(numpy.median([value for _, value in self.of[name][tensor]]))

    def steps(self, name, tensor):
        return len({step for step, _ in self.of[name][tensor]})

    def first(self, name, tensor):
        steps = [step for step, value in sorted(self.of_all[name][tensor]) if value >= FELT]
        return steps[0] if steps else min(step for step, _ in self.of[name][tensor])

    def number(self, op, name):
        """The magnitude of an attribute; infinite where calls differ."""
        try:
            return abs(float(self.attributes[op].get(name, "0")))
        except ValueError:
            return math.inf

    def reader(self, tensor, goes_on, is_found):
        t = self.f.tensors
        reached = [(int(t.op[tensor]), int(t.slot[tensor]))]
        for op, slot in reached:
            for consumer, number, read in sorted(self.uses[op]):
                if slot not in (None, read) or self.phase[consumer] == "backward":
                    continue
                if is_found(consumer, number):
                    return consumer
                if goes_on(op, consumer, number) and consumer not in (each for each, _ in reached):
                    reached.append((consumer, None))
        return None

    def hands_on(self, op, consumer, number, left):
        function, is_alone = self.function[consumer], self.read[consumer] == {op}
        if function == "where":
            return number > 0
        if function == "clamp":
            return self.number(consumer, "min") < left
        if function in ("mul", "div"):
            return number == 0 and is_alone
        if function in ("add", "sub"):
            return is_alone and self.number(consumer, "other") < left
        return function in HANDS_ON or self.name[consumer] == "nan_to_num"

    def root(self, tensor):
        left = self.share("cancelled_size", tensor) if self.of["cancelled_size"][tensor] else 0
        return self.reader(
            tensor,
            lambda op, consumer, number: self.hands_on(op, consumer, number, left),
            lambda op, number: self.takes_root(op, number) and self.reaches_loss(op),
        )

    def reaches_loss(self, op):
        of_loss = {int(self.f.tensors.op[i]) for i in range(self.f.tensors.n) if self.f.tensors.role[i] == "loss"}
        seen, open_ops = {op}, [op]
        while open_ops:
            each = open_ops.pop()
            if each in of_loss:
                return True
            following = {consumer for consumer, _, _ in self.uses[each] if self.phase[consumer] != "backward"} - seen
            seen |= following
            open_ops += following
        return not of_loss

    def makes_angles(self, tensor):
        t = self.f.tensors
        weights = {int(t.op[i]) for i in range(t.n) if t.role[i] in ("weight", "weight_cast")}

        def goes_on(_, op, number):
            function, has_weight = self.function[op], bool(self.read[op] & weights)
            if function == "div":
                return number == 0
            if function == "mul":
                return not has_weight
            return function in ("cast", "copy", "neg", "scale", "cat") or (self.kind[op] == "product" and not has_weight)

        return self.reader(tensor, goes_on, lambda op, _: self.function[op] in ("sin", "cos")) is not None

    def takes_root(self, op, number):
        function = self.function[op]
        if function == "pow":
            exponent = self.attributes[op].get("exponent", "varies")
            return number == 0 and exponent != "varies" and (float(exponent) < 0 or float(exponent) % 1 != 0)
        return function in ROOTS and number == (1 if function == "div" else 0)

    def sources(self, op):
        """What is not elementwise and what the op's value comes from through ops that are."""
        seen, open_ops, sources = {op}, [op], set()
        while open_ops:
            each = open_ops.pop()
            if self.kind[each] not in ("elementwise", "cast") or not self.read[each]:
                sources.add(each)
                continue
            open_ops += self.read[each] - seen
            seen |= self.read[each]
        return sources

    def adds_terms_of_function(self, tensor):
        sources = [self.sources(producer) for producer in self.read[int(self.f.tensors.op[tensor])]]
        return len(sources) < 2 or all(each == sources[0] for each in sources)

    def addends(self):
        shapes = self.f.tables.tensors.texts("shape")
        activations = (t for t in self.of["addend_lost"] if self.f.tensors.role[t] == "activation" and "," in shapes[t])
        return self.largest("addend_lost", [tensor for tensor in activations if not self.adds_terms_of_function(tensor)])

    def cancelled(self):
        found = [t for t in self.of["cancelled"] if self.of["cancelled"][t] and self.share("cancelled", t) >= FELT and self.root(t) is not None]
        return self.largest("cancelled", found)

    def largest(self, name, tensors):
        return sorted(tensors, key=lambda tensor: (-self.share(name, tensor), tensor))


def losses(case):
    return case.once(Losses, lambda: Losses(case.f))


def at_first(case, place, values):
    return Claim(values, it_is_the_first_of_the_evidence=is_called(place, case.first_name))


def lost_addends(case):
    of = losses(case)
    felt = [t for t in of.addends() if of.share("addend_lost", t) >= FELT]
    harmful = [t for t in felt if of.share("addend_lost", t) >= HARMFUL and of.share("addend_size", t) >= LEAST]
    return (HARMFUL, harmful) if harmful else (FELT, felt)


def addend_lost(case, said):
    return at_first(case, said["worst"], {"share": losses(case).share("addend_lost", lost_addends(case)[1][0])})


def other_addends(case, said):
    limit, lost = lost_addends(case)
    return {"others": len(lost) - 1, "limit": limit}


def cancels(case, said):
    return at_first(case, said["place"], {"share": losses(case).share("cancelled", losses(case).cancelled()[0]), "units": 4})


def read_by(case, said):
    of = losses(case)
    reader = of.root(of.cancelled()[0])
    function = ROOTS[of.function[reader]]
    return Claim(
        {},
        the_reader_is_this=said["reader"] == of.f.tables.ops.texts("name")[reader],
        it_does_this=(said.id == "precision.cancellation.divisor") == (function is None) and (function is None or case.said(f"precision.{function}") is not None),
    )


def merged(case, said):
    return at_first(case, said["place"], {"share": losses(case).share("features_merged", case.first_tensor)})


def one_merged(case, said):
    return {"element": sorted(losses(case).of["merged_feature"][case.first_tensor])[0][1]}


def is_of_numbers(case):
    return "rounded" in case.finding["evidence"][0]["values"]


def rounded_numbers(case):
    """The casts of whole numbers that do harm, or else the others."""
    of = losses(case)
    casts = [t for t in of.of["whole_numbers_rounded"] if of.of["whole_numbers_rounded"][t]]
    casts = [t for t in casts if not (of.of["features_merged"][t] and of.share("features_merged", t) > 0)]
    harmful = [t for t in casts if of.makes_angles(t) and (of.share("whole_numbers_rounded", t) >= FELT or of.share("neighbours_merged", t) >= FELT)]
    return of.largest("whole_numbers_rounded", harmful or casts)


def whole_numbers(case, said):
    of, first = losses(case), case.first_tensor
    return at_first(case, said["place"], {"rounded": of.share("whole_numbers_rounded", first), "merged": of.share("neighbours_merged", first)})


def whole_numbers_up_to(case, said):
    return {"limit": 2 ** (FORMATS[case.f.tensors.dtype[case.first_tensor]].fraction_bits + 1)}


def coarse_losses(case):
    """The losses at the end that are numbers of a narrow loss's format: its tensors, the steps and the losses."""
    t, s, phase = case.f.tensors, case.f.steps, losses(case).phase
    narrow = [i for i in range(t.n) if t.role[i] == "loss" and t.is_narrow[i] and t.slot[i] == 0 and phase[t.op[i]] in ("forward", "loss")]
    kept = numpy.flatnonzero(s.known & ~s.broken)[-100:]
    return narrow, s.step[kept], s.loss[kept]


def ulp_of_loss(case, tensor):
    middle = float(numpy.median(coarse_losses(case)[2]))
    return math.ldexp(1.0, math.frexp(middle)[1] - 1 - FORMATS[case.f.tensors.dtype[tensor]].fraction_bits)


def median_move(case, tensor, _):
    return float(numpy.median(numpy.abs(numpy.diff(coarse_losses(case)[2])))) / ulp_of_loss(case, tensor)


def loss_in_steps(case, said):
    tensor, (_, _, values) = case.first_tensor, coarse_losses(case)
    ulp = ulp_of_loss(case, tensor)
    is_coarse = len(values) >= 20 and bool(numpy.all(values / (ulp / 2) % 1 == 0)) and median_move(case, tensor, None) <= 2
    return Claim({"loss": float(numpy.median(values)), "ulp": ulp}, it_is_coarse=is_coarse, it_is_of_it=said["format"] == case.f.format_of(tensor).name.upper())


SAID = {
    "precision.loss_in_steps": loss_in_steps,
    "precision.loss_in_steps.values": lambda case, said: {"losses": len(coarse_losses(case)[2]), "values": len(set(coarse_losses(case)[2]))},
    "precision.addend_lost": addend_lost,
    "precision.addend_lost.others": other_addends,
    "precision.cancellation": cancels,
    "precision.cancellation.reader": read_by,
    "precision.cancellation.divisor": read_by,
    "precision.cancellation.others": lambda case, said: {"others": len(losses(case).cancelled()) - 1},
    "precision.values_merged": merged,
    "precision.values_merged.one": one_merged,
    "precision.values_merged.whole_numbers": whole_numbers,
    "precision.values_merged.limit": whole_numbers_up_to,
    "precision.values_merged.angles": lambda case, said: Claim({}, they_are_of_these=losses(case).makes_angles(case.first_tensor)),
}


def share_of(name):
    return lambda case, tensor, _: losses(case).share(name, tensor)


def steps_of(*names):
    def steps(case, tensor, _):
        return next(losses(case).steps(name, tensor) for name in names if tensor in losses(case).of[name])

    return steps


def first_of(name, tensors):
    return lambda case: min(losses(case).first(name, tensor) for tensor in tensors(case))


RULES = {
    "precision.loss_in_steps": Rule(
        values={
            "ulp": lambda case, tensor, _: ulp_of_loss(case, tensor),
            "median_move_ulps": median_move,
            "values": lambda case, *_: len(set(coarse_losses(case)[2])),
        },
        all_of=lambda case: coarse_losses(case)[0],
        first=lambda case: int(coarse_losses(case)[1][0]),
    ),
    "precision.addend_lost": Rule(
        values={"lost": share_of("addend_lost"), "size": share_of("addend_size"), "measured_steps": steps_of("addend_lost")},
        all_of=lambda case: lost_addends(case)[1],
        first=first_of("addend_lost", lambda case: lost_addends(case)[1]),
    ),
    "precision.cancellation": Rule(
        values={"cancelled": share_of("cancelled"), "measured_steps": steps_of("cancelled")},
        all_of=lambda case: losses(case).cancelled(),
        first=first_of("cancelled", lambda case: losses(case).cancelled()),
    ),
    "precision.values_merged": Rule(
        values={
            "features_merged": share_of("features_merged"),
            "rounded": share_of("whole_numbers_rounded"),
            "neighbours_merged": share_of("neighbours_merged"),
            "measured_steps": steps_of("whole_numbers_rounded", "features_merged"),
        },
        all_of=lambda case: rounded_numbers(case) if is_of_numbers(case) else [case.first_tensor],
        first=lambda case: min(
            losses(case).first("whole_numbers_rounded" if is_of_numbers(case) else "features_merged", tensor)
            for tensor in (rounded_numbers(case) if is_of_numbers(case) else [case.first_tensor])
        ),
    ),
}
