"""Tensors in whatever holds them."""

from collections.abc import Mapping
from typing import Any, List, Tuple

import torch

_DEPTH_OF_OBJECTS = 5  # what a batch is of, and not all that its parts refer to


def tensors_in(value: Any, in_objects: bool = False) -> List[torch.Tensor]:
    """The tensors of mappings, lists and tuples, in order; with `in_objects` those of attributes of other objects too."""
    found: List[torch.Tensor] = []
    _collect(value, in_objects, (), found)
    return found


def _collect(value: Any, in_objects: bool, around: Tuple[int, ...], found: List[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if isinstance(value, (list, tuple)):
        items = list(value)
    elif isinstance(value, (dict, Mapping)):  # whether it is a mapping is a slow question
        items = list(value.values())
    elif in_objects:
        items = list(getattr(value, "__dict__", {}).values())
    else:
        return
    if id(value) in around or (in_objects and len(around) == _DEPTH_OF_OBJECTS):  # it is in itself, or too deep
        return
    around = (*around, id(value))
    for item in items:
        _collect(item, in_objects, around, found)
