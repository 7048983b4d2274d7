"""Statistics of tensors by PyTorch's own ops, on the device and the stream where the tensors are, so that nothing waits for them
until the step ends. recorder/ulpscope_aten.h has what a row is; _fast/device_statistics.h computes the same for the callbacks."""

import contextlib
import ctypes
import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .tracker import (
    ADAM, COUNTS_OF_UPDATE, EDGES, NUMBER, REALS, ROUNDING_EDGES, ROUNDINGS, ROW, SQUARE, MeasureStruct, UpdateStruct)

_ROWS_OF_CHUNK = 256
# A larger tensor is taken in parts, so that what is computed from it stays small.
_PART = 1 << 22
# Counts of a large part are added up in several places: threads that add to one wait for each other.
_SMALL_PART, _MOST_PLACES = 1 << 14, 256

takes_host_as_device = False  # tests take tensors of the host as those of a device are


def is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu and not takes_host_as_device


def is_capturing() -> bool:
    """Whether a CUDA graph is captured on the current stream."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # raises in a PyTorch without CUDA


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Ops in the block are seen by no mode, autocast or autograd."""
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowADInplaceOrView(), torch._C._DisableAutocast():
        yield


def asked_update(rule: UpdateStruct, count: float, weight: torch.Tensor, gradient: Optional[torch.Tensor],
                 first: Optional[torch.Tensor], second: Optional[torch.Tensor], steps: Optional[torch.Tensor]) -> torch.Tensor:
    """The update that a rule of torch.optim asks for, as recorder/aten/update_rule.cpp computes it."""
    with unseen():
        dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32

        def typed(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype).contiguous()

        w = typed(weight)
        if rule.rule == ADAM and first is not None and second is not None:
            taken = torch.scalar_tensor(count, dtype=torch.float64) if steps is None else steps.double().reshape(())
            mean_factor = (1 - rule.first_decay**taken).reciprocal().to(dtype)
            root_factor = (1 - rule.second_decay**taken).sqrt().reciprocal().to(dtype)
            root = typed(second.double().sqrt())  # rounded once, as roots of FP32 in FP32
            moved = typed(first) * mean_factor / (root * root_factor + rule.epsilon)
            return (moved + w * (rule.weight_decay if rule.decoupled else 0.0)) * -rule.learning_rate
        if first is not None and not rule.nesterov:
            return typed(first) * -rule.learning_rate
        assert gradient is not None
        unscaled = typed(gradient) if rule.factor == 1 else typed(gradient.double() / rule.factor)
        decayed = unscaled * (-1.0 if rule.maximize else 1.0) + w * rule.weight_decay
        return (decayed if first is None else decayed + typed(first) * rule.momentum) * -rule.learning_rate


class _Chunk(NamedTuple):
    """Rows on a device, and in the host's memory, which for tensors of the host is the same."""

    rows: torch.Tensor
    host: torch.Tensor


class _Stream:
    """Memory that was made on a stream is used on it alone."""

    def __init__(self, device: torch.device, stream: Any) -> None:
        self.device, self.stream = device, stream  # None: that of the host
        self.chunks: List[int] = []
        self.used = self.rows = 0  # chunks in this step, and rows of the last one
        self.one: Any = None
        self.edges: Dict[int, torch.Tensor] = {}


