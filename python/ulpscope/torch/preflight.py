"""Preflight: one training step in FP32, BF16 and FP16 from the same weights, on copies, and which of them can be used."""

import contextlib
import copy
import html
import math
import random
import sys
import textwrap
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

from .._formats import FP16, FP32, BF16, all_finite, counted, power, said, share, stays
from .._library import Error
from .backward import leaves_below
from .given import bare, unwrapped
from .leaves import tensors_in

_WIDTH = 120
_ROWS = 10  # modules that the text lists
_FELT = 0.01  # the part of a gradient's norm that is felt, as docs/numerics.md has it
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_FORMATS = {"fp32": FP32, "bf16": BF16, "fp16": FP16}
_Call = Tuple[str, int]  # the name of a module, and which of its calls


class _Seen(NamedTuple):
    """What tensors held."""

    elements: int = 0
    nan: int = 0
    inf: int = 0
    largest: float = 0.0  # of the finite magnitudes

    def and_(self, other: "_Seen") -> "_Seen":
        return _Seen(self.elements + other.elements, self.nan + other.nan, self.inf + other.inf, max(self.largest, other.largest))

    @property
    def finite(self) -> bool:
        return self.nan == 0 and self.inf == 0


class _Change(NamedTuple):
    """A parameter before and after the optimizer's step."""

    before: torch.Tensor
    after: torch.Tensor


class _Step:
    """What one step did, in one format."""

    def __init__(self) -> None:
        self.loss = math.nan
        self.outputs: Dict[_Call, _Seen] = {}  # in order of execution
        self.running: List[Tuple[str, bool]] = []  # modules that have begun, and whether NaN or Inf came in
        self.makers: Dict[_Call, str] = {}  # the innermost module that ran and that no NaN or Inf had come into
        self.output_gradients: Dict[str, _Seen] = {}
        self.unscaled: Dict[str, torch.Tensor] = {}  # gradients without a loss scale, by the names of parameters
        self.gradients: Dict[str, torch.Tensor] = {}  # with it, as they were before they were unscaled
        self.sparse: Dict[str, torch.Tensor] = {}  # those of the last pass that are sparse, as optimizers expect them
        self.scale: Optional[float] = None  # the first one of the given one and its halves at which they are finite; None: none
        self.changes: Dict[str, _Change] = {}


