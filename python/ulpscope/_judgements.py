"""What a checkpoint's numbers say: findings, each a sentence that is true of the file, with the values that it names."""

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from ._checkpoint import Checkpoint, Group, Optimizer, Parameter, Scaler
from ._formats import (BF16, FP16, NAMES, Format, Magnitudes, all_finite, can_be_lost, counted, magnitudes, pieces, power, round_once, said,
                       share, stays, together)

Finding = Dict[str, Any]

_FELT = 0.01  # the part of a norm that is felt, as docs/numerics.md has it
_SEVERITIES = ("error", "warning", "info")
# Within one severity the most harmful come first.
_RANK = ("weights.nonfinite", "states.nonfinite", "scale.nonfinite", "scale.zero", "adam.divides_by_zero", "adam.second_moment_zero",
         "tensors.nonfinite", "range.fp16_overflow", "range.bf16_overflow", "updates.lost", "adam.second_moment_stuck", "scale.below_one",
         "adam.second_moment_subnormal", "range.fp16_underflow", "range.bf16_underflow", "updates.rate_zero",
         "updates.would_be_lost_in_bf16", "adam.second_moment_needs_range", "weights.mask")
_E4M3 = Format("E4M3", 3, 8, -6)
_E4M3_LARGEST = 448.0
_ADAM_STATES = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}


def _finding(code: str, severity: str, title: str, advice: str, **values: Any) -> Finding:
    return {"code": code, "severity": severity, "title": title, "advice": advice, "values": values}


def number(value: Any) -> float:
    return float(value.item()) if isinstance(value, torch.Tensor) else float(value)


def judge(checkpoint: Checkpoint, rate: Optional[float]) -> Tuple[List[Finding], Dict[str, Any]]:
    """The findings, errors first, and the facts of the file."""
    held = [(f"{group.path}/{name}" if len(checkpoint.groups) > 1 and group.path else name, tensor, magnitudes(tensor))
            for group in checkpoint.groups for name, tensor in group.tensors.items()]
    others = [(f"{group.path}/{name}" if group.path else name, tensor, magnitudes(tensor))
              for group in checkpoint.others for name, tensor in group.tensors.items()]
    findings = _nonfinite_weights(held, others) + _ranges(held, scaled=bool(checkpoint.scalers))
    for scaler in checkpoint.scalers:
        findings += _scaler(scaler)
    optimizers = []
    for optimizer in checkpoint.optimizers:
        found, facts = _optimizer(optimizer, rate)
        findings += found
        optimizers.append(facts)
    findings.sort(key=lambda finding: (_SEVERITIES.index(finding["severity"]), _RANK.index(finding["code"])))
    facts = {"weights": _weights(checkpoint.groups), "optimizers": optimizers,
             "scalers": [_scaler_facts(scaler) for scaler in checkpoint.scalers], "formats": _formats(held),
             "left_out": checkpoint.left_out}
    return findings, facts


def _weights(groups: List[Group]) -> Dict[str, Any]:
    tensors = [tensor for group in groups for tensor in group.tensors.values()]
    by_type: Dict[str, int] = {}
    for tensor in tensors:
        name = NAMES.get(tensor.dtype, str(tensor.dtype).replace("torch.", ""))
        by_type[name] = by_type.get(name, 0) + tensor.numel()
    return {"tensors": len(tensors), "elements": sum(by_type.values()), "elements_by_format": by_type}


# ---- NaN and Inf ----

def _held(found: Magnitudes) -> str:
    parts = [f"{found.nan:,} NaN"] * (found.nan > 0) + [f"{found.inf:,} Inf"] * (found.inf > 0)
    return f"{' and '.join(parts)} in {counted(found.elements, 'element')}"


def _others(count: int, what: str, plural: str) -> str:
    return "" if count == 0 else f" {counted(count, 'more ' + what, 'more ' + plural)}"


def _is_mask(name: str, tensor: torch.Tensor, found: Magnitudes) -> bool:
    """A matrix of zeros and infinities alone is added to scores of attention; a vector may be a bias that was never trained."""
    return (tensor.dim() > 1 or "mask" in name) and found.nan == 0 and found.inf > 0 and found.zeros > 0 and found.nonzero == 0


