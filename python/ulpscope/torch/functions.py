"""Which function of a trace an op of ATen computes, in which order it reads, and the product that it is."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

Product = Tuple[int, int, int, int, int]

# Names of ATen, without the underscore of what is in place and without _foreach_. Names that both know need no row.
_FUNCTIONS: Dict[str, str] = {
    "_to_copy": "cast",
    "clone": "copy",
    "copy": "copy",
    "contiguous": "copy",
    "mm": "matmul",
    "bmm": "matmul",
    "dot": "matmul",
    "mv": "matmul",
    "addmm": "linear",
    "addmv": "linear",
    "addbmm": "linear",
    "baddbmm": "linear",
    "mkldnn_linear": "linear",
    "_scaled_mm": "scaled_matmul",
    "mkldnn_convolution": "convolution",
    "cudnn_convolution": "convolution",
    "_convolution": "convolution",
    "_scaled_dot_product_flash_attention": "attention",
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_cudnn_attention": "attention",
    "native_batch_norm": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "_batch_norm_no_update": "batch_norm",
    "native_batch_norm_backward": "batch_norm_backward",
    "cudnn_batch_norm_backward": "batch_norm_backward",
    "batch_norm_backward": "batch_norm_backward",
    "native_layer_norm": "layer_norm",
    "native_layer_norm_backward": "layer_norm_backward",
    "native_group_norm": "group_norm",
    "native_group_norm_backward": "group_norm_backward",
    "_fused_rms_norm": "rms_norm",
    "_fused_rms_norm_backward": "rms_norm_backward",
    "_softmax": "softmax",
    "_softmax_backward_data": "softmax_backward",
    "_safe_softmax": "softmax",
    "_masked_softmax": "masked_softmax",
    "_log_softmax": "log_softmax",
    "_log_softmax_backward_data": "log_softmax_backward",
    "threshold_backward": "relu_backward",
    "hardtanh": "clamp",
    "hardtanh_backward": "clamp_backward",
    "clamp_min": "clamp",
    "clamp_max": "clamp",
    "native_dropout": "dropout",
    "_fused_dropout": "dropout",
    "full": "fill",
    "full_like": "fill",
    "zeros": "fill",
    "zeros_like": "fill",
    "ones": "fill",
    "ones_like": "fill",
    "new_full": "fill",
    "new_zeros": "fill",
    "new_ones": "fill",
    "scalar_tensor": "fill",
    "arange": "fill",
    "eye": "fill",
    "linspace": "fill",
    "zero": "fill",
    "rand": "fill",
    "rand_like": "fill",
    "randn": "fill",
    "randn_like": "fill",
    "randint": "fill",
    "randperm": "fill",
    "normal": "fill",
    "uniform": "fill",
    "bernoulli": "fill",
    "exponential": "fill",
    "amax": "max",
    "linalg_vector_norm": "norm",
    "max_pool2d_with_indices": "max_pool",
    "max_pool2d_with_indices_backward": "max_pool_backward",
    "max_pool3d_with_indices": "max_pool",
    "max_pool3d_with_indices_backward": "max_pool_backward",
    "adaptive_max_pool2d": "max_pool",
    "adaptive_max_pool2d_backward": "max_pool_backward",
    "avg_pool2d": "average_pool",
    "avg_pool2d_backward": "average_pool_backward",
    "avg_pool3d": "average_pool",
    "avg_pool3d_backward": "average_pool_backward",
    "_adaptive_avg_pool2d": "average_pool",
    "_adaptive_avg_pool2d_backward": "average_pool_backward",
    "embedding_dense_backward": "embedding_backward",
    "select_backward": "slice_backward",
    "stack": "cat",
    "index_select": "gather",
    "index": "gather",
    "nll_loss_forward": "nll",
    "nll_loss_backward": "nll_backward",
    "nll_loss2d_forward": "nll",
    "nll_loss2d_backward": "nll_backward",
    "mse_loss": "mse",
    "mse_loss_backward": "mse_backward",
    "smooth_l1_loss": "huber",
    "smooth_l1_loss_backward": "huber_backward",
    "huber_loss": "huber",
    "huber_loss_backward": "huber_backward",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "_thnn_fused_lstm_cell": "lstm_cell",
    "_thnn_fused_lstm_cell_backward_impl": "lstm_cell_backward",
    "_thnn_fused_gru_cell": "gru_cell",
    "_thnn_fused_gru_cell_backward": "gru_cell_backward",
}
_SAME_NAME = frozenset("""
    add sub mul div neg maximum minimum where masked_fill abs sqrt rsqrt reciprocal exp log pow sin cos erf tanh tanh_backward
    sigmoid sigmoid_backward softplus softplus_backward silu silu_backward relu clamp dropout fill sum mean var norm logsumexp
    embedding gather scatter_add cat slice_backward gelu gelu_backward binary_cross_entropy binary_cross_entropy_backward
    matmul linear convolution max