class DeviceStatistics:
    """The rows of a step."""

    def __init__(self) -> None:
        self._streams: Dict[Any, _Stream] = {}
        self._chunks: List[_Chunk] = []
        self._is_settled = False

    def take(self, measure: MeasureStruct, given: torch.Tensor, *others: Optional[torch.Tensor]) -> Tuple[int, int]:
        """The number of the first row that was taken, and how many there are."""
        with unseen():
            return self._take(measure, given, *others)

    def _take(self, measure: MeasureStruct, given: torch.Tensor, cast_from: Optional[torch.Tensor], before: Optional[torch.Tensor],
              update: Optional[torch.Tensor], gradient: Optional[torch.Tensor]) -> Tuple[int, int]:
        if self._is_settled:
            self._is_settled = False
            for each in self._streams.values():
                each.used = each.rows = 0
        stream = self._stream_of(given.device)
        is_cast = cast_from is not None and cast_from.device == given.device
        counted = cast_from if is_cast and cast_from is not None else given
        elements = 1 if measure.kind == NUMBER else counted.numel()
        size = max(_PART, -(-elements // _ROWS_OF_CHUNK))
        parts = -(-elements // size)
        first, rows = self._rows_of(stream, given.device, parts)
        if measure.kind == NUMBER:
            _real(rows[0], 0).copy_(counted.reshape(-1)[0], non_blocking=True)
            return first, parts
        if parts > 1:  # a tensor that is not contiguous is copied by this, once
            counted, given = counted.reshape(-1), given.reshape(-1)
            before, update, gradient = (None if each is None else each.reshape(-1) for each in (before, update, gradient))
        for part in range(parts):
            def values_of(whole: torch.Tensor) -> torch.Tensor:
                piece = whole if parts == 1 else whole[part * size:(part + 1) * size]
                return piece.to(torch.float64, non_blocking=True, memory_format=torch.contiguous_format).contiguous().view(-1)

            values, row = values_of(counted), rows[part]
            if measure.kind == SQUARE:
                torch.sum(values * values, 0, out=_real(row, 0))
                continue
            if measure.kind == COUNTS_OF_UPDATE and before is not None:
                w = values_of(before)
                d = values - w if update is None else values_of(update)
                self._take_update(values, w, d, None if gradient is None else values_of(gradient) / measure.factor, row)
                continue
            magnitudes = self._take_values(stream, measure, values, row)
            if is_cast:
                self._take_roundings(stream, measure, values, magnitudes, values_of(given), row)
        return first, parts

    def wait(self) -> bool:
        """Waits for each stream on which rows were taken; False: it cannot, since one of them is being captured."""
        self._is_settled = True
        if is_capturing():
            return False
        streams = [each for each in self._streams.values() if each.stream is not None and each.rows > 0]
        with torch._C._DisableTorchDispatch():
            for each in streams:
                with torch.get_device_module(each.device).stream(each.stream):
                    for chunk in each.chunks[:each.used]:
                        self._chunks[chunk].host.copy_(self._chunks[chunk].rows, non_blocking=True)
            for each in streams:
                each.stream.synchronize()
        return True

    def row(self, number: int) -> int:
        """The address of a row in the host's memory."""
        return self._chunks[number // _ROWS_OF_CHUNK].host.data_ptr() + number % _ROWS_OF_CHUNK * ROW * 8

    def _stream_of(self, device: torch.device) -> _Stream:
        stream = None if device.type == "cpu" else torch.get_device_module(device).current_stream(device)
        key = (device, None if stream is None else stream.stream_id)
        known = self._streams.get(key)
        if known is None:
            known = self._streams[key] = _Stream(device, stream)
        return known

    def _rows_of(self, stream: _Stream, device: torch.device, count: int) -> Tuple[int, torch.Tensor]:
        """Rows that are 0, one behind the other, with the number of the first."""
        if stream.used == 0 or stream.rows + count > _ROWS_OF_CHUNK:
            if stream.used == len(stream.chunks):
                rows = torch.zeros(_ROWS_OF_CHUNK, ROW, dtype=torch.int64, device=device)
                host = rows if stream.stream is None else torch.empty(_ROWS_OF_CHUNK, ROW, dtype=torch.int64, pin_memory=True)
                stream.chunks.append(len(self._chunks))
                self._chunks.append(_Chunk(rows, host))
            else:
                self._chunks[stream.chunks[stream.used]].rows.zero_()
            stream.used += 1
            stream.rows = 0
        chunk, begin = stream.chunks[stream.used - 1], stream.rows
        stream.rows += count
        return chunk * _ROWS_OF_CHUNK + begin, self._chunks[chunk].rows[begin:begin + count]

    @staticmethod
    def _edges_of(stream: _Stream, address: int, count: int, device: torch.device) -> torch.Tensor:
        known = stream.edges.get(address)
        if known is None:
            values = list((ctypes.c_double * count).from_address(address))
            known = stream.edges[address] = torch.tensor(values, dtype=torch.float64).to(device, non_blocking=True)
        return known

    @staticmethod
    def _count(stream: _Stream, places: torch.Tensor, counts: torch.Tensor) -> None:
        """Adds 1 for each of the places, in `counts`."""
        if stream.one is None:
            stream.one = torch.ones(1, dtype=places.dtype, device=places.device)
        elements = places.numel()
        lists = 1 if elements < _SMALL_PART else math.gcd(elements, _MOST_PLACES)
        if lists == 1:
            counts.scatter_add_(0, places, stream.one.expand(elements))
            return
        several = counts.new_zeros(lists, counts.numel())
        several.scatter_add_(1, places.view(lists, -1), stream.one.expand(lists, elements // lists))
        torch.sum(several, 0, out=counts)

    def _take_values(self, stream: _Stream, measure: MeasureStruct, values: torch.Tensor, row: torch.Tensor) -> Optional[torch.Tensor]:
        """Gives the magnitudes, 0 where a value is not finite, if the level needs them."""
        edges = self._edges_of(stream, measure.edges, EDGES, values.device)
        self._count(stream, torch.bucketize(values, edges), row[:ROUNDINGS])
        if measure.level < 2:
            return None
        finite = values.nan_to_num(0.0, 0.0, 0.0)
        torch.sum(finite, 0, out=_real(row, 0))
        torch.sum(finite * finite, 0, out=_real(row, 1))
        magnitudes = finite.abs()
        torch.amax(magnitudes, 0, out=_real(row, 2))
        torch.amin(torch.threshold(magnitudes, 0.0, math.inf), 0, out=_real(row, 3))
        return magnitudes

    @staticmethod
    def _take_update(after: torch.Tensor, before: torch.Tensor, update: torch.Tensor, gradient: Optional[torch.Tensor],
                     row: torch.Tensor) -> None:
        nonzero = update.ne(0)
        torch.sum(nonzero, 0, out=row[0])
        torch.sum(nonzero.logical_and(after.eq(before)), 0, out=row[1])
        torch.sum(before * before, 0, out=_real(row, 0))
        torch.sum(update * update, 0, out=_real(row, 1))
        if gradient is not None:
            torch.sum(gradient * update, 0, out=_real(row, 2))

    def _take_roundings(self, stream: _Stream, measure: MeasureStruct, values: torch.Tensor, magnitudes: Optional[torch.Tensor],
                        cast: torch.Tensor, row: torch.Tensor) -> None:
        edges = self._edges_of(stream, measure.rounding_edges, ROUNDING_EDGES, values.device)
        places = torch.bucketize(values.nan_to_num(0.0, 0.0, 0.0).abs() if magnitudes is None else magnitudes, edges)
        self._count(stream, values.ne(cast).add(places, alpha=2), row[ROUNDINGS:REALS])


def _real(row: torch.Tensor, index: int) -> torch.Tensor:
    return row[REALS + index].view(torch.float64)
