"""Backward passes: which forward op a backward op belongs to, and whose gradients its outputs are."""

import sys
from types import FrameType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from .._library import Value

ACCUMULATE_GRAD = "torch::autograd::AccumulateGrad"


class Node(NamedTuple):
    """The maker of a node of autograd: the id of the op, its module, its outputs, and where its gradients go among its inputs."""

    op: int
    module: str
    viewed: Optional[Value]  # where it is a view: its base
    of_parameter: bool  # it made a parameter in another form, whose gradient is the parameter's
    inputs: Tuple[int, ...]  # for each edge of the node: the position of that input, or -1
    wrote_view: bool = False  # autograd makes a node more then, behind the op's own


class Edge(NamedTuple):
    """Where a node hands a gradient on: to a parameter, or to input `slot` of a node."""

    parameter: Optional[str]
    sequence: int
    slot: int


class Start(NamedTuple):
    """A call of backward() or grad() that Python made."""

    frame: FrameType
    is_grad: bool
    nested: bool
    roots: List[torch.Tensor]


def find_start() -> Optional[Start]:
    """The innermost call of torch.autograd.backward or grad on the stack."""
    found: Optional[Tuple[FrameType, bool]] = None
    nested = False
    frame: Optional[FrameType] = sys._getframe(1)
    codes = {torch.autograd.backward.__code__: False, torch.autograd.grad.__code__: True}
    while frame is not None:
        if frame.f_code in codes:
            if found is not None:
                nested = True
                break
            found = (frame, codes[frame.f_code])
        frame = frame.f_back
    if found is None:
        return None
    roots = found[0].f_locals.get("outputs" if found[1] else "tensors")
    listed = (roots,) if isinstance(roots, torch.Tensor) else tuple(roots) if isinstance(roots, (list, tuple)) else ()
    return Start(found[0], found[1], nested, [root for root in listed if isinstance(root, torch.Tensor)])


def is_starting_gradient() -> bool:
    """Whether autograd makes the gradient that a backward pass begins with."""
    frame: Optional[FrameType] = sys._getframe(1)
    for _ in range(8):
        if frame is None:
            return False
        if frame.f_code is torch.autograd._make_grads.__code__:
            return True
        frame = frame.f_back
    return False


class Nodes:
    """Nodes by their sequence numbers, of this step and the one before."""

    def __init__(self) -> None:
        self._new: Dict[int, Node] = {}
        self._old: Dict[int, Node] = {}
        self._custom: Dict[int, Node] = {}
        self._last = -1

    def add(self, sequence: int, node: Node) -> None:
        """The node with that number, if no earlier op made it."""
        if sequence > self._last:
            self._last = sequence
            self._new[sequence] = node

    def add_custom(self, sequence: int, node: Node) -> None:
        """An op inside of a torch.autograd.Function, whose node has that number; the last op counts."""
        if sequence > self._last:
            self._custom[sequence] = node

    def find(self, sequence: int) -> Optional[Node]:
        node = self._get(sequence)
        if node is None:
            before = self._get(sequence - 1)
            node = before if before is not None and before.wrote_view else None
        return node

    def _get(self, sequence: int) -> Optional[Node]:
        return self._new.get(sequence) or self._old.get(sequence) or self._custom.get(sequence)

    def end_step(self) -> None:
        self._old, self._new = self._new, {}
        self._custom = {}


class Watch:
    """Follows a backward pass by hooks on its nodes. Hooks only look."""

    def __init__(self, nodes: Nodes, name_of: Callable[[Any], Optional[str]],
                 hand_on: Callable[[int, int, Edge, torch.Tensor], None]) -> None:
        self._nodes, self._name_of, self._hand_on = nodes, name_of, hand_on
        self._handles: List[Any] = []
        self.handed_on: Dict[int, Edge] = {}  # by storage: what the node that ended last handed on, and where
        self.last = -1  # the node that ended last

    def follow(self, roots: List[torch.Tensor], first: bool) -> bool:
        """Puts hooks on the nodes below; says whether a named parameter is among them."""
        if first:
            self.release()
        pending = [root.grad_fn for root in roots if root.grad_fn is not None]
        seen = set(pending)
        reaches = False
        while pending:
            node = pending.pop()
            edges: List[Optional[Edge]] = []
            for below, slot in node.next_functions:
                if below is None:
                    edges.append(None)
                    continue
                if below.name() == ACCUMULATE_GRAD:
                    name = self._name_of(getattr(below, "variable", None))
                    reaches = reaches or name is not None
                    edges.append(Edge(name or "", -1, slot))
                    continue
                edges.append(Edge(None, below._sequence_nr(), slot))
                if below not in seen:
                    seen.add(below)
                    pending.append(below)
            self._handles.append(node.register_hook(self._hook(node._sequence_nr(), tuple(edges))))
        return reaches

    def release(self) -> None:
        """Takes the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.handed_on, self.last = {}, -1

    def _hook(self, sequence: int, edges: Tuple[Optional[Edge], ...]) -> Callable[..., None]:
        def after(gradients: Any, _: Any) -> None:
            self.handed_on, self.last = {}, sequence
            for index, (edge, gradient) in enumerate(zip(edges, gradients)):
                if edge is not None and isinstance(gradient, torch.Tensor):
                    self._hand_on(sequence, index, edge, gradient)

        return after

    def input_of(self, sequence: int, index: int) -> int:
        """The position among its forward op's inputs of what the node hands on by an edge; -1: not known."""
        node = self._nodes.find(sequence)
        return node.inputs[index] if node is not None and index < len(node.inputs) else -1

    def target(self, edge: Edge) -> Optional[Value]:
        """The value whose gradient goes along an edge; None: not known, or a parameter's."""
        node = self._nodes.find(edge.sequence)
        if node is None or node.of_parameter:
            return None
        return node.viewed or Value(node.op, edge.slot)