class Preflight:
    """What one training step in each format did.

    .verdict: by format ("fp32", "bf16", "fp16"): "ok", "warning" or "broken"; .reasons: sentences, by format.
    .modules: a dict for each module that ran and each format, in order of execution:
      module, type, format; elements, nan, inf and largest of its outputs; gradient_nan and gradient_inf of their gradients;
      gradients: how many elements of its own parameters' gradients are not 0 in FP32; underflow and underflow_scaled: how many of
      these are 0 in the format, without and with the loss scale; updates: how many elements of its own parameters the FP32 step
      changed; updates_lost: how many of these the step leaves as they are where weights are in the format. None: not known, or it does
      not apply.
    .scale: the loss scale of FP16's step; None: gradients were finite at none, or FP16 was not tried.
    .text: all of this as text."""

    def __init__(self, model: torch.nn.Module, batch: Any, loss_fn: Callable[[torch.nn.Module, Any], torch.Tensor], optimizer: Any = None, *,
                 formats: Sequence[str] = ("fp32", "bf16", "fp16"), cast: str = "autocast", scale: float = 2.0**16) -> None:
        """Runs the steps on deep copies; the model, the optimizer, the batch, gradients and random numbers stay as they are.

        model: a module, on any device. batch: whatever loss_fn takes: a tensor, or tuples, lists and dicts of tensors, on the model's device.
        loss_fn(model, batch): runs the model that it is given, and returns the loss, one element; without autocast of its own.
        optimizer: one over parameters of the model, for the updates; None: none are made.
        formats: those to try besides FP32, which always runs. cast: "autocast" leaves weights in FP32, "model" casts the whole model and the
        floating-point tensors of the batch that have its type. scale: FP16's loss scale, a power of two from 1 on, halved while gradients overflow.

        Raises TypeError or ValueError for other arguments, ulpscope.Error where the model cannot be copied, and what the step in FP32 raises;
        a step in another format that raises is broken."""
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model is no torch.nn.Module: {type(model).__name__}")
        unknown = [name for name in formats if name not in _DTYPES]
        if unknown:
            raise ValueError(f'formats has {unknown[0]!r}; expected some of "fp32", "bf16" and "fp16"')
        if cast not in ("autocast", "model"):
            raise ValueError(f'cast is neither "autocast" nor "model": {cast}')
        if not (math.isfinite(scale) and scale >= 1 and math.frexp(scale)[0] == 0.5):
            raise ValueError(f"scale is no power of two from 1 on: {scale}")
        model, optimizer = unwrapped(model), bare(optimizer)
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer is no torch.optim.Optimizer: {type(optimizer).__name__}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("optimizer is LBFGS, which takes more than one step at a time; give none, and no updates are judged")
        tensors = list(model.parameters())
        if not any(tensor.requires_grad for tensor in tensors):
            raise ValueError("model has no parameter that requires gradients")
        self._device = tensors[0].device
        self._type = next(tensor.dtype for tensor in tensors if tensor.is_floating_point())
        self._cast, self._asked = cast, scale
        self._types = {name: type(module).__name__ for name, module in model.named_modules()}
        self._owners = {f"{prefix}.{name}" if prefix else name: prefix for prefix, module in model.named_modules()
                        for name, _ in module.named_parameters(recurse=False)}
        self._updates = optimizer is not None
        self.scale: Optional[float] = None
        self.modules: List[Dict[str, Any]] = []
        self.verdict: Dict[str, str] = {}
        self.reasons: Dict[str, List[str]] = {}
        reference = self._run("fp32", model, batch, loss_fn, optimizer)
        self._add("fp32", reference, reference)
        for name in ("bf16", "fp16"):
            if name not in formats:
                continue
            try:
                step = self._run(name, model, batch, loss_fn, optimizer)
            except Exception as error:  # as of an op that the type does not have
                first = (str(error).strip() or "no message").splitlines()[0]
                self.verdict[name], self.reasons[name] = "broken", [f"The step raises {type(error).__name__}: {first}"]
                continue
            self.scale = step.scale if name == "fp16" else None
            self._add(name, step, reference)

    def _add(self, name: str, step: _Step, reference: _Step) -> None:
        counts = _compared(reference, step, name, self._cast)
        self.modules += self._rows(name, step, counts)
        self.verdict[name], self.reasons[name] = self._judge(name, step, reference, _Counts.total(list(counts.values())))

    # ---- Steps ----

    def _run(self, name: str, model: torch.nn.Module, batch: Any, loss_fn: Callable[..., Any], optimizer: Any) -> _Step:
        theirs = {id(parameter) for parameter in model.parameters()}
        try:
            model, optimizer = copy.deepcopy((model, optimizer))  # together, so that the copy steps the copies of the parameters
        except Exception as error:
            raise Error(f"the model or the optimizer cannot be copied: {type(error).__name__}: {error}") from error
        dtype = _DTYPES[name] if self._cast == "model" else torch.float32
        model.to(dtype)
        batch = _copied(batch, self._type, dtype)
        if optimizer is not None:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape == parameter.shape and key != "step":
                        state[key] = value.to(dtype)
        parameters = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
        step = _Step()
        handles = [handle for key, module in model.named_modules() for handle in _hook(module, key, step)]
        with _forked(self._device), torch.enable_grad(), _eager():
            autocast = name != "fp32" and self._cast == "autocast"
            with torch.autocast(self._device.type, dtype=_DTYPES[name] if autocast else None, enabled=autocast):
                loss = loss_fn(model, batch)
            if not (isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad):
                raise ValueError(f"loss_fn gave {_described(loss)}; expected a tensor with one element that requires gradients")
            for handle in handles:
                handle.remove()
            if any(id(leaf) in theirs for leaf in leaves_below([loss])):
                raise ValueError("loss_fn ran another model than the one that it was given: the loss depends on parameters of the original")
            step.loss = float(loss.detach())
            for parameter in model.parameters():
                parameter.grad = None
            step.unscaled = _backward(loss, 1.0, parameters, step)
            step.gradients, step.scale = step.unscaled, 1.0
            if name == "fp16" and math.isfinite(step.loss):
                self._scaled(loss, parameters, step)
            if not all(all_finite(gradient) for gradient in step.gradients.values()):
                step.scale = None
            if optimizer is not None and step.scale is not None:
                self._update(optimizer, parameters, step)
        return step

    def _scaled(self, loss: torch.Tensor, parameters: Dict[str, torch.nn.Parameter], step: _Step) -> None:
        """Gradients at the loss scale, halved as GradScaler does it while some overflow, down to 1."""
        scale = self._asked
        while True:
            step.gradients, step.scale = _backward(loss, scale, parameters, step), scale
            if scale == 1 or all(all_finite(gradient) for gradient in step.gradients.values()):
                return
            scale /= 2

    def _update(self, optimizer: torch.optim.Optimizer, parameters: Dict[str, torch.nn.Parameter], step: _Step) -> None:
        assert step.scale is not None
        for key, gradient in step.gradients.items():
            parameters[key].grad = step.sparse.get(key, gradient) / step.scale
        before = {key: parameter.detach().clone() for key, parameter in parameters.items()}
        optimizer.step()
        step.changes = {key: _Change(before[key], parameter.detach()) for key, parameter in parameters.items()}

    # ---- What they say ----

    def _rows(self, name: str, step: _Step, counts: Dict[str, "_Counts"]) -> List[Dict[str, Any]]:
        outputs: Dict[str, _Seen] = {}
        for (module, _), seen in step.outputs.items():
            outputs[module] = outputs.get(module, _Seen()).and_(seen)
        finite_unscaled = all(all_finite(gradient) for gradient in step.unscaled.values())
        rows = []
        for module, seen in outputs.items():
            own = [count for key, count in counts.items() if self._owners.get(key) == module]
            total = _Counts.total(own)
            gradient = step.output_gradients.get(module, _Seen())
            rows.append({
                "module": module, "type": self._types[module], "format": name, "elements": seen.elements, "nan": seen.nan, "inf": seen.inf,
                "largest": seen.largest, "gradient_nan": gradient.nan, "gradient_inf": gradient.inf, "gradients": total.gradients if own else None,
                "underflow": total.underflow if own and finite_unscaled else None,
                "underflow_scaled": total.underflow_scaled if own and name == "fp16" and step.scale is not None else None,
                "updates": total.updates if own and self._updates else None,
                "updates_lost": total.updates_lost if own and self._updates and name != "fp32" else None})
        return rows

    def _judge(self, name: str, step: _Step, reference: _Step, total: "_Counts") -> Tuple[str, List[str]]:
        form = _FORMATS[name]
        told = f"The loss is {said(step.loss)}" + ("." if name == "fp32" else f" (FP32: {said(reference.loss)}).")
        first = next(((call, seen) for call, seen in step.outputs.items() if not seen.finite
                      and (name == "fp32" or reference.outputs.get(call, _Seen()).finite)), None)
        reasons = [told]
        if first is not None and (name != "fp32" or not math.isfinite(step.loss) or step.scale is None):  # else a mask took it
            reasons += self._overflow(name, first, step.makers.get(first[0]), reference)
        if not math.isfinite(step.loss):
            return "broken", reasons
        if step.scale is None:
            bad = [key for key, gradient in step.gradients.items() if not all_finite(gradient)]
            told = f"those of {counted(len(bad), 'parameter')} (first: `{bad[0]}`)"
            if name == "fp16" and self._asked > 1:
                return "broken", reasons + [f"Gradients hold NaN or Inf at every loss scale from {power(self._asked)} down to 1, at 1 {told}."]
            return "broken", reasons + [f"Gradients hold NaN or Inf: {told}."]
        spoiled = [key for key, change in step.changes.items() if not all_finite(change.after)]
        if spoiled:
            return "broken", reasons + [f"The optimizer's step makes NaN or Inf of `{spoiled[0]}`" + (
                f" and {counted(len(spoiled) - 1, 'more parameter')}." if len(spoiled) > 1 else ".") + (
                " Keep FP32 weights, by autocast, or FP32 master weights." if self._cast == "model" and name != "fp32" else "")]
        verdict = "ok"
        if name != "fp32":
            verdict, more = self._underflow(name, step, total)
            verdict = "ok" if verdict == "ok" and first is None else "warning"
            reasons += more
        if name != "fp32" and total.updates and (name == "bf16" or self._cast == "model"):
            lost = f"{share(total.updates_lost, total.updates)} of the elements that the FP32 step changes"
            if self._cast == "model":
                reasons.append(f"The step in {form.name} leaves {lost} as they are.")
                if 2 * total.updates_lost > total.updates:
                    verdict = "warning"
                    reasons.append("Keep FP32 weights, by autocast, or FP32 master weights.")
            elif total.updates_lost:
                reasons.append(f"BF16 weights would keep {lost}: autocast's FP32 weights do not.")
        return verdict, reasons

    def _overflow(self, name: str, first: Tuple[_Call, _Seen], maker: Optional[str], reference: _Step) -> List[str]:
        (module, place), seen = first
        form = _FORMATS[name]
        held = " and ".join([f"{seen.nan:,} NaN"] * (seen.nan > 0) + [f"{seen.inf:,} Inf"] * (seen.inf > 0))
        held += f" in {counted(seen.elements, 'element')}"
        where, is_itself = self._place(module), maker in (None, module)
        sentence = f"The output of {where} is the first that holds NaN or Inf"
        before = [] if is_itself else [f"They came in with its inputs: {self._place(maker or '')} made them in ops of its own."]
        if name == "fp32":
            return [f"{sentence}: {held}."] + before
        wide = reference.outputs.get((module, place), _Seen())
        known = f"; FP32's largest magnitude is {said(wide.largest)} there ({form.name} max {said(form.largest)})"
        kept = where if is_itself else f"these ops of {self._place(maker or '')}"
        advice = [] if name == "bf16" else [f"Loss scaling does not affect forward values. Keep {kept} in FP32, or use BF16."]
        return [f"{sentence} where FP32 has none: {held}{known if wide.elements and is_itself else ''}."] + before + advice

    def _place(self, module: str) -> str:
        return f"`{module}` ({self._types[module]})" if module else f"the model ({self._types[module]})"

    def _underflow(self, name: str, step: _Step, total: "_Counts") -> Tuple[str, List[str]]:
        def part(count: int, squares: float) -> str:
            return share(count, total.gradients) + (f" ({100 * _root(squares, total.squares):.2g}% of the norm)" if count else "")

        form = _FORMATS[name]
        if total.gradients == 0:
            return "ok", []
        start = f"Of FP32's nonzero gradient elements, {part(total.underflow, total.underflow_squares)} are 0 in {form.name}"
        if name == "bf16":
            return "warning" if _root(total.underflow_squares, total.squares) > _FELT else "ok", [f"{start}."]
        assert step.scale is not None
        if not all(all_finite(gradient) for gradient in step.unscaled.values()):
            start = "Without a loss scale gradients hold NaN or Inf; of FP32's nonzero elements,"
        else:
            start += " without a loss scale"
        scaled = f"{part(total.underflow_scaled, total.underflow_scaled_squares)}{' are 0' if start[-1] == ',' else ''} at {power(step.scale)}"
        reasons = [f"{start}." if step.scale == 1 else f"{start} {scaled}." if start[-1] == "," else f"{start}, and {scaled}."]
        if step.scale != self._asked:
            halvings = round(math.log2(self._asked / step.scale))
            reasons.append(f"At larger scales, from {power(self._asked)} down, gradients hold NaN or Inf: a GradScaler that begins there skips "
                           f"{counted(halvings, 'step')} like this one.")
        felt = _root(total.underflow_scaled_squares, total.squares) > _FELT
        if felt:
            reasons.append("Use BF16, which has FP32's range" + (", or a larger scale." if step.scale == self._asked else
                                                                 ": larger scales overflow."))
        return "warning" if felt else "ok", reasons

    @property
    def text(self) -> str:
        """The verdicts, their reasons, and the modules that lose most."""
        lines = []
        for name, verdict in self.verdict.items():
            label = f"{_FORMATS[name].name}  {verdict.upper()}: "
            lines += textwrap.wrap(" ".join(self.reasons[name]), _WIDTH, initial_indent=label, subsequent_indent="      ",
                                   break_long_words=False, break_on_hyphens=False)
        return "\n".join(lines + self._table()) + "\n"

    def _table(self) -> List[str]:
        by_module: Dict[str, Dict[str, Dict[str, Any]]] = {}
        for row in self.modules:
            by_module.setdefault(row["module"], {})[row["format"]] = row
        shown = [(module, rows) for module, rows in by_module.items() if any(
            row["nan"] or row["inf"] or row["gradients"] is not None for row in rows.values())]
        shown.sort(key=lambda item: _badness(item[1]), reverse=True)
        if not shown:
            return []
        table = [["Modules", "largest output", "FP16 NaN, Inf", "FP16 gradients to 0", "with the scale", "BF16 updates lost"]]
        for module, rows in shown[:_ROWS]:
            half, brain = rows.get("fp16", {}), rows.get("bf16", {})
            table.append([f"{module or '(the model)'} ({self._types[module]})", said(rows["fp32"]["largest"]) if "fp32" in rows else "-",
                          f"{half['nan']:,}, {half['inf']:,}" if half else "-",
                          _shared(half, "underflow", "gradients"), _shared(half, "underflow_scaled", "gradients"),
                          _shared(brain, "updates_lost", "updates")])
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        lines = ["  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]) for row in table]
        left = len(shown) - _ROWS
        return lines + ([f"{counted(left, 'more module')}: .modules"] if left > 0 else [])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ulpscope preflight: {', '.join(f'{name} {verdict}' for name, verdict in self.verdict.items())}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class _Counts(NamedTuple):
    """Of a parameter: elements, and sums of squares of FP32's gradient."""

    gradients: int = 0
    squares: float = 0.0
    underflow: int = 0
    underflow_squares: float = 0.0
    underflow_scaled: int = 0
    underflow_scaled_squares: float = 0.0
    updates: int = 0
    updates_lost: int = 0

    @staticmethod
    def total(counts: List["_Counts"]) -> "_Counts":
        return _Counts(*(sum(column) for column in zip(*counts))) if counts else _Counts()


def _compared(reference: _Step, step: _Step, name: str, cast: str) -> Dict[str, _Counts]:
    """What the format's gradients and updates have lost of FP32's, by the names of parameters."""
    counts = {}
    for key, gradient in reference.unscaled.items():
        wide = gradient.double()
        nonzero = (wide != 0) & wide.isfinite()

        def lost(gradients: Dict[str, torch.Tensor]) -> Tuple[int, float]:
            gone = nonzero & (gradients[key] == 0) if key in gradients else nonzero
            return int(gone.count_nonzero()), float(wide[gone].square().sum())

        updates, updates_lost = 0, 0
        if key in reference.changes:
            before, after = reference.changes[key]
            change = after.double() - before.double()
            moved = (change != 0) & change.isfinite()
            updates = int(moved.count_nonzero())
            if name == "fp32":
                same = torch.zeros_like(moved)
            elif cast == "autocast":
                same = stays(before.to(_DTYPES[name]), change) if before.dtype is torch.float32 else torch.zeros_like(moved)
            else:
                same = step.changes[key].before == step.changes[key].after if key in step.changes else torch.zeros_like(moved)
            updates_lost = int((moved & same).count_nonzero())
        counts[key] = _Counts(int(nonzero.count_nonzero()), float(wide[nonzero].square().sum()), *lost(step.unscaled), *lost(step.gradients),
                              updates, updates_lost)
    return counts


def _root(part: float, whole: float) -> float:
    return math.sqrt(part / whole) if whole else 0.0


def _shared(row: Dict[str, Any], part: str, whole: str) -> str:
    return "-" if row.get(part) is None or not row.get(whole) else share(row[part], row[whole])


def _badness(rows: Dict[str, Dict[str, Any]]) -> Tuple[float, ...]:
    """What a module loses: values that are not finite, then the larger share of its gradients and updates."""
    bad = sum(row["nan"] + row["inf"] for row in rows.values())
    half, brain = rows.get("fp16", {}), rows.get("bf16", {})
    shares = [row[part] / row[whole] for row, part, whole in ((half, "underflow_scaled", "gradients"), (half, "underflow", "gradients"),
                                                              (brain, "updates_lost", "updates")) if row.get(part) and row.get(whole)]
    return (1.0, 0.0) if bad else (0.0, max(shares, default=0.0))  # those that are not finite in order of execution


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of {counted(value.numel(), 'element')}" + ("" if value.requires_grad else " that requires no gradients")


def _copied(item: Any, old: torch.dtype, new: torch.dtype) -> Any:
    """A copy of a batch, with tensors of the type `old` in the type `new`."""
    if isinstance(item, torch.Tensor):
        result = item.detach().clone()
        result = result.to(new) if result.dtype is old else result
        return result.requires_grad_(item.requires_grad)
    if isinstance(item, dict):
        made = copy.copy(item)
        for key, value in item.items():
            made[key] = _copied(value, old, new)
        return made
    if isinstance(item, (list, tuple)):
        values = [_copied(value, old, new) for value in item]
        return type(item)(*values) if hasattr(item, "_fields") else type(item)(values)
    return copy.deepcopy(item)


@contextlib.contextmanager
def _forked(device: torch.device) -> Iterator[None]:
    """Random numbers of PyTorch, Python and NumPy begin as they are, and are put back."""
    numpy = sys.modules.get("numpy")
    before, numpys = random.getstate(), None if numpy is None else numpy.random.get_state()
    kind = "cuda" if device.type == "cpu" else device.type
    try:
        with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=kind):
            yield
    finally:
        random.setstate(before)
        if numpy is not None:
            numpy.random.set_state(numpys)


