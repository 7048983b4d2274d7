"""Where a training loop is: steps, passes over the model, losses, what the gradient scaler and optimizers did."""

import functools
import math
import time
from typing import Any, Callable, List, NamedTuple, Optional, Set, Tuple

import torch

from .._library import StepResult
from .tracker import BACKWARD, ENDED, FORWARD, IDLE, State


class Loss(NamedTuple):
    """The loss of one backward pass."""

    number: int  # which of the step's losses
    micro_batch: int
    read: Callable[[], float]  # its value: of a device at the end of the step, when it is waited for anyway
    divisor: Optional[float]  # by which the loss was divided last, 1 where one op made it whole; None: not known
    in_optimizer: bool  # it was computed in a closure

    @property
    def value(self) -> float:
        return self.read()


def loss_of_step(losses: List[Loss], accumulate: Optional[str]) -> Optional[float]:
    """The mean or the sum over micro-batches; losses of one micro-batch, and several losses of the step, add up."""
    if not losses:
        return None
    total = 0.0
    for number in sorted({loss.number for loss in losses}):
        group = [loss for loss in losses if loss.number == number]
        first = group[0]
        if first.in_optimizer:
            total += sum(loss.value for loss in group if loss.micro_batch == first.micro_batch)
        else:
            total += sum(loss.value for loss in group) / (1 if accumulate == "sum" else micro_batches_of(group))
    return total


def micro_batches_of(group: List[Loss]) -> int:
    """How many micro-batches losses come from: several backward passes may begin in one."""
    return len({loss.micro_batch for loss in group})