def _rows(tensors: List[Tuple[str, Magnitudes]]) -> List[Dict[str, Any]]:
    return [{"tensor": name, "nan": found.nan, "inf": found.inf, "elements": found.elements} for name, found in tensors]


def _nonfinite_weights(held: List[Tuple[str, torch.Tensor, Magnitudes]], others: List[Tuple[str, torch.Tensor, Magnitudes]]) -> List[Finding]:
    nonfinite = [(name, tensor, found) for name, tensor, found in held if found.nan or found.inf]
    masks = [(name, found) for name, tensor, found in nonfinite if _is_mask(name, tensor, found)]
    bad = [(name, found) for name, tensor, found in nonfinite if not _is_mask(name, tensor, found) and tensor.dim() > 0]
    beside = [(name, found) for name, tensor, found in nonfinite if tensor.dim() == 0]  # as the best value of a metric, which begins as Inf
    beside += [(name, found) for name, _, found in others if found.nan or found.inf]
    findings = []
    if bad:
        findings.append(_finding(
            "weights.nonfinite", "error", _told(bad),
            "Go back to a checkpoint that has none, and record the steps after it (ulpscope.record) to see where they begin.",
            tensors=_rows(bad)))
    if beside:
        findings.append(_finding("tensors.nonfinite", "warning", _told(beside), "Look at what they are: no name or shape says that they are weights.",
                                 tensors=_rows(beside)))
    if masks:
        findings.append(_finding(
            "weights.mask", "info", f"`{masks[0][0]}` holds {_held(masks[0][1])}, and is 0 elsewhere, as a mask is.",
            "Nothing needs to be done where it is one.", tensors=_rows(masks)))
    return findings


def _told(tensors: List[Tuple[str, Magnitudes]]) -> str:
    more = _others(len(tensors) - 1, "tensor holds", "tensors hold")
    return f"`{tensors[0][0]}` holds {_held(tensors[0][1])}.{more and more + ' NaN or Inf.'}"


# ---- Formats ----

def _ranges(held: List[Tuple[str, torch.Tensor, Magnitudes]], scaled: bool) -> List[Finding]:
    findings = []
    for form, narrower in ((FP16, (torch.float16,)), (BF16, (torch.float16, torch.bfloat16))):
        judged = [(name, found) for name, tensor, found in held if tensor.dtype not in narrower and tensor.dtype in NAMES
                  and tensor.element_size() > 1 and found.nonzero]
        over = sorted((each for each in judged if each[1].overflow[form.name]), key=lambda each: -each[1].largest)
        if over:
            name, found = over[0]
            more = _others(len(over) - 1, "tensor overflows", "tensors overflow")
            findings.append(_finding(
                f"range.{form.name.lower()}_overflow", "warning" if scaled and form is FP16 else "info",
                f"{form.name} cannot hold {found.overflow[form.name]:,} of {counted(found.elements, 'element')} of `{name}`: its largest "
                f"magnitude, {said(found.largest)}, exceeds {said(form.largest)} ({form.name} max).{more and more + f' {form.name}.'}",
                "Keep these in FP32" + (", or use BF16, which has FP32's range." if form is FP16 else "."),
                tensors=[{"tensor": name, "overflow": found.overflow[form.name], "elements": found.elements, "largest": found.largest}
                         for name, found in over]))
        felt = sorted((each for each in judged if _lost_norm(each[1], form) > _FELT), key=lambda each: -_lost_norm(each[1], form))
        if felt:
            name, found = felt[0]
            more = _others(len(felt) - 1, "tensor loses", "tensors lose")
            findings.append(_finding(
                f"range.{form.name.lower()}_underflow", "warning" if scaled and form is FP16 else "info",
                f"{form.name} flushes {share(found.flushed[form.name], found.nonzero)} of the nonzero elements of `{name}` to 0: "
                f"{100 * _lost_norm(found, form):.3g}% of its norm.{more and more + ' more than 1%.'}",
                "Keep these in FP32" + (", or use BF16, which has FP32's range." if form is FP16 else "."),
                tensors=[{"tensor": name, "flushed": found.flushed[form.name], "nonzero": found.nonzero,
                          "lost_norm": _lost_norm(found, form)} for name, found in felt]))
    return findings


