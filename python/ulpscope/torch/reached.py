"""Which parameters of optimizers gradients came back to."""

from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from . import updates


def _told(names: List[str]) -> str:
    """The first ones, and how many there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


class Reached:
    """Parameters that had a gradient when their optimizer stepped, and those that never had one, in whatever steps: also those whose ops are
    not recorded, and in pauses."""

    def __init__(self, name_of: Callable[[Any], Optional[str]]) -> None:
        self._name_of = name_of
        self._called: Dict[str, Tuple[int, bool]] = {}  # the order of first calls, and whether others are inside
        self._with: Set[int] = set()
        self._without: Dict[int, torch.Tensor] = {}
        self._optimizers: Dict[int, Any] = {}  # that stepped
        self._whole: Set[int] = set()  # those all of whose parameters had a gradient

    def module_called(self, name: str, module: torch.nn.Module) -> None:
        if name not in self._called:
            self._called[name] = len(self._called), next(module.children(), None) is not None

    def optimizer_steps(self, optimizer: Any) -> None:
        if id(optimizer) in self._whole:
            return
        self._optimizers[id(optimizer)] = optimizer
        is_whole = True
        for parameter, _ in updates.parameters_of(optimizer):
            if parameter.grad is not None:
                self._with.add(id(parameter))
                continue
            is_whole = False
            if parameter.requires_grad:
                self._without[id(parameter)] = parameter
        if is_whole:
            self._whole.add(id(optimizer))

    def warnings(self, models: List[Tuple[str, torch.nn.Module]], module_of: Callable[[str], str]) -> List[str]:
        """Sentences on what gets no gradient and should."""
        return [*self._of_optimizers(models), *self._of_first_modules(module_of)]

    def _of_optimizers(self, models: List[Tuple[str, torch.nn.Module]]) -> List[str]:
        idle = [optimizer for optimizer in self._optimizers.values()
                if not any(id(parameter) in self._with for parameter, _ in updates.parameters_of(optimizer))]
        if not idle:
            return []
        held = {id(parameter) for optimizer in self._optimizers.values() for parameter, _ in updates.parameters_of(optimizer)}
        others = [str(self._name_of(parameter)) for _, model in models for parameter in model.parameters()
                  if id(parameter) not in held and parameter.grad is not None]
        kinds = ", ".join(type(optimizer).__name__ for optimizer in idle)
        told = f"No parameter of an optimizer ({kinds}) had a gradient in any of its steps, so that it updated none."
        if others:
            told += f" No optimizer has {_told(others)}, to which gradients came: make it of the parameters that the model has now."
        return [told]

    def _of_first_modules(self, module_of: Callable[[str], str]) -> List[str]:
        """Modules that ran before all to which a gradient came: of those behind them a result may be left out on purpose."""
        reached = {module_of(str(self._name_of(parameter))) for optimizer in self._optimizers.values()
                   for parameter, _ in updates.parameters_of(optimizer) if id(parameter) in self._with}
        first = min((self._called[module][0] for module in reached if module in self._called), default=0)
        names = []
        for key, parameter in self._without.items():
            name = str(self._name_of(parameter))
            order, has_others = self._called.get(module_of(name), (first, True))
            if key not in self._with and not has_others and order < first and module_of(name) not in reached:
                names.append(name)
        if not names:
            return []
        return [f"No gradient came to {_told(names)} in any step, though an optimizer has them and their modules ran first: "
                "nothing leads from there to the loss, as behind detach(), .data or numpy."]
