"""Checkpoints as files and folders hold them: which of their tensors are weights, which are an optimizer's, and the scaler's state."""

import glob
import os
import pickle
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from ._formats import NAMES, counted
from ._library import Error


class Unreadable(Error):
    """A file that is no checkpoint, is damaged, or cannot be opened."""


class Group(NamedTuple):
    """Tensors of one dict, by name, without those of a second name for the same memory; `path` is where the dict stands in the file.
    `ordered` says whether they have the order of the model, which safetensors does not keep; `parameters` are the names of those that are
    trained, in order, where a model told them."""

    path: str
    tensors: Dict[str, torch.Tensor]
    ordered: bool = True
    parameters: Optional[List[str]] = None


class Parameter(NamedTuple):
    """What an optimizer keeps of one parameter. `weight` is None where the file does not tell which weight it is."""

    name: str
    state: Dict[str, Any]
    group: Dict[str, Any]
    weight: Optional[torch.Tensor] = None


class Optimizer(NamedTuple):
    """A torch.optim.Optimizer's state_dict. `matched` says how weights were found: "names", "order", or "" where none were."""

    path: str
    parameters: List[Parameter]
    matched: str = ""


class Scaler(NamedTuple):
    """A GradScaler's state_dict."""

    path: str
    state: Dict[str, Any]


class Checkpoint(NamedTuple):
    """All that was found; `files` are those that were read, and `left_out` says of others in the folder, and of tensors, why they were not. `groups` are
    weights, `others` what is none beside them, as a list of losses."""

    path: str
    files: List[str]
    groups: List[Group]
    others: List[Group]
    optimizers: List[Optimizer]
    scalers: List[Scaler]
    left_out: List[str]


# Lightning's: states of callbacks and of loops hold best scores, which begin as Inf, and no weights.
_NOT_WALKED = ("callbacks", "loops", "lr_schedulers", "hyper_parameters", "datamodule_hyper_parameters")
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "inv_freq", "position_ids", "attn_mask", "mask")
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")
_TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_SAFE_ENDING = ".safetensors"


def read(path: str, model: Optional[torch.nn.Module] = None) -> Checkpoint:
    """Reads a file, or the files of a folder; a model tells the order of its parameters. Raises Unreadable, or Error where a package is
    missing."""
    if os.path.isdir(path):
        files = sorted(file for ending in _TORCH_ENDINGS + (_SAFE_ENDING,) for file in glob.glob(os.path.join(glob.escape(path), "*" + ending))
                       if not os.path.basename(file).startswith(("rng_state", "random_states", "training_args", "scheduler")))
        if not files:
            raise Unreadable(f"{path} has no file of a checkpoint: expected {', '.join('*' + e for e in _TORCH_ENDINGS + (_SAFE_ENDING,))}")
    elif os.path.exists(path):
        files = [path]
    else:
        raise Unreadable(f"{path}: no such file")
    found = Checkpoint(path, files, [], [], [], [], [])
    for file in files:
        prefix = os.path.basename(file) if len(files) > 1 else ""
        try:
            if file.endswith(_SAFE_ENDING):
                found.groups.append(Group(prefix, _floating(_load_safetensors(file), found.left_out), ordered=False))
            else:
                _walk(load_torch(file), prefix, found)
        except Error as error:
            if len(files) == 1:
                raise
            found.left_out.append(str(error))
    weights = [group for group in found.groups if any(tensor.dim() > 0 for tensor in group.tensors.values())]
    shards = [group for group in weights if "-of-" in group.path and "/" not in group.path]
    if len(shards) > 1:  # of one model
        whole = Group("", {name: tensor for shard in shards for name, tensor in shard.tensors.items()}, ordered=False)
        weights = [group for group in weights if "-of-" not in group.path or "/" in group.path] + [whole]
    others = [group for group in weights if not _has_names_of_weights(group)]
    if len(others) == len(weights):  # a file of tensors alone
        others = []
    weights = [group for group in weights if not any(group is other for other in others)]
    if not weights and not found.optimizers and not found.scalers:
        why = f": {found.left_out[0]}" if found.left_out else ""
        raise Unreadable(f"{path} has no tensors of weights, no state of an optimizer and none of a scaler{why}")
    if model is not None:
        weights = [_as_in(model, group) for group in weights]
    optimizers = [_matched(optimizer, weights) for optimizer in found.optimizers]
    return found._replace(groups=weights, others=others, optimizers=optimizers)


