"""Pairs of runs that differ in one planted thing, and which output has to be named as the first with other bits, and why.

A side is a list of changes to its model: "KEY=VALUE" as `--set` takes it, "EPS=..." and "ACTIVATION=..." in the file, "--option VALUE".
`output`: what the finding's key has, as "module op phase", a part of it or all; "" of source ops' modules.
`says`: the ids of the templates that the title has to have, besides the first, and words of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    name: str
    model: str
    output: str  # "module op", of the key
    says: tuple[str, ...]
    changes: tuple[str, ...]
    base: tuple[str, ...] = ()
    step: int = 0


def inject(where, element, flip_bit, step=0):
    return tuple(f"inject:{line}" for line in (where, f"element = {element}", f"flip_bit = {flip_bit}", f"step = {step}"))


TYPE = ("compare.first_op.type",)
ATTRIBUTE = ("compare.first_op.attribute",)
COMPUTED = ("compare.first_op.same", "compare.first_op.settings")
BEYOND = ("compare.first_op.beyond_rounding",)
ONLY = ("compare.first_op.only_in_second",)

PLANTED = [
    # Types.
    Pair("linear_in_fp32", "block", "attention.heads.qkv linear", TYPE, ("autocast.ops.linear=fp32",), ("precision=fp16",)),
    Pair("one_linear_in_fp32", "block", "feed_forward.out linear", TYPE, ('autocast.modules."feed_forward.out"=fp32',), ("precision=fp16",)),
    Pair("head_in_fp32", "convnet", "head linear", TYPE, ("autocast.modules.head=fp32",), ("precision=bf16",)),
    Pair("fp16_against_bf16", "block", "attention.heads.qkv cast", TYPE, ("precision=bf16",), ("precision=fp16",)),
    Pair("fp32_against_bf16", "convnet", "first conv2d", TYPE, ("precision=bf16",)),
    Pair("fp32_against_fp16", "block", "attention.heads.qkv linear", TYPE, ("precision=fp16",)),
    # Constants.
    Pair("eps_of_layer_norm", "block", "attention.norm layer_norm", ATTRIBUTE, ("EPS=1e-3",)),
    Pair("eps_of_batch_norm", "convnet", "norm batch_norm", ATTRIBUTE, ("EPS=1e-3",)),
    Pair("eps_of_layer_norm_in_fp16", "block", "attention.norm layer_norm", ATTRIBUTE, ("EPS=1e-4",), ("precision=fp16",)),
    Pair("eps_of_adamw", "block", "update", ATTRIBUTE, ("optimizer.eps=1e-6",)),
    Pair("momentum", "convnet", "sgd", ATTRIBUTE, ("optimizer.momentum=0.5",), step=1),
    Pair("weight_decay", "block", "update", ATTRIBUTE, ("optimizer.weight_decay=0.1",)),
    Pair("learning_rate", "convnet", "sgd", ("compare.first_op.learning_rate",), ("optimizer.learning_rate=0.04",)),
    Pair("loss_scale", "block", "scale", ("compare.first_op.loss_scale",), ("scaler.initial=1024",), ("precision=fp16",)),
    # Ops.
    Pair("gelu_by_tanh", "block", "feed_forward.activation gelu_tanh", ONLY, ("ACTIVATION=gelu_tanh",)),
    Pair("silu_for_gelu", "convnet", "activation silu", ONLY, ("ACTIVATION=silu",)),
    Pair("relu_for_gelu_in_fp16", "block", "feed_forward.activation relu", ONLY, ("ACTIVATION=relu",), ("precision=fp16",)),
    # Accumulation and rounding.
    Pair("linear_accumulates_in_fp16", "block", "attention.heads.qkv linear", COMPUTED, ("arithmetic.ops.linear.accumulate=fp16",), ("precision=fp16",)),
    Pair("head_accumulates_in_fp16", "block", "head linear", COMPUTED, ("arithmetic.modules.head.accumulate=fp16",), ("precision=fp16",)),
    Pair("convolution_accumulates_in_fp16", "convnet", "first conv2d", COMPUTED, ("arithmetic.ops.conv2d.accumulate=fp16",), ("precision=fp16",)),
    Pair("as_an_h100", "block", "", COMPUTED, ("arithmetic.accumulate=h100",), ("precision=bf16",)),
    Pair("factors_in_tf32", "block", "attention.heads.qkv linear", BEYOND, ("arithmetic.accumulate=a100",)),
    Pair("convolution_in_tf32", "convnet", "first conv2d", BEYOND, ("arithmetic.accumulate=a100",)),
    Pair("exact_sums", "convnet", "first conv2d", COMPUTED, ("arithmetic.accumulate=exact",)),
    Pair("activation_rounds_to_zero", "block", "feed_forward.activation gelu", ("compare.first_op.rounding",), ("arithmetic.modules.\"feed_forward.activation\".rounding=rz",), ("precision=fp16",)),
    Pair("everything_rounds_stochastically", "convnet", "first", ("compare.first_op.rounding",), ("arithmetic.rounding=sr",), ("precision=bf16",)),
    # The runs were given other things.
    Pair("seed", "block", "", ("compare.first_op.given",), ("seed=1",)),
    Pair("order_of_data", "convnet", "", ("compare.first_op.given",), ("data.shuffle=false",)),
    # Bits of weights and of what an op reads, low ones and high ones.
    Pair("bit_of_the_head", "block", "head linear", ("compare.first_op.memory",), inject('parameter = "head.weight"', 5, 0, 1), step=1),
    Pair("bit_of_a_convolution", "convnet", "first conv2d", ("compare.first_op.memory",), inject('parameter = "first.weight"', 3, 1, 2), step=2),
    Pair("bit_of_a_norm", "block", "feed_forward.norm rms_norm", ("compare.first_op.memory",), inject('parameter = "feed_forward.norm.weight"', 0, 12, 1), step=1),
    Pair("bit_before_an_op", "block", "feed_forward.out linear", ("compare.first_op.same",), inject('op = "linear"\nmodule = "feed_forward.out"', 7, 20, 1), step=1),
]

# Runs that differ in what is no difference of their training.
EQUAL = [
    Pair("evaluated_at_other_steps", "convnet", "", (), ("training.steps=5",), ("training.evaluation=end",)),
    Pair("recorded_in_less_detail", "block", "", (), ("--every 2",), ("precision=fp16",)),
    Pair("fewer_ops_recorded", "block", "", (), ("--filter-module feed_forward.*",), ("precision=bf16",)),
    Pair("another_level", "convnet", "", (), ("recording.level=full",)),
]

# Sums in another order or in more bits, other instructions and numbers of threads: rounding alone, which nobody is accused of.
ROUNDING = [
    Pair(f"{model}_{precision}_{'_'.join(change).replace('--', '').replace(' ', '')}", model, "", (), change, (f"precision={precision}",))
    for model in ("block", "convnet")
    for precision in ("fp32", "fp16", "bf16")
    # Without TF32 an A100 does not multiply FP32, as attention does.
    for change in (("--isa sse4",), ("--threads 2",), ("arithmetic.accumulate=exact",), ("arithmetic.accumulate=a100", "arithmetic.tf32=false"),
                   ("arithmetic.accumulate=fp64",))
    if (precision, change[0]) != ("fp32", "arithmetic.accumulate=a100")
]