def _lost_norm(found: Magnitudes, form: Format) -> float:
    """The part of the norm that lies in elements which the format flushes."""
    return math.sqrt(found.flushed_squares[form.name] / found.squares) if found.squares else 0.0


def _formats(held: List[Tuple[str, torch.Tensor, Magnitudes]]) -> List[Dict[str, Any]]:
    total = Magnitudes()
    for _, _, found in held:
        total = together(total, found)
    if total.nonzero == 0:
        return []
    rows = [{"format": form.name, "scaled": False, "nonzero": total.nonzero, "overflow": total.overflow.get(form.name, 0),
             "flushed": total.flushed.get(form.name, 0), "subnormal": total.subnormal.get(form.name, 0)} for form in (FP16, BF16)]
    matrices = [(tensor, found) for _, tensor, found in held if tensor.dim() > 1 and found.nonzero]
    flushed = subnormal = nonzero = 0
    for tensor, found in matrices:
        lost, below = _scaled_e4m3(tensor, found.largest)
        flushed, subnormal, nonzero = flushed + lost, subnormal + below, nonzero + found.nonzero
    if matrices:
        rows.append({"format": "E4M3", "scaled": True, "nonzero": nonzero, "overflow": 0, "flushed": flushed, "subnormal": subnormal})
    return rows


def _scaled_e4m3(tensor: torch.Tensor, largest: float) -> Tuple[int, int]:
    """How many elements E4M3 flushes, and makes subnormal, with the tensor's scale q = 448 / largest in FP32; products are in FP32."""
    scale = torch.tensor(_E4M3_LARGEST, dtype=torch.float32) / torch.tensor(largest, dtype=torch.float32)
    if not bool(scale.isfinite()):
        scale = torch.tensor(torch.finfo(torch.float32).max)
    flushed = subnormal = 0
    for (piece,) in pieces(tensor):
        values = piece.float().abs()
        products = values * scale
        if not float(products.amin()) >= _E4M3.normal_from:
            products = products[(values != 0) & values.isfinite()]
        lost = int((products <= _E4M3.flushed_to).sum())
        flushed, subnormal = flushed + lost, subnormal + int((products < _E4M3.normal_from).sum()) - lost
    return flushed, subnormal


# ---- The loss scale ----

def _scaler_facts(scaler: Scaler) -> Dict[str, Any]:
    return {"path": scaler.path, "scale": number(scaler.state["scale"]), "growth_tracker": int(number(scaler.state["_growth_tracker"])),
            "growth_interval": scaler.state.get("growth_interval")}


def _inverse(scale: float) -> float:
    """1 / scale as GradScaler computes it: in FP64, rounded to FP32."""
    return float(torch.tensor(scale, dtype=torch.float64).reciprocal().float())


def _scaler(scaler: Scaler) -> List[Finding]:
    scale = number(scaler.state["scale"])
    values = _scaler_facts(scaler)
    if math.isnan(scale) or math.isinf(scale):
        return [_finding("scale.nonfinite", "error", f"The loss scale is {said(scale)}, and with it every scaled loss is NaN or Inf.",
                         "Make a new GradScaler instead of loading this one, with a smaller growth_interval or scale.", **values)]
    if math.isinf(_inverse(scale)):
        return [_finding("scale.zero", "error",
                         f"The loss scale is {power(scale)}, and its inverse Inf. GradScaler makes NaN or Inf of finite gradients after its "
                         "check, and takes the step.",
                         "Make a new GradScaler before any further step, and look for the NaN or Inf in gradients that lowered this one "
                         "(ulpscope.record).", **values)]
    if scale < 1:
        return [_finding("scale.below_one", "warning", f"The loss scale is {power(scale)}, below 1: it makes gradients smaller than they are.",
                         "Unless it began there, NaN or Inf in gradients lowered it. Record some steps (ulpscope.record) to see where they "
                         "come from. BF16 needs no loss scale.", **values)]
    return []


# ---- Optimizers ----

class _Rule(NamedTuple):
    """How a step follows from the states: `name`, and the step of a piece without the weight's decay, in FP64."""

    name: str
    states: Tuple[str, ...]
    step: Callable[..., torch.Tensor]


