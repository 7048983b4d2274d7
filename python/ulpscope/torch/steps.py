"""Where a training loop is: steps, passes over the model, losses, what the gradient scaler and optimizers did."""

import math
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import torch

from .._library import StepResult


class Loss(NamedTuple):
    """The loss of one backward pass."""

    number: int  # which of the step's losses
    value: float
    divisor: Optional[float]  # where the loss was divided by a number
    in_optimizer: bool  # it was computed in a closure


def loss_of_step(losses: List[Loss], accumulate: Optional[str]) -> Optional[float]:
    """The mean over micro-batches, or their sum where each was divided by how many there are; summed over several losses."""
    if not losses:
        return None
    total = 0.0
    for number in sorted({loss.number for loss in losses}):
        group = [loss for loss in losses if loss.number == number]
        if group[0].in_optimizer:
            total += group[0].value
        elif sums_up(group, accumulate):
            total += sum(loss.value for loss in group)
        else:
            total += sum(loss.value for loss in group) / len(group)
    return total


def sums_up(group: List[Loss], accumulate: Optional[str]) -> bool:
    """Whether the losses of micro-batches are parts of one."""
    if accumulate is not None:
        return accumulate == "sum"
    return all(loss.divisor == len(group) for loss in group)


class Steps:
    """The step that is recorded. A step that is complete stays open for evaluation until something of the next one begins."""

    def __init__(self, recorder: Any, expected: List[Any], accumulate: Optional[str]) -> None:
        self.recorder, self.expected, self.accumulate = recorder, expected, accumulate
        self.number = -1
        self.open = False
        self.state = "idle"  # idle, forward, backward or ended
        self.loss_index = self.micro_batch = 0
        self.optimizing = 0  # depth of optimizer.step()
        self.quiet = False  # in one without a closure, whose ops are not looked at
        self.told_accumulation = False
        self._clear()

    def _clear(self) -> None:
        self.evaluations = 0
        self.losses: List[Loss] = []
        self.stepped: Set[int] = set()
        self.skipped: Set[int] = set()
        self.overflowed: Set[int] = set()
        self.moved_on = False  # an optimizer stepped since the last pass began
        self.scales: Optional[Tuple[float, float]] = None
        self.learning_rate: Optional[float] = None
        self.squares: Optional[Tuple[float, float]] = None  # of the norms of gradients, before and after clipping
        self.unclipped: Dict[str, float] = {}  # by parameter: the square of its gradient's norm before it was clipped
        self.loss_index = self.micro_batch = 0

    def begin(self) -> None:
        """Begins a step where none is open."""
        if self.open:
            return
        self.number += 1
        self._clear()
        self.open, self.state, self.started = True, "idle", time.perf_counter()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        self.recorder.begin_step(self.number)

    def end(self) -> None:
        """Ends the step, if one is open."""
        if not self.open:
            return
        seconds = (self.ended if self.state == "ended" else time.perf_counter()) - self.started
        self.open, self.state = False, "idle"
        self._tell_accumulation()
        norms = None if self.squares is None else (_root(self.squares[0]), _root(self.squares[1]))
        memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() and torch.cuda.is_initialized() else 0
        self.recorder.end_step(StepResult(
            loss=loss_of_step(self.losses, self.accumulate), learning_rate=self.learning_rate, scales=self.scales, norms=norms,
            seconds=seconds, peak_memory=memory, skipped=bool(self.skipped) and not self.stepped))


    def forward(self, evaluating: bool) -> None:
        """The model is called, from outside of it."""
        if evaluating:
            self.begin()
            if self.state in ("idle", "ended"):
                self.recorder.begin_pass("evaluation", self.evaluations, 0)
                self.evaluations += 1
            return
        if self.state == "ended":
            self.end()
        self.begin()
        if self.state == "forward":
            return
        if self.state == "backward":
            if self.moved_on:
                self.loss_index, self.micro_batch = self.loss_index + 1, 0
            else:
                self.micro_batch += 1
        self.moved_on = False
        self.state = "forward"
        self.recorder.begin_pass("forward", self.micro_batch, self.loss_index)

    def backward(self, value: float, divisor: Optional[float]) -> None:
        """A loss goes back to the parameters of the model."""
        self.losses.append(Loss(self.loss_index, value, divisor, self.optimizing > 0))
        self.state = "backward"

    def scale(self, value: float) -> None:
        """The loss scale that is in force."""
        if self.scales is None:
            self.scales = (value, value)

    def norms(self, before: float, after: float) -> None:
        """Adds the squares of the norms of one optimizer's gradients."""
        first, second = self.squares or (0.0, 0.0)
        self.squares = (first + before, second + after)

    def rate(self, value: float) -> None:
        """The learning rate of the step: that of the optimizer that comes first."""
        if self.learning_rate is None:
            self.learning_rate = value

    def step_taken(self, optimizer: Any, rate: float, skipped: bool) -> None:
        (self.skipped if skipped else self.stepped).add(id(optimizer))
        self.rate(rate)
        self.moved_on = True
        self._complete()

    def scaler_updated(self, scale: float) -> None:
        """The scaler ended its step: what overflowed was skipped."""
        if self.scales is not None:
            self.scales = (self.scales[0], scale)
        self.skipped |= self.overflowed - self.stepped
        self.overflowed.clear()
        self._complete()

    def _complete(self) -> None:
        done = self.stepped | self.skipped
        if self.open and done and done >= {id(optimizer) for optimizer in self.expected}:
            if self.state != "ended":
                self.ended = time.perf_counter()
            self.state = "ended"

    def _tell_accumulation(self) -> None:
        group = [loss for loss in self.losses if loss.number == 0]
        if self.told_accumulation or len(group) < 2 or group[0].in_optimizer:
            return
        self.told_accumulation = True
        how = "sum" if sums_up(group, self.accumulate) else "mean"
        self.recorder.note(f"The loss of a step is the {how} of the losses of its micro-batches.")


def _root(square: float) -> float:
    return math.sqrt(square) if square >= 0 else math.nan