""".split())

# The op's arguments in the order of the function's inputs (docs/trace_format.md, Functions), where the op has another one, or where a
# number may stand in the place of a tensor. Tensors that are not named come behind, as the op has them.
_READS: Dict[str, Tuple[str, ...]] = {
    "addmm": ("mat1", "mat2", "self"),
    "addmv": ("mat", "vec", "self"),
    "addbmm": ("batch1", "batch2", "self"),
    "baddbmm": ("batch1", "batch2", "self"),
    "add": ("self", "other"),
    "sub": ("self", "other"),
    "mul": ("self", "other"),
    "div": ("self", "other"),
    "pow": ("self", "exponent"),
    "where": ("condition", "self", "other"),
    "convolution_backward": ("grad_output", "weight", "input"),
    "native_batch_norm_backward": ("grad_out", "input", "weight", "save_mean", "save_invstd"),
    "batch_norm_backward": ("grad_out", "input", "weight", "save_mean", "save_var"),
    "cudnn_batch_norm_backward": ("grad_output", "input", "weight", "save_mean", "save_var"),
    "native_layer_norm_backward": ("grad_out", "input", "weight", "mean", "rstd"),
    "native_group_norm_backward": ("grad_out", "input", "weight", "mean", "rstd"),
    "_fused_rms_norm_backward": ("grad_out", "input", "weight", "rstd"),
    "max_pool2d_with_indices_backward": ("grad_output", "indices"),
    "max_pool3d_with_indices_backward": ("grad_output", "indices"),
    "adaptive_max_pool2d_backward": ("grad_output", "indices"),
    "nll_loss_backward": ("grad_output", "target"),
    "nll_loss2d_backward": ("grad_output", "target"),
    "_thnn_fused_lstm_cell_backward_impl": ("grad_hy", "grad_cy", "workspace", "cx", "cy"),
}
# The order of a convolution's backward whose input takes no gradient.
_READS_FOR_WEIGHT = ("grad_output", "input")


def base_name(name: str) -> str:
    """An op's name without what says that it is in place or goes over lists."""
    if name.startswith("_foreach_"):
        name = name[len("_foreach_"):]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def gives_gradient_of_input(arguments: Dict[str, Any]) -> bool:
    """Of the backward op of a convolution."""
    return bool(arguments.get("output_mask", [True])[0])


def function_of(name: str, arguments: Dict[str, Any]) -> str:
    """The function that an op computes; `other` where a trace has no word for it."""
    base = base_name(name)
    if base in ("gelu", "gelu_backward") and arguments.get("approximate") == "tanh":
        return "gelu_tanh" if base == "gelu" else "gelu_tanh_backward"
    if base == "convolution" and arguments.get("transposed"):
        return "transposed_convolution"
    if base == "convolution_backward":
        of_input = gives_gradient_of_input(arguments)
        return ("transposed_" if arguments.get("transposed") else "") + (
            "convolution_backward_input" if of_input else "convolution_backward_weight")
    if base in _SAME_NAME:
        return base
    return _FUNCTIONS.get(base, "other")


def name_of_call(name: str, function: str) -> str:
    """The name under which a call is recorded: an op's id is made from its name, so that a name has one function."""
    if function == function_of(name, {}):
        return name
    return function if function != "other" else "convert"