class Steps:
    """The step that is recorded. A step that is complete stays open for evaluation until something of the next one begins."""

    def __init__(self, tracker: Any, expected: List[Any], accumulate: Optional[str], sample: int, first_step: int) -> None:
        self.tracker, self.expected, self.accumulate, self.sample = tracker, expected, accumulate, sample
        self.recorder: Any = None
        self.at: State = tracker.state
        self.first_step, self.at.step = first_step, first_step - 1
        self.loss_index = self.micro_batch = 0
        self.told_accumulation = self.told_seldom = False
        self.seldom: Set[int] = set()  # listed optimizers that others do not wait for
        self.current = False, 0  # the pass that began last: whether it evaluates, and its micro-batch
        self.is_looking = self.is_left_out = False  # at ops; the ops of the step are not recorded
        self._clear()

    def _clear(self) -> None:
        self.evaluations = 0
        self.has_calls = False  # of the model
        self.losses: List[Loss] = []
        self.stepped: Set[int] = set()
        self.skipped: Set[int] = set()
        self.overflowed: Set[int] = set()
        self.moved_on = False  # an optimizer stepped since the last pass began
        self.scales: Optional[Tuple[float, float]] = None
        self.learning_rate: Optional[float] = None
        self.squares: Optional[Tuple[float, float]] = None  # norms of gradients, before and after clipping
        self.loss_index = self.micro_batch = 0

    def is_sampled(self, step: int) -> bool:
        """Whether the ops of the step are to be recorded."""
        return step % self.sample == 0

    def upcoming(self) -> int:
        """The step that what comes next belongs to."""
        return int(self.at.step) + (not self.at.is_open or self.at.state == ENDED)

    def is_behind_the_last(self) -> bool:
        """Whether the open step has no call of the model, no loss and no optimizer's step, and others ended before it: what a program
        computes behind its loop."""
        at = self.at
        return bool(at.is_open and at.step > self.first_step and
                    not (self.has_calls or self.losses or self.evaluations or self.stepped or self.skipped))

    def is_forward(self) -> bool:
        """Whether the model is called, and a loss may come of it: also in blocks without gradients, as reentrant checkpoints are."""
        return bool(self.at.state == FORWARD and not self.current[0])

    def begin(self, keeps_norms: bool = False) -> None:
        """Begins a step where none is open."""
        at = self.at
        if at.is_open:
            return
        at.step += 1
        self._clear()
        if not keeps_norms:
            self.tracker.clear_norms()
        at.is_open, at.state, self.started = 1, IDLE, time.perf_counter()
        self.peak_before = _peak_memory()
        self.recorder.begin_step(at.step)
        self.is_left_out = not (self.is_looking and self.is_sampled(at.step))
        if self.is_left_out:
            self.recorder.leave_out_ops()

    def end(self) -> None:
        """Ends the step, if one is open."""
        at = self.at
        if not at.is_open:
            return
        seconds = (self.ended if at.state == ENDED else time.perf_counter()) - self.started
        self._settle()
        at.is_open, at.state = 0, IDLE
        self._decide_accumulation()
        norms = None if self.squares is None else (_root(self.squares[0]), _root(self.squares[1]))
        peak = _peak_memory()
        memory = peak if peak > self.peak_before else 0  # else the peak was before the step, whose own is not known
        self.recorder.end_step(StepResult(
            loss=loss_of_step(self.losses, self.accumulate), learning_rate=self.learning_rate, scales=self.scales, norms=norms,
            seconds=seconds, peak_memory=memory, skipped=bool(self.skipped) and not self.stepped))

    def _settle(self) -> None:
        """Waits for what was taken on a device: from here on all numbers of the step are known."""
        self.tracker.settle()
        self.losses = [loss._replace(read=functools.partial(float, loss.value)) for loss in self.losses]

    def _begin_pass(self, phase: str, micro_batch: int, loss: int) -> None:
        self.at.passes += 1
        self.current = phase == "evaluation", micro_batch
        self.recorder.begin_pass(phase, micro_batch, loss)

    def forward(self, evaluating: bool) -> None:
        """The model is called, from outside of it."""
        if evaluating:
            self.begin()
            if self.at.state in (IDLE, ENDED):
                self._begin_pass("evaluation", self.evaluations, 0)
                self.evaluations += 1
            return
        if self.at.state == ENDED:
            self.end()
        self.begin()
        if self.at.state == FORWARD:
            return
        if self.at.state == BACKWARD:
            if self.moved_on:
                self.loss_index, self.micro_batch = self.loss_index + 1, 0
            else:
                self.micro_batch += 1
        self.moved_on = False
        self.at.state = FORWARD
        self._begin_pass("forward", self.micro_batch, self.loss_index)

    def backward(self, read: Callable[[], float], divisor: Optional[float]) -> None:
        """A loss goes back to the parameters of the model."""
        self.losses.append(Loss(self.loss_index, self.micro_batch, read, divisor, self.at.optimizing > 0))
        self.at.state = BACKWARD

    def scale(self, value: float) -> None:
        """The loss scale that is in force."""
        if self.scales is None:
            self.scales = (value, value)

    def norms(self, before: float, after: float) -> None:
        """Adds the squares of the norms of one optimizer's gradients."""
        first, second = self.squares or (0.0, 0.0)
        self.squares = (first + before, second + after)

    def rate(self, value: Optional[float]) -> None:
        """The learning rate of the step: that of the optimizer that comes first, of those whose rate is known."""
        if self.learning_rate is None:
            self.learning_rate = value

    def takes_turn(self, optimizer: Any) -> None:
        """An optimizer is about to step. Where it did so in this step, the listed optimizers that did not are waited for no
        longer: the step ends, and the losses since then are the next one's."""
        done = self.stepped | self.skipped
        if not self.at.is_open or self.at.state != BACKWARD or id(optimizer) not in done or self.moved_on:
            return
        self.seldom |= {id(each) for each in self.expected} - done
        self._settle()
        later = [loss._replace(number=0) for loss in self.losses if loss.number == self.loss_index]
        self.losses = [loss for loss in self.losses if loss.number != self.loss_index]
        scales = self.scales
        if not self.told_seldom:
            self.told_seldom = True
            self.recorder.note("An optimizer that was listed steps less often than others: steps end without it.")
        self.end()
        self.begin(keeps_norms=True)
        self.losses, self.at.state = later, BACKWARD
        self.scales = None if scales is None else (scales[1], scales[1])
        self._begin_pass("forward", 0, 0)

    def step_taken(self, optimizer: Any, rate: Optional[float], skipped: bool) -> None:
        (self.skipped if skipped else self.stepped).add(id(optimizer))
        self.rate(rate)
        self.moved_on = True
        self._complete()

    def scaler_updated(self, scale: float) -> None:
        """The scaler ended its step: what overflowed was skipped."""
        self.scale_told(scale)
        self.skipped |= self.overflowed - self.stepped
        self.overflowed.clear()
        self._complete()

    def scale_told(self, scale: float) -> None:
        """The loss scale after the step; NaN: it is told later."""
        if self.scales is not None:
            self.scales = (self.scales[0], scale)

    def _complete(self) -> None:
        done = self.stepped | self.skipped
        if self.at.is_open and done and done >= {id(optimizer) for optimizer in self.expected} - self.seldom:
            if self.at.state != ENDED:
                self.ended = time.perf_counter()
            self.at.state = ENDED

    def _decide_accumulation(self) -> None:
        """Decides once: the last group of an epoch may be smaller than the number that its losses were divided by."""
        group = [loss for loss in self.losses if loss.number == 0]
        if self.told_accumulation or not group or group[0].in_optimizer or micro_batches_of(group) < 2:
            return
        if self.is_left_out:  # by what the losses were divided was not seen
            return
        self.told_accumulation = True
        if self.accumulate is None:
            self.accumulate = "sum" if all(loss.divisor == micro_batches_of(group) for loss in group) else "mean"
        self.recorder.note(f"The loss of a step is the {self.accumulate} of the losses of its micro-batches.")
        # Gradients are as many times as long as those of the mean.
        is_undivided = self.accumulate == "mean" and all(loss.divisor == 1 for loss in group)
        if is_undivided and self.at.step == self.first_step:
            self.recorder.setting("undivided micro-batches", str(micro_batches_of(group)), "loss_factor", True)


def _peak_memory() -> int:
    """The most bytes that tensors on the GPU took since the program began, or set the counter back, which is the program's own."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() and torch.cuda.is_initialized() else 0


def _root(square: float) -> float:
    return math.sqrt(square) if square >= 0 else math.nan