def _eager() -> Any:
    """Compiled modules run op by op, so that hooks see them."""
    stance = getattr(torch.compiler, "set_stance", None)
    return contextlib.nullcontext() if stance is None else stance("force_eager")


def _floating(item: Any) -> List[torch.Tensor]:
    """The tensors that have numbers to look at."""
    return [tensor for tensor in tensors_in(item) if tensor.is_floating_point() and tensor.layout is torch.strided]


def _seen(tensor: torch.Tensor) -> _Seen:
    values = tensor.detach()
    if values.numel() == 0:
        return _Seen()
    if all_finite(values):
        low, high = values.aminmax()
        return _Seen(values.numel(), 0, 0, max(abs(float(low)), abs(float(high))))
    finite = values[values.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return _Seen(values.numel(), int(values.isnan().sum()), int(values.isinf().sum()), largest)


def _hook(module: torch.nn.Module, name: str, step: _Step) -> List[Any]:
    def begins(_: Any, args: Any, kwargs: Any) -> None:
        # Masks hold -Inf, and no NaN or +Inf.
        step.running.append((name, not all(bool((tensor.detach() < math.inf).all()) for tensor in _floating((args, kwargs)))))

    def ends(_: Any, args: Any, output: Any) -> None:
        place = 0
        while (name, place) in step.outputs:
            place += 1
        while step.running[-1][0] != name:  # a module that raised, which the model caught
            step.running.pop()
        maker = next((running for running, came_in in reversed(step.running) if not came_in), None)
        if maker is not None:
            step.makers[name, place] = maker
        step.running.pop()
        total = _Seen()
        for tensor in _floating(output):
            total = total.and_(_seen(tensor))
            if tensor.requires_grad:
                tensor.register_hook(gradient)
        step.outputs[name, place] = total

    def gradient(value: torch.Tensor) -> None:
        step.output_gradients[name] = step.output_gradients.get(name, _Seen()).and_(_seen(value))

    return [module.register_forward_pre_hook(begins, with_kwargs=True), module.register_forward_hook(ends)]


def _backward(loss: torch.Tensor, scale: float, parameters: Dict[str, torch.nn.Parameter], step: _Step) -> Dict[str, torch.Tensor]:
    """Gradients of the loss times the scale, as GradScaler forms it: a number of FP32."""
    step.output_gradients = {}
    for parameter in parameters.values():
        parameter.grad = None
    scaled = loss if scale == 1 else loss * torch.tensor(scale, dtype=torch.float32, device=loss.device)
    scaled.backward(retain_graph=True)
    gradients = {key: parameter.grad.detach() for key, parameter in parameters.items() if parameter.grad is not None}
    step.sparse = {key: gradient for key, gradient in gradients.items() if gradient.layout is not torch.strided}
    gradients.update({key: gradient.to_dense() for key, gradient in step.sparse.items()})
    for parameter in parameters.values():
        parameter.grad = None
    return gradients
