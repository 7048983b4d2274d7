"""Which parameters gradients came back to, and which of them optimizers updated."""

import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from . import updates
from .backward import leaves_below

_FEW_LEFT_OUT = 0.5  # of the parameters that are trained
_FEW_LOSSES = 20  # of fewer a step may come yet
_DEPTH = 3  # of lists and dicts within each other


def _told(names: List[str]) -> str:
    """The first ones, and how many there are."""
    shown = names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"]
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def _hidden_parameters(value: Any, depth: int) -> Iterator[torch.nn.Parameter]:
    """The parameters of modules in lists, tuples and dicts."""
    if isinstance(value, torch.nn.Parameter):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
    elif isinstance(value, (list, tuple, dict)) and depth > 0:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _hidden_parameters(each, depth - 1)


class _Stepped:
    """An optimizer that stepped, as far as it is known also when it is gone."""

    def __init__(self, optimizer: Any) -> None:
        self.kind = type(optimizer).__name__
        self.names: Dict[int, Optional[str]] = {}  # of its parameters, by address
        self.is_whole = False  # all of them had a gradient


class Reached:
    """Parameters that had a gradient when their optimizer stepped, and those that never had one, in whatever steps: also those whose ops are
    not recorded, and in pauses."""

    def __init__(self, name_of: Callable[[Any], Optional[str]]) -> None:
        self._name_of = name_of
        self._called: Dict[str, Tuple[int, bool]] = {}  # the order of first calls, and whether others are inside
        # By addresses, which those that have names keep as long as the recording goes on.
        self._with: Dict[int, Optional[torch.Tensor]] = {}  # and those without a name, so that they keep theirs
        self._without: Dict[int, str] = {}  # names
        self._known: "weakref.WeakKeyDictionary[Any, _Stepped]" = weakref.WeakKeyDictionary()
        self._stepped: List[_Stepped] = []
        self._losses = 0  # that went back
        self._updated: Set[int] = set()  # addresses of the parameters of optimizers that stepped
        # Optimizers that stepped, or would have but for an overflow: how many parameters each had.
        self._sizes: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
        self._first: Set[int] = set()  # addresses of the parameters that the first one reached
        self._strangers: Set[int] = set()  # of them, those without a name

    def loss_goes_back(self, roots: Sequence[torch.Tensor]) -> None:
        if self._losses == 0:
            leaves = [leaf for leaf in leaves_below(roots) if isinstance(leaf, torch.nn.Parameter)]
            self._first = {leaf._cdata for leaf in leaves}
            self._strangers = {leaf._cdata for leaf in leaves if self._name_of(leaf) is None}
        self._losses += 1

    def optimizer_turns(self, optimizer: Any) -> None:
        """An optimizer steps, or its gradients are looked at before; it may be one of no recorded model."""
        size = sum(len(group["params"]) for group in optimizer.param_groups)
        if self._sizes.get(optimizer) != size:  # it is new, or has a further group
            self._sizes[optimizer] = size
            self._updated.update(parameter._cdata for parameter, _ in updates.parameters_of(optimizer))

    def module_called(self, name: str, module: torch.nn.Module) -> None:
        if name not in self._called:
            self._called[name] = len(self._called), next(module.children(), None) is not None

    def optimizer_steps(self, optimizer: Any) -> None:
        known = self._known.get(optimizer)
        if known is None:
            known = self._known[optimizer] = _Stepped(optimizer)
            self._stepped.append(known)
        if known.is_whole:
            return
        known.is_whole = True
        for parameter, _ in updates.parameters_of(optimizer):
            address, name = parameter._cdata, self._name_of(parameter)
            known.names[address] = name
            if parameter.grad is not None:
                self._with[address] = parameter if name is None else None
                continue
            known.is_whole = False
            if parameter.requires_grad and name is not None:
                self._without[address] = name

    def warnings(self, models: List[Tuple[str, torch.nn.Module]], expected: List[Any], module_of: Callable[[str], str]) -> List[str]:
        """Sentences on what gets no gradient, or is not updated, and should."""
        return [*self._of_idle(expected), *(self._of_optimizers(models) or self._of_left_out(models, expected)),
                *self._of_strangers(models), *self._of_first_modules(module_of)]

    def _of_idle(self, expected: List[Any]) -> List[str]:
        idle = [each for each in expected if isinstance(each, torch.optim.Optimizer) and each not in self._sizes]
        if not idle or self._losses < _FEW_LOSSES:
            return []
        kinds = ", ".join(type(each).__name__ for each in idle)
        return [f"An optimizer ({kinds}) did not step, though losses went back {self._losses} times: call its step() after backward()."]

    def _of_left_out(self, models: List[Tuple[str, torch.nn.Module]], expected: List[Any]) -> List[str]:
        """Parameters that have a gradient and no optimizer, where these are few: who trains a part of a model leaves out more."""
        of_optimizers = self._updated | {parameter._cdata for each in expected for parameter, _ in updates.parameters_of(each)}
        trained = [parameter for _, model in models for parameter in model.parameters() if parameter.requires_grad]
        left_out = [parameter for parameter in trained if parameter._cdata in self._first - of_optimizers]
        if not left_out or not self._with or len(left_out) > len(trained) * _FEW_LEFT_OUT:
            return []
        names = [str(self._name_of(parameter)) for parameter in left_out]
        return [f"No optimizer that stepped has {_told(names)}, to which gradients came."]

    def _of_strangers(self, models: List[Tuple[str, torch.nn.Module]]) -> List[str]:
        """Parameters in lists and dicts of the models' modules, which these do not register, and which no optimizer has."""
        strangers = self._strangers - self._updated
        if not strangers or not self._sizes:
            return []
        places = []
        for prefix, model in models:
            for name, module in model.named_modules(prefix=prefix):
                for attribute, value in vars(module).items():
                    if not attribute.startswith("_") and any(each._cdata in strangers for each in _hidden_parameters(value, _DEPTH)):
                        places.append(f"{name}.{attribute}" if name else attribute)
        if not places:
            return []
        return [f"Gradients came to parameters in {_told(places)}, which no optimizer has: modules in a list or dict of Python are not "
                "registered (nn.ModuleList and nn.ModuleDict are)."]

    def _of_optimizers(self, models: List[Tuple[str, torch.nn.Module]]) -> List[str]:
        idle = [each for each in self._stepped if self._with.keys().isdisjoint(each.names)]
        if not idle:
            return []
        others = [str(self._name_of(parameter)) for _, model in models for parameter in model.parameters()
                  if parameter.grad is not None and not any(parameter._cdata in each.names for each in self._stepped)]
        kinds = ", ".join(each.kind for each in idle)
        told = f"No parameter of an optimizer ({kinds}) had a gradient in any of its steps, so that it updated none."
        if others:
            told += f" No optimizer has {_told(others)}, to which gradients came: make it of the parameters that the model has now."
        return [told]

    def _of_first_modules(self, module_of: Callable[[str], str]) -> List[str]:
        """Modules that ran before all to which a gradient came: of those behind them a result may be left out on purpose."""
        reached = {module_of(str(name)) for each in self._stepped for address, name in each.names.items() if address in self._with}
        first = min((self._called[module][0] for module in reached if module in self._called), default=0)
        names = []
        for address, name in self._without.items():
            order, has_others = self._called.get(module_of(name), (first, True))
            if address not in self._with and not has_others and order < first and module_of(name) not in reached:
                names.append(name)
        if not names:
            return []
        return [f"No gradient came to {_told(names)} in any step, though an optimizer has them and their modules ran first: "
                "nothing leads from there to the loss, as behind detach(), .data, numpy, no_grad or a checkpoint with use_reentrant=True whose "
                "inputs have no gradient."]