def _rule(parameter: Parameter) -> Optional[_Rule]:
    state, group = parameter.state, parameter.group
    names = {name for name, value in state.items() if value is not None}
    if {"step", "exp_avg", "exp_avg_sq"} <= names <= _ADAM_STATES and {"betas", "eps", "lr", "amsgrad"} <= set(group):
        second = "max_exp_avg_sq" if group["amsgrad"] and "max_exp_avg_sq" in names else "exp_avg_sq"
        taken = number(state["step"])
        if taken < 1:
            return None
        first_share, second_share = (number(beta) for beta in group["betas"])
        first_part, second_part, eps = 1 - first_share**taken, 1 - second_share**taken, number(group["eps"])

        def adam(rate: float, mean: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
            return -rate * (mean / first_part) / ((square / second_part).sqrt() + eps)

        return _Rule("Adam", ("exp_avg", second), adam)
    if names == {"momentum_buffer"} and {"momentum", "nesterov", "lr"} <= set(group) and not group["nesterov"]:
        return _Rule("SGD", ("momentum_buffer",), lambda rate, buffer: -rate * buffer)
    return None


class _Lost(NamedTuple):
    """Of one parameter: its nonzero steps, and how many of them leave its elements as they are, now and were it in BF16."""

    name: str
    format: str
    steps: int
    lost: int
    lost_in_bf16: int


def _optimizer(optimizer: Optimizer, rate: Optional[float]) -> Tuple[List[Finding], Dict[str, Any]]:
    parameters = [parameter for parameter in optimizer.parameters if parameter.state]
    rules = [(parameter, _rule(parameter)) for parameter in parameters]
    known = [(parameter, rule) for parameter, rule in rules if rule is not None]
    names = sorted({rule.name for _, rule in known})
    rates = sorted({number(parameter.group["lr"]) for parameter in optimizer.parameters if "lr" in parameter.group})
    steps = sorted({int(number(parameter.state["step"])) for parameter in parameters if "step" in parameter.state})
    facts: Dict[str, Any] = {"path": optimizer.path, "rule": names[0] if len(names) == 1 else "", "parameters": len(optimizer.parameters),
                             "with_state": len(parameters), "steps": steps[-1] if steps else None, "rates": rates, "matched": optimizer.matched,
                             "updates": None}
    findings = _nonfinite_states(parameters)
    adam = [(parameter, rule) for parameter, rule in known if rule.name == "Adam" and _shaped(parameter, rule)]
    findings += _zero_moments(adam) + _stuck_moments(adam) + _narrow_moments(adam)
    lost = []
    for parameter, rule in known:
        asked = number(parameter.group["lr"]) if rate is None else rate
        if parameter.weight is not None and can_be_lost(parameter.weight.dtype) and _shaped(parameter, rule) and asked > 0:
            lost.append(_lost(parameter, rule, asked))
    if lost:
        facts["updates"] = [each._asdict() for each in lost]
        judged = [each for each in rates if each > 0] if rate is None else [rate]
        findings += _lost_updates(lost, names[0] if len(names) == 1 else "optimizer", judged)
    elif known and optimizer.matched and rate is None and rates and rates[-1] == 0:
        findings.append(_finding("updates.rate_zero", "info", "The learning rate in the file is 0, and so is every step.",
                                 "Give the rate of further training to see which steps would be lost: --lr RATE.", rates=rates))
    return findings, facts


def _shaped(parameter: Parameter, rule: _Rule) -> bool:
    tensors = [parameter.state[name] for name in rule.states]
    shape = tensors[0].shape if parameter.weight is None else parameter.weight.shape
    return all(isinstance(each, torch.Tensor) and each.shape == shape and each.is_floating_point() for each in tensors)


def _nonfinite_states(parameters: List[Parameter]) -> List[Finding]:
    bad = []
    for parameter in parameters:
        for name, value in parameter.state.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided and value.numel():
                found = magnitudes(value)
                if found.nan or found.inf:
                    bad.append((f"{parameter.name} {name}", found))
    if not bad:
        return []
    more = _others(len(bad) - 1, "state holds", "states hold")
    return [_finding("states.nonfinite", "error", f"The optimizer's `{bad[0][0]}` holds {_held(bad[0][1])}.{more and more + ' NaN or Inf.'}",
                     "Go back to a checkpoint that has none. Where the weights are finite, training can go on from them with a new optimizer.",
                     tensors=_rows(bad))]


def _second(parameter: Parameter, rule: _Rule) -> torch.Tensor:
    return parameter.state[rule.states[1]]


def _zero_moments(adam: List[Tuple[Parameter, _Rule]]) -> List[Finding]:
    rows: List[Dict[str, Any]] = []
    divided: List[Dict[str, Any]] = []
    for parameter, rule in adam:
        mean, square = parameter.state["exp_avg"], _second(parameter, rule)
        count, largest = 0, 0.0
        for first, second in pieces(mean, square):
            there = (second == 0) & (first != 0) & first.isfinite()
            if bool(there.any()):
                count += int(there.sum())
                largest = max(largest, float(first[there].double().abs().max()))
        if count == 0:
            continue
        eps, taken = number(parameter.group["eps"]), number(parameter.state["step"])
        row: Dict[str, Any] = {"parameter": parameter.name, "elements": count, "of": square.numel(), "format": NAMES.get(square.dtype, str(square.dtype)),
               "eps": eps}
        if eps == 0 or (square.dtype is torch.float16 and eps <= FP16.flushed_to):
            divided.append(row)
        else:
            rows.append({**row, "largest_step": largest / (1 - number(parameter.group["betas"][0])**taken) / eps})
    findings = []
    if divided:
        row = divided[0]
        findings.append(_finding(
            "adam.divides_by_zero", "error",
            f"The second moment of {row['elements']:,} of {counted(row['of'], 'element')} of `{row['parameter']}` is 0, and the first is not. "
            + ("Eps is 0, too: an Adam step divides by 0." if row["eps"] == 0 else
               f"In FP16 eps = {row['eps']:g} is 0: an Adam step computed in FP16 divides by 0."),
            "Raise eps." if row["eps"] == 0 else "Keep Adam's states in FP32, or raise eps.", parameters=divided))
    if rows:
        rows.sort(key=lambda row: -row["largest_step"])
        row = rows[0]
        findings.append(_finding(
            "adam.second_moment_zero", "warning" if row["largest_step"] > 10 else "info",
            f"The second moment of {row['elements']:,} of {counted(row['of'], 'element')} of `{row['parameter']}` ({row['format']}) is 0, and the "
            f"first is not. An Adam step there is up to {said(row['largest_step'])} times the learning rate.",
            "Keep exp_avg_sq in FP32: a square underflows long before its gradient does." if row["format"] != "FP32"
            else "Gradients of a magnitude below 2^-74 have squares that are 0 in FP32. Look at what makes them so small.", parameters=rows))
    return findings


def _stuck_moments(adam: List[Tuple[Parameter, _Rule]]) -> List[Finding]:
    """A finding for each format and beta2 with which most second moments of some parameters are stuck."""
    found: Dict[Tuple[str, float], List[Dict[str, Any]]] = {}
    for parameter, _ in adam:
        square = parameter.state["exp_avg_sq"]
        if square.dtype not in (torch.bfloat16, torch.float16):
            continue
        share_kept = number(parameter.group["betas"][1])
        nonzero = stuck = 0
        for (second,) in pieces(square):
            there = (second != 0) & second.isfinite()
            nonzero += int(there.count_nonzero())
            stuck += int((there & (second * share_kept == second)).count_nonzero())
        if 2 * stuck > nonzero:
            found.setdefault((NAMES[square.dtype], share_kept), []).append(
                {"parameter": parameter.name, "elements": stuck, "nonzero": nonzero})
    findings = []
    for (name, share_kept), rows in found.items():
        stuck, nonzero = sum(row["elements"] for row in rows), sum(row["nonzero"] for row in rows)
        findings.append(_finding(
            "adam.second_moment_stuck", "warning",
            f"{name} second moments cannot fall: {share_kept:g} v rounds back to v in {stuck:,} of {nonzero:,} nonzero elements of "
            f"{counted(len(rows), 'parameter')}. Each keeps the size that the largest gradients gave it, and steps stay as short.",
            f"Keep exp_avg_sq in FP32, or lower beta2: at {'1 - 2^-8' if name == 'BF16' else '1 - 2^-11'} or below every normal number falls.",
            format=name, beta2=share_kept, elements=stuck, nonzero=nonzero, parameters=rows))
    return findings


def _narrow_moments(adam: List[Tuple[Parameter, _Rule]]) -> List[Finding]:
    """Second moments that FP16 holds as subnormal numbers, or would flush."""
    total, stored = Magnitudes(), Magnitudes()
    for parameter, rule in adam:
        found = magnitudes(_second(parameter, rule))
        if _second(parameter, rule).dtype is torch.float16:
            stored = together(stored, found)
        else:
            total = together(total, found)
    findings = []
    subnormal = stored.subnormal.get("FP16", 0)
    if 100 * subnormal > stored.nonzero:
        findings.append(_finding(
            "adam.second_moment_subnormal", "warning",
            f"{share(subnormal, stored.nonzero)} of the nonzero second moments in FP16 are subnormal ({subnormal:,} of {stored.nonzero:,}): "
            "they have fewer than 11 bits, and smaller ones are 0.", "Keep exp_avg_sq in FP32.", subnormal=subnormal, nonzero=stored.nonzero))
    flushed = total.flushed.get("FP16", 0)
    if 100 * flushed > total.nonzero:
        findings.append(_finding(
            "adam.second_moment_needs_range", "info",
            f"FP16 would flush {share(flushed, total.nonzero)} of the second moments to 0: {flushed:,} of {total.nonzero:,} that are not 0.",
            "Keep exp_avg_sq in FP32.", flushed=flushed, nonzero=total.nonzero))
    return findings


def _lost(parameter: Parameter, rule: _Rule, rate: float) -> _Lost:
    weight = parameter.weight
    assert weight is not None
    steps = lost = lost_in_bf16 = 0
    for piece, *states in pieces(weight, *(parameter.state[name] for name in rule.states)):
        change = rule.step(rate, *(state.double() for state in states))
        there = change != 0
        if not (all_finite(change) and all_finite(piece)):
            there &= change.isfinite() & piece.isfinite()
        steps += int(there.count_nonzero())
        lost += int((stays(piece, change) & there).count_nonzero())
        if weight.dtype is torch.float32:
            lost_in_bf16 += int((stays(round_once(piece, torch.bfloat16), change) & there).count_nonzero())
    return _Lost(parameter.name, NAMES[weight.dtype], steps, lost, lost_in_bf16 if weight.dtype is torch.float32 else lost)


def _lost_updates(lost: List[_Lost], rule: str, rates: List[float]) -> List[Finding]:
    findings = []
    at = f"At learning rate {rates[0]:g}" if len(rates) == 1 else f"At learning rates from {rates[0]:g} to {rates[-1]:g}"
    for name in ("BF16", "FP16", "FP32"):
        of_format = [each for each in lost if each.format == name and each.steps]
        most = sorted((each for each in of_format if 2 * each.lost > each.steps), key=lambda each: -each.lost / each.steps)
        if not most:
            continue
        gone, steps = sum(each.lost for each in of_format), sum(each.steps for each in of_format)
        advice = ("FP32 holds no smaller step: the rate or the gradients are too small to change these weights." if name == "FP32" else
                  "Keep FP32 weights (autocast leaves them in FP32) or FP32 master weights, or round stochastically.")
        findings.append(_finding(
            "updates.lost", "info" if name == "FP32" else "warning",
            f"{at}, {share(gone, steps)} of the states' {rule} steps round to nothing: w + d = w in {name} for {gone:,} of "
            f"{counted(steps, 'element')}. {len(most):,} of {counted(len(of_format), 'parameter')} would lose more than half "
            f"(worst: `{most[0].name}`, {share(most[0].lost, most[0].steps)}).",
            advice, format=name, lost=gone, steps=steps, rates=rates, rule=rule,
            parameters=[{"parameter": each.name, "lost": each.lost, "steps": each.steps} for each in most]))
    wide_ones = [each for each in lost if each.format == "FP32" and each.steps]
    gone, steps = sum(each.lost_in_bf16 for each in wide_ones), sum(each.steps for each in wide_ones)
    if 2 * gone > steps:
        findings.append(_finding(
            "updates.would_be_lost_in_bf16", "info",
            f"{at}, BF16 weights would lose {share(gone, steps)} of the states' {rule} steps: {gone:,} of {steps:,}.",
            "Keep the weights in FP32, as autocast does, or keep FP32 master weights.", lost=gone, steps=steps, rates=rates, rule=rule))
    return findings