def tensors_in(value: Any) -> List[torch.Tensor]:
    """Tensors of an argument or a result, lists and tuples looked into."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in tensors_in(item)]
    return []


class Read(NamedTuple):
    """A tensor that an op reads."""

    argument: str
    number: int  # among the function's inputs
    tensor: torch.Tensor


def _count(extents: Sequence[int]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


def product_of(name: str, arguments: Dict[str, Any]) -> Optional[Product]:
    """M, N, K, how many products, and 1 where M is padded; None where the op is no product."""
    base = base_name(name)

    def shape(argument: str) -> Tuple[int, ...]:
        return tuple(arguments[argument].shape)

    if base in ("mm", "addmm"):
        first, second = shape("self" if base == "mm" else "mat1"), shape("mat2")
        return first[0], second[1], first[1], 1, 1
    if base in ("bmm", "baddbmm", "addbmm"):
        first, second = shape("self" if base == "bmm" else "batch1"), shape("mat2" if base == "bmm" else "batch2")
        return first[1], second[2], first[2], first[0], 1
    if base == "dot":
        return 1, 1, shape("self")[0], 1, 1
    if base in ("mv", "addmv"):
        matrix = shape("self" if base == "mv" else "mat")
        return matrix[0], 1, matrix[1], 1, 1
    if base == "linear":
        given, weight = shape("input"), shape("weight")
        return _count(given[:-1]), weight[0], weight[1], 1, 1
    if base in ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
                "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"):
        query, key = shape("query"), shape("key")
        return query[-2], key[-2], query[-1], _count(query[:-2]), 1
    return None


def product_of_convolution(arguments: Dict[str, Any], output: Sequence[int]) -> Product:
    """As product_of; of a convolution, whose pixels only its output has."""
    given, weight, groups = arguments["input"].shape, arguments["weight"].shape, arguments.get("groups", 1)
    window = _count(weight[2:])
    if arguments.get("transposed"):
        return given[0] * _count(given[2:]), weight[1] * window, weight[0] // groups, groups, 0
    return output[0] * _count(output[2:]), weight[0] // groups, weight[1] * window, groups, 0


class Argument(NamedTuple):
    """One argument of an op."""

    name: str
    is_tensor: bool
    written: bool
    out: bool
    default: Any


class Schema:
    """The schema of an overload, read once."""

    def __init__(self, overload: Any) -> None:
        packet = overload._schema.name
        self.namespace, self.name = packet.split("::", 1)
        self.overload = overload
        self.arguments: List[Argument] = []
        for each in overload._schema.arguments:
            written = each.alias_info is not None and each.alias_info.is_write
            default = each.default_value if each.has_default_value() else None
            self.arguments.append(Argument(each.name, "Tensor" in str(each.type), written, written and each.kwarg_only, default))
        self.writes = any(each.written for each in self.arguments)
        self.is_view = not self.writes and any(each.alias_info is not None for each in overload._schema.returns)
        self.base = base_name(self.name)
        self.is_empty = "empty" in self.base and self.base not in ("is_empty",)
        # Ops that write without reading before.
        self.overwrites = self.base in ("copy", "fill", "zero", "normal", "uniform", "bernoulli", "exponential", "random",
                                        "geometric", "log_normal", "cauchy", "resize", "set")
        # Ops that take a tensor for its shape alone.
        self.reads_values = not (self.base.endswith("_like") or self.base.startswith("new_"))
        self.is_list = self.name.startswith(("_foreach_", "_fused_", "_amp_foreach_"))
        self._order = self._order_of(_READS.get(self.base, ()))
        self._order_for_weight = self._order_of(_READS_FOR_WEIGHT)

    def bind(self, args: Sequence[Any], kwargs: Dict[str, Any]) -> Dict[str, Any]:
        """Arguments by name; those left out have their default."""
        bound: Dict[str, Any] = {}
        for index, each in enumerate(self.arguments):
            bound[each.name] = args[index] if index < len(args) else kwargs.get(each.name, each.default)
        return bound

    def reads(self, bound: Dict[str, Any]) -> List[Read]:
        """The tensors that the op reads, as the function counts them: what is left out or is a number keeps its place."""
        order = self._order
        if self.base == "convolution_backward" and not gives_gradient_of_input(bound):
            order = self._order_for_weight
        found: List[Read] = []
        number = 0
        for each in order:
            value = bound[each.name]
            if isinstance(value, (list, tuple)):
                for tensor in tensors_in(value):
                    found.append(Read(each.name, number, tensor))
                    number += 1
                continue
            if isinstance(value, torch.Tensor):
                found.append(Read(each.name, number, value))
            number += 1
        return found

    def _order_of(self, first: Sequence[str]) -> List[Argument]:
        by_name = {each.name: each for each in self.arguments}
        named = [by_name[name] for name in first if name in by_name]
        others = [each for each in self.arguments if each.is_tensor and each.name not in first]
        return [each for each in named + others
                if not each.out and self.reads_values and not (each.written and self.overwrites)]

    def attributes(self, bound: Dict[str, Any]) -> str:
        """Arguments that are no tensors and not their default, as name=value."""
        parts = []
        for each in self.arguments:
            if each.name in _NO_ATTRIBUTES:
                continue
            value = bound[each.name]
            text = _REDUCTIONS.get(value, "") if each.name == "reduction" else _attribute(value)
            if text and text != _attribute(each.default):
                parts.append(f"{each.name}={text}")
        return " ".join(parts)


def attributes_of_all(before: str, attributes: str) -> str:
    """Attributes of several calls of one op: name=varies where they differ."""
    if before == attributes:
        return before
    first, second = (dict(part.split("=", 1) for part in text.split()) for text in (before, attributes))
    merged = {name: value if second.get(name) == value else "varies" for name, value in first.items()}
    merged.update((name, "varies") for name in second if name not in first)
    return " ".join(f"{name}={value}" for name, value in merged.items())


# ATen numbers them; a trace has the words of torch.nn.functional.
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
_NO_ATTRIBUTES = frozenset(("generator", "device", "layout", "pin_memory", "memory_format", "non_blocking", "size"))


def _attribute(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value.replace(" ", "_")
    if isinstance(value, (list, tuple)):
        parts = [_attribute(each) for each in value]
        return ",".join(parts) if all(parts) else ""
    return str(value)[len("torch."):] if type(value).__name__ == "dtype" else ""
