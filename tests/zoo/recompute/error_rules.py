"""What ops got wrong by themselves, from the measures that the shadow left."""

import numpy

from .rules import Rule
from .sentences import Claim

FELT, FLOORS = 0.1, 2


class Error:
    """Of an output: the medians over its rows."""

    def __init__(self, injected, floor, steps):
        with numpy.errstate(divide="ignore", invalid="ignore"):
            over = numpy.where(floor > 0, injected / floor, numpy.where(injected > 0, numpy.inf, 1))
        self.injected, self.floor, self.over = (float(numpy.median(each)) for each in (injected, floor, over))
        self.steps, self.first = len(set(steps.tolist())), int(steps.min())
        self.is_felt = self.injected >= FELT and self.over > FLOORS


def errors(case):
    return case.once(Error, lambda: errors_of(case.f))


def errors_of(f):
    m, names = f.tables.measures, f.tables.measures.texts("name")
    rows = {name: numpy.flatnonzero([each == name for each in names]) for name in ("injected_error", "rounding_floor")}
    found = {}
    for tensor in numpy.unique(m["tensor"][rows["injected_error"]]):
        injected, floor = (rows[name][m["tensor"][rows[name]] == tensor] for name in ("injected_error", "rounding_floor"))
        found[int(tensor)] = Error(m["value"][injected], m["value"][floor], m["step"][injected])
    return found


def felt(case):
    return sorted((tensor for tensor, error in errors(case).items() if error.is_felt), key=lambda tensor: -errors(case)[tensor].injected)


def inexact(case, said):
    return Claim({"outputs": len(felt(case)), "all": len(errors(case)), "limit": FELT})


def worst(case, said):
    error = errors(case)[felt(case)[0]]
    return {"error": error.injected, "steps": error.steps, "floor": error.floor}


SAID = {
    "precision.op_error": inexact,
    "precision.op_error.worst": worst,
    "checked.op_errors": lambda case, said: {"steps": max(error.steps for error in errors(case).values())},
}

RULES = {
    "precision.op_error": Rule(
        values={
            "injected_error": lambda case, tensor, _: errors(case)[tensor].injected,
            "rounding_floor": lambda case, tensor, _: errors(case)[tensor].floor,
            "shadowed_steps": lambda case, tensor, _: errors(case)[tensor].steps,
        },
        all_of=felt,
        first=lambda case: min(errors(case)[tensor].first for tensor in felt(case)),
    ),
}
