"""Numbers of samples: which ones each batch has that a DataLoader gives, and which pass reads it.

A loader says nowhere which samples a batch has, so that its iterators are watched: what they take from the sampler, and what
they give. Nothing of it is changed, and no random number is drawn. From there the library follows the memory of a batch to the
pass that reads it: batches may be given long before, as where a program reads ahead."""

import functools
import operator
import weakref
from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.utils.data import IterableDataset, dataloader

from .leaves import tensors_in
from .patch import Patch

_KEPT = 256  # batches that no pass has read yet, the newest
_MOST_SAMPLES = 2**48  # of a data set that does not know its length
# Functions of these modules make rows of samples in their order.
_IN_ROWS = ("torch.utils.data._utils.collate", "transformers.data.data_collator")


class Delivery(NamedTuple):
    """A batch that a loader gave."""

    tensors: List["weakref.ref[torch.Tensor]"]
    numbers: List[int]  # of its samples, as indices of the data set
    dataset: Any
    in_rows: bool  # row i of a tensor with as many rows is sample i
    why: str = ""  # there are no numbers


class _Reader:
    """An iterator over a loader, with what it took from the sampler and has not given yet."""

    __slots__ = ("taken", "last")

    def __init__(self) -> None:
        self.taken: Dict[int, Any] = {}  # by the number that workers have for it, which begins anew with each epoch
        self.last: Optional[Delivery] = None


class Handle:
    """Something that goes on until remove()."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.remove = end


class _Loaders:
    """Watches the iterators of all loaders while somebody listens."""

    def __init__(self) -> None:
        self._listeners: List[Callable[[Delivery], None]] = []
        self._patches: List[Patch] = []
        self._readers: "weakref.WeakKeyDictionary[Any, _Reader]" = weakref.WeakKeyDictionary()

    def listen(self, heard: Callable[[Delivery], None]) -> Handle:
        """heard() is called with each batch, and at once with the last one of each iterator that is watched already."""
        if not self._listeners:
            iterators = dataloader._BaseDataLoaderIter
            self._patches = [Patch(iterators, "_next_index", self._taking), Patch(iterators, "__next__", self._giving)]
        self._listeners.append(heard)
        for reader in list(self._readers.values()):
            if reader.last is not None:
                heard(reader.last)
        return Handle(functools.partial(self._forget, heard))

    def _forget(self, heard: Callable[[Delivery], None]) -> None:
        if heard not in self._listeners:
            return
        self._listeners.remove(heard)
        if not self._listeners:
            for patch in self._patches:
                patch.remove()
            self._readers.clear()

    def _taking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def next_index(this: Any) -> Any:
            index = original(this)
            self._readers.setdefault(this, _Reader()).taken[getattr(this, "_send_idx", 0)] = index
            return index

        return next_index

    def _giving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def following(this: Any) -> Any:
            batch = original(this)
            reader = self._readers.setdefault(this, _Reader())
            try:
                delivery = _delivery(this, reader, batch)
            except Exception as error:  # of a class of iterators that is another one, or a sampler's own numbers
                delivery = Delivery([], [], None, False, f"{type(error).__name__}: {error}")
            reader.last = delivery
            for heard in list(self._listeners):
                heard(delivery)
            return batch

        return following


LOADERS = _Loaders()


def _delivery(iterator: Any, reader: _Reader, batch: Any) -> Delivery:
    nothing = Delivery([], [], None, False)
    if isinstance(iterator._dataset, IterableDataset):
        return nothing._replace(why="their data set is iterable")
    if not getattr(iterator, "_in_order", True):
        return nothing._replace(why="workers give them in any order (in_order=False)")
    place = iterator._rcvd_idx - 1 if hasattr(iterator, "_rcvd_idx") else 0
    if place not in reader.taken:
        return nothing._replace(why="their loader was iterated before the recording began")
    index = reader.taken.pop(place)
    for before in [each for each in reader.taken if each < place]:  # that raised
        del reader.taken[before]
    numbers = _numbers(index)
    if numbers is None:
        return nothing._replace(why="their sampler gives no numbers from 0 on")
    tensors = [weakref.ref(tensor) for tensor in tensors_in(batch, in_objects=True)]
    in_rows = bool(iterator._auto_collation) and getattr(iterator._collate_fn, "__module__", "") in _IN_ROWS
    return Delivery(tensors, numbers, iterator._dataset, in_rows)


def _numbers(index: Any) -> Optional[List[int]]:
    """The indices that a sampler gave for a batch, or for the one sample that is not made part of one."""
    if isinstance(index, torch.Tensor):
        index = index.tolist()
    try:
        numbers = [operator.index(each) for each in index] if isinstance(index, (list, tuple)) else [operator.index(index)]
    except TypeError:
        return None
    return numbers if numbers and min(numbers) >= 0 else None


class Samples:
    """The samples of a recording's passes."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._batches: Dict[int, Delivery] = {}  # by the number that the library has
        self._next = 0
        self._datasets: Dict[int, Tuple[int, Any]] = {}  # by id: the number of the source, and what keeps the id
        self._names: "Counter[str]" = Counter()
        self._step = -1
        self._told: Dict[Tuple[bool, int], Tuple[int, int, int]] = {}  # by pass: the batch and its samples
        self._unnumbered: "Counter[str]" = Counter()
        self._has_told = False

    def listen(self) -> Handle:
        return LOADERS.listen(self._delivered)

    def _delivered(self, delivery: Delivery) -> None:
        session = self._session
        if session.failed or session.tracker.state.is_stopped or not session.sampling.is_looking:
            return
        with session.guard():
            if delivery.why:
                self._unnumbered[delivery.why] += 1
                return
            tensors = [tensor for tensor in (each() for each in delivery.tensors) if tensor is not None]
            number, self._next = self._next, self._next + 1
            self._batches[number] = delivery
            if len(self._batches) > _KEPT:
                del self._batches[next(iter(self._batches))]
            given = session.adapter.describe(tensors)
            session.tracker.delivered(given.address, given.count, number, len(delivery.numbers), delivery.in_rows)

    def read(self, evaluating: bool, micro_batch: int, batch: int, first: int, count: int) -> bool:
        """The pass reads a part of a batch; says whether its samples are those of the pass, which the trace has."""
        delivery = self._batches.get(batch)
        if delivery is None:
            return False
        session = self._session
        if session.tracker.state.step != self._step:
            self._step = session.tracker.state.step
            self._told.clear()
        place, part = (evaluating, micro_batch), (batch, first, count)
        if place not in self._told:  # a pass has one batch
            session.recorder.batch(self._source(delivery.dataset), delivery.numbers[first:first + count])
            self._told[place], self._has_told = part, True
        return self._told[place] == part

    def _source(self, dataset: Any) -> int:
        """The number of a data set in the trace."""
        known = self._datasets.get(id(dataset))
        if known is not None:
            return known[0]
        name, number = type(dataset).__name__, len(self._datasets)
        self._names[name] += 1
        if self._names[name] > 1:
            name = f"{name} {self._names[name]}"
        try:
            samples = len(dataset)
        except Exception:  # it has none
            samples = _MOST_SAMPLES
        self._session.recorder.source(number, name, samples)
        self._datasets[id(dataset)] = number, dataset
        return number

    def notes(self) -> Iterator[str]:
        """Sentences on batches whose samples are not in the trace."""
        for why, count in self._unnumbered.most_common(3):
            yield f"{count} batches of data loaders have no numbers of samples: {why}."
        if self._next and not self._has_told:
            yield "No pass reads a batch of a data loader as it was given, so that its samples are not known."
