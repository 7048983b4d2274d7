"""Recordings that look into each Nth step. In the steps between no op is seen: their losses are the roots of backward(), and their scales
what the gradient scaler says."""

import functools
import weakref
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch.autograd.graph import GradientEdge

from . import backward, scalers, updates
from .patch import Patch
from .tracker import BACKWARD, ENDED


class Sampling:
    """Looks at ops in the steps that are sampled: through the adapter, and hooks on modules inside of the models."""

    def __init__(self, session: Any, hook: Callable[[], List[Any]]) -> None:
        self._session, self._hook = session, hook
        self._handles: List[Any] = []
        self._patches: List[Patch] = []
        self._scaled: List[Tuple["weakref.ref[torch.Tensor]", torch.Tensor]] = []  # and what they were made of
        self._scaler: Any = None  # that scaled the loss of this step
        self._is_told = True  # of all ops since the recording began, or the library forgot

    @property
    def is_looking(self) -> bool:
        return bool(self._session.steps.is_looking)

    def begin(self) -> None:
        self._look()
        owners = scalers.classes(self._session.scaler)
        if self._session.steps.sample == 1:  # the update of PyTorch's own scaler is an op
            self._patches = [Patch(owner, "update", self._update) for owner in owners[1:] if "update" in owner.__dict__]
            return
        self._patches = [Patch(torch.autograd, "backward", self._backward)]
        self._patches += [Patch(owner, name, replaces) for owner in owners for name, replaces in
                          (("scale", self._scale), ("update", self._update)) if name in owner.__dict__]

    def close(self, leaves_adapter: bool) -> None:
        """Looks at nothing any more. `leaves_adapter`: what looks at ops is another thread's."""
        for patch in self._patches:
            patch.remove()
        self._unhook()
        if not leaves_adapter and self.is_looking:
            self._session.steps.is_looking = False
            self._session.adapter.end()

    # Between steps.

    def arrange(self) -> None:
        """Looks from here on where what comes next is of a step that is sampled."""
        session = self._session
        if not self.is_looking and not session.is_over and session.steps.is_sampled(session.steps.upcoming()):
            self._look()

    def stepped(self) -> None:
        """An optimizer took its step; where a scaler scaled the loss, that is updated behind it."""
        if self._scaler is None:
            self.arrange()

    def leave(self) -> None:
        """Looks no longer where the step that goes on is left out. No op may be going on."""
        session = self._session
        if self.is_looking and session.tracker.state.is_open and session.steps.is_left_out and session.adapter.can_end():
            session.adapter.release()
            session.adapter.end()
            self._unhook()
            session.steps.is_looking = self._is_told = False

    def _look(self) -> None:
        session = self._session
        if not self._is_told:
            session.forget()
            self._is_told = True
        self._handles = self._hook()
        session.adapter.begin(session.tracker)
        session.steps.is_looking = True
        self._scaled, self._scaler = [], None

    def add_hooks(self, hook: Callable[[], List[Any]]) -> None:
        """Hooks modules that the models have got, where ops are looked at."""
        if self.is_looking:
            self._handles += hook()

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # Steps that are not looked into.

    def _goes_on(self) -> bool:
        session = self._session
        state = session.tracker.state
        return not (session.is_over or state.paused or state.muted) and bool(session.is_of_thread())

    def _is_concerned(self) -> bool:
        return not self.is_looking and self._goes_on()

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replaced(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_concerned():
                is_one = isinstance(tensors, (torch.Tensor, GradientEdge))
                if not is_one:
                    tensors = tuple(tensors)  # an iterator gives them once
                with self._session.guard():
                    roots = (tensors,) if is_one else tensors
                    self._take_losses(tuple(root for root in roots if isinstance(root, torch.Tensor)))
            return original(tensors, *args, **kwargs)

        return replaced

    def _take_losses(self, roots: Tuple[torch.Tensor, ...]) -> None:
        session = self._session
        if torch._C._current_graph_task_id() != -1 or not session.reaches_parameter(roots):
            return
        steps, state = session.steps, session.tracker.state
        if state.state == ENDED:
            session.end_step()
        if session.is_over:
            return
        steps.begin()
        session.reached.loss_goes_back(roots)
        losses = [self._loss_of(root) for root in roots if root.numel() == 1]
        if losses:
            steps.backward(lambda: sum(read() for read in losses), None)
        else:
            state.state = BACKWARD

    def _loss_of(self, root: torch.Tensor) -> Callable[[], float]:
        """How the loss is read that a backward pass begins with, without the scaler's factor."""
        unscaled = next((given for scaled, given in self._scaled if scaled() is root), None)
        if unscaled is not None:
            return unscaled.item
        detached, scaler = root.detach().clone(), self._scaler  # it is read later, when the program may have changed its own
        if scaler is None:
            return detached.item
        scales = self._session.steps  # of this step, once the scaler is read
        return lambda: detached.item() / (scales.scales[0] if scales.scales is not None else float(scaler.get_scale()))

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replaced(scaler: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, outputs, *args, **kwargs)
            if self._is_concerned() and scaler.is_enabled():
                self._scaler, self._session.has_scaled = scaler, True
                if isinstance(outputs, torch.Tensor) and isinstance(result, torch.Tensor) and outputs.numel() == 1:
                    self._scaled = [each for each in self._scaled if each[0]() is not None]
                    self._scaled.append((weakref.ref(result), outputs.detach().clone()))
            return result

        return replaced

    def _update(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replaced(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            session = self._session
            if self.is_looking:
                return self._looked_update(original, scaler, *args, **kwargs)
            before: Optional[float] = None
            if self._is_concerned() and scaler.is_enabled() and session.tracker.state.is_open:
                with session.guard():
                    before = float(scaler.get_scale())
                    self._take_overflows(scaler)
            result = original(scaler, *args, **kwargs)
            if before is not None:
                with session.guard():
                    session.steps.scale(before)
                    session.steps.scaler_updated(float(scaler.get_scale()))
                    self._scaled, self._scaler = [], None
                    self.arrange()
            return result

        return replaced

    def _looked_update(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        """In a step that is looked into, an update is seen by its op; but a subclass may have ops of its own for it, and leave out steps
        for gradients of other processes that overflowed."""
        session = self._session
        is_concerned, told = self._goes_on() and scaler.is_enabled() and session.tracker.state.is_open, session.scaler_updates
        if is_concerned:
            with session.guard():
                skipped = scalers.left_out(scaler, session.steps.stepped)
                session.steps.overflowed |= {id(optimizer) for optimizer in session.steps.expected}.intersection(skipped)
        result = original(scaler, *args, **kwargs)
        if is_concerned and session.scaler_updates == told and not session.is_over:
            with session.guard():
                session.scaler_updates += 1
                session.steps.scaler_updated(float(scaler.get_scale()))
        return result

    def _take_overflows(self, scaler: Any) -> None:
        """Optimizers whose step the scaler left out."""
        steps = self._session.steps
        for key, state in getattr(scaler, "_per_optimizer_states", {}).items():
            if any(float(found) > 0 for found in state["found_inf_per_device"].values()):
                steps.overflowed.add(key)
        for optimizer in steps.expected:
            if id(optimizer) in steps.overflowed:
                steps.rate(updates.rate_of(optimizer.param_groups[0]))
