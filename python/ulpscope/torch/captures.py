"""How an element that became NaN or Inf came about: what it was computed from, of ops whose arithmetic is plain."""

from typing import Any, Dict, List, Optional, Sequence

import torch

from .._library import NOTHING, Node, Value
from .functions import Read

_MOST_TERMS = 8  # of a sum: the largest
_PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))


def is_explained(base: str, overload: Any) -> bool:
    """Whether nodes_of knows the op's arithmetic."""
    return base in _PRODUCTS or torch.Tag.pointwise in overload.tags


def _index_of(element: int, shape: Sequence[int]) -> List[int]:
    index = []
    for extent in reversed(shape):
        element, rest = divmod(element, extent)
        index.append(rest)
    return index[::-1]


def _element_of(index: Sequence[int], shape: Sequence[int]) -> int:
    element = 0
    for place, extent in zip(index, shape):
        element = element * extent + place
    return element


def _broadcast(index: Sequence[int], shape: Sequence[int]) -> Optional[List[int]]:
    """The index into a tensor that is broadcast to the one of `index`; None where it is not."""
    if len(shape) > len(index):
        return None
    return [0 if extent == 1 else place for place, extent in zip(index[len(index) - len(shape):], shape)]


def _node(tensor: torch.Tensor, index: Sequence[int], operand: int, made_by: Optional[Value], overwritten: bool,
          term: int = -1) -> Node:
    return Node(made_by or NOTHING, tuple(tensor.shape), _element_of(index, tensor.shape),
                float(tensor[tuple(index)].double()), 0, operand, term, 0, overwritten)


def _terms(first: torch.Tensor, second: torch.Tensor) -> List[int]:
    """The largest of the products whose sum an element is, and those that are not finite, in their order."""
    products = first.double() * second.double()
    sizes = torch.where(products.isfinite(), products.abs(), torch.inf)
    return sorted(sizes.topk(min(_MOST_TERMS, sizes.numel())).indices.tolist())


def nodes_of(base: str, arguments: Dict[str, Any], output: torch.Tensor, reads: Sequence[Read],
             makers: Sequence[Optional[Value]], overwritten: Sequence[bool]) -> List[Node]:
    """The first element of an output that is not finite, and its operands; nothing where they are none that are understood.

    `reads`: the tensors as the function reads them; `makers`: the output that each was.
    """
    if any(arguments.get(name, 1) != 1 for name in ("alpha", "beta")):  # operands have weights, which nodes have no place for
        return []
    flat = int((~output.reshape(-1).isfinite()).nonzero()[0])
    index = _index_of(flat, output.shape)
    value = float(output[tuple(index)].double())

    def operand(read: int, at: Sequence[int], term: int = -1) -> Node:
        return _node(reads[read].tensor, at, reads[read].number, makers[read], overwritten[read], term)

    nodes: List[Node] = []
    terms = 0
    if base in _PRODUCTS:
        batch, (row, column) = index[:-2], index[-2:]
        rows, columns = reads[0].tensor[(*batch, row)], reads[1].tensor[(*batch, slice(None), column)]
        terms = rows.numel()
        for term in _terms(rows, columns):
            nodes += [operand(0, (*batch, row, term), term), operand(1, (*batch, term, column), term)]
        for read in range(2, len(reads)):
            added = _broadcast(index, reads[read].tensor.shape)
            if added is None:
                return []
            nodes.append(operand(read, added))
    else:
        for read, each in enumerate(reads):
            at = _broadcast(index, each.tensor.shape)
            if at is None:
                return []
            nodes.append(operand(read, at))
        other = arguments.get("other")
        if len(reads) == 1 and isinstance(other, (int, float)):
            nodes.append(Node(NOTHING, (), 0, float(other), 0, 1, -1, 0, False))
    return [Node(NOTHING, tuple(output.shape), flat, value, -1, -1, -1, terms, False), *nodes]