def _has_names_of_weights(group: Group) -> bool:
    return any("." in name or name.endswith(("weight", "bias")) for name in group.tensors)


def _as_in(model: torch.nn.Module, group: Group) -> Group:
    """The group with the model's parameters first, in their order, where it has all of them."""
    by_name = {_bare(name): name for name in group.tensors}
    names = [by_name.get(_bare(name)) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if any(name is None for name in names):
        return group
    return group._replace(parameters=[name for name in names if name is not None])


def _load_safetensors(path: str) -> Dict[str, torch.Tensor]:
    try:
        from safetensors import safe_open
    except ImportError:
        raise Error(f"{path} is read by the package safetensors, which is not installed: pip install safetensors") from None
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except Exception as error:  # SafetensorError is one of its own, beside OSError
        raise Unreadable(f"{path} is no readable safetensors file: {_line(error)}") from error


def load_torch(path: str) -> Any:
    """Reads a file by torch.load without running code of it, onto the CPU. Raises Unreadable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            try:
                return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except RuntimeError as error:
                if "mmap" not in str(error):  # files of before PyTorch 1.6 cannot be mapped
                    raise
                return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            classes = _classes(path)
            if not classes:
                raise Unreadable(f"{path} is no checkpoint of torch.save or safetensors, or is damaged") from error
            raise Unreadable(f"{path} holds pickled objects of {', '.join(classes)}, which are not loaded, as that runs code of the file. "
                             "Save tensors alone; or, if you trust it, call torch.serialization.add_safe_globals() before") from error
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror or _line(error)}") from error
        except Exception as error:
            detail = f": {_line(error)}" if isinstance(error, (RuntimeError, EOFError, ValueError)) else ""
            raise Unreadable(f"{path} is no file that torch.load reads{detail}") from error


def _classes(path: str) -> List[str]:
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # it raises for files in other formats; PyTorch before 2.5 has no such function
        return []


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _is_optimizer(item: Dict[Any, Any]) -> bool:
    groups = item.get("param_groups")
    return isinstance(item.get("state"), dict) and isinstance(groups, list) and all(
        isinstance(group, dict) and isinstance(group.get("params"), (list, tuple)) for group in groups)


def _is_scaler(item: Dict[Any, Any]) -> bool:
    return "scale" in item and "_growth_tracker" in item


def _walk(item: Any, path: str, found: Checkpoint) -> None:
    if isinstance(item, torch.Tensor):
        item, path = {os.path.basename(path) or "tensor": item}, os.path.dirname(path)
    elif isinstance(item, (list, tuple)):
        item = dict(enumerate(item))
    if not isinstance(item, dict):
        return
    if _is_optimizer(item):
        found.optimizers.append(Optimizer(path, _parameters(item)))
    elif _is_scaler(item):
        found.scalers.append(Scaler(path, item))
    else:
        tensors = _floating(item, found.left_out)
        if tensors:
            found.groups.append(Group(path, tensors))
        for key, value in item.items():
            if isinstance(value, (dict, list, tuple)) and key not in _NOT_WALKED:
                _walk(value, f"{path}/{key}" if path else str(key), found)


def _kept_otherwise(tensor: torch.Tensor) -> str:
    """How a tensor of numbers is kept, where that is not as an array of real ones; else nothing."""
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return "quantized"
    if tensor.dtype.is_complex:
        return "complex"
    return "" if tensor.layout is torch.strided else "sparse"


def _floating(item: Dict[Any, Any], left_out: List[str]) -> Dict[str, torch.Tensor]:
    """Tensors in floating point, each once; of those that are kept otherwise a line goes to `left_out`."""
    seen, tensors, others = set(), {}, {}
    for name, value in item.items():
        if not isinstance(value, torch.Tensor):
            continue
        if how := _kept_otherwise(value):
            others[str(name)] = how
            continue
        if value.dtype not in NAMES or value.is_meta or value.numel() == 0:
            continue
        memory = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if memory not in seen:  # tied weights are one parameter, under two names
            seen.add(memory)
            tensors[str(name)] = value
    if others:
        more = f" and {counted(len(others) - 1, 'more tensor', 'more tensors')}" if len(others) > 1 else ""
        left_out.append(f"`{next(iter(others))}`{more}: tensors that are {' or '.join(dict.fromkeys(others.values()))} are not looked at.")
    return tensors


def _parameters(item: Dict[str, Any]) -> List[Parameter]:
    parameters = []
    for group in item["param_groups"]:
        settings = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        names = group.get("param_names") or []
        for place, key in enumerate(group["params"]):
            name = names[place] if place < len(names) else key if isinstance(key, str) else f"parameter {key}"
            state = item["state"].get(key, {})
            parameters.append(Parameter(str(name), state if isinstance(state, dict) else {}, settings))
    return parameters


def _bare(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _fits(parameter: Parameter, tensor: torch.Tensor) -> bool:
    """Whether states have the shape of the weight; where there are none yet, nothing is known against it."""
    return all(value.shape == tensor.shape for value in _states(parameter))


def _states(parameter: Parameter) -> List[torch.Tensor]:
    return [value for value in parameter.state.values() if isinstance(value, torch.Tensor) and value.dim() > 0]


def _matched(optimizer: Optimizer, groups: List[Group]) -> Optimizer:
    """The optimizer with the weight of each parameter: by names where the file has them, else by order, where just one of the
    dicts has as many parameters in the same order, each of the shape of its states."""
    parameters = optimizer.parameters
    beside = [group for group in groups if group.path.split("/")[0] == optimizer.path.split("/")[0]]
    groups = beside or groups  # of several models, those in the same file or dict
    ways: List[Tuple[str, List[Tuple[str, Optional[torch.Tensor]]]]] = []
    for group in groups:
        by_name = {_bare(name): tensor for name, tensor in group.tensors.items()}
        named = [by_name.get(_bare(parameter.name)) for parameter in parameters]
        if all(tensor is not None and _fits(parameter, tensor) for parameter, tensor in zip(parameters, named)):
            ways.append(("names", [(parameter.name, tensor) for parameter, tensor in zip(parameters, named)]))
            continue
        ordered = _in_order(parameters, group)
        if ordered is not None:
            ways.append(("order", [*ordered]))
    best = [way for way in ways if way[0] == "names"] or ways
    if len(best) != 1 or not parameters:
        return optimizer
    return optimizer._replace(matched=best[0][0], parameters=[
        parameter._replace(name=name, weight=tensor) for parameter, (name, tensor) in zip(parameters, best[0][1])])


def _in_order(parameters: List[Parameter], group: Group) -> Optional[List[Tuple[str, torch.Tensor]]]:
    """The weights of parameters that the optimizer was given in the order of the model, in one group or in groups of other shapes."""
    if group.parameters is not None:
        weights = [(name, group.tensors[name]) for name in group.parameters]
    elif group.ordered:
        weights = [(name, tensor) for name, tensor in group.tensors.items() if name.rsplit(".", 1)[-1] not in _BUFFERS]
    else:
        return None
    if len(weights) != len(parameters):
        return None
    parts: Dict[int, List[Parameter]] = {}
    for parameter in parameters:
        parts.setdefault(id(parameter.group), []).append(parameter)
    if len(parts) == 1:
        return weights if all(_fits(parameter, tensor) for parameter, (_, tensor) in zip(parameters, weights)) else None
    # Groups share no shape where biases have no decay, and then a shape says which group a weight is in.
    found: Dict[int, Tuple[str, torch.Tensor]] = {}
    taken = 0
    for part in parts.values():
        shapes = {tuple(next(iter(_states(parameter))).shape) if _states(parameter) else None for parameter in part}
        fitting = [weight for weight in weights if tuple(weight[1].shape) in shapes]
        if None in shapes or len(fitting) != len(part) or not all(_fits(p, w[1]) for p, w in zip(part, fitting)):
            return None
        found.update((id(parameter), weight) for parameter, weight in zip(part, fitting))
        taken += len(fitting)
    return [found[id(parameter)] for parameter in parameters] if taken == len(weights) else None
