"""Other tools that show numbers of a PyTorch training, as blocks around its loop: by name in PEERS, each called with the model."""

import contextlib
import ctypes
import os
import subprocess
import tempfile

import torch
from torch.utils._debug_mode import DebugMode


@contextlib.contextmanager
def debug_mode(model):
    with DebugMode() as mode:
        yield mode.reset  # what it logged of a step: else it is kept for good


@contextlib.contextmanager
def debug_mode_hashes(model):
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        yield mode.reset


@contextlib.contextmanager
def anomaly_mode(model):
    with torch.autograd.detect_anomaly(check_nan=True):
        yield None


@contextlib.contextmanager
def module_hooks(model):
    """The smallest and the largest value of each module's output, and of each parameter's gradient."""
    seen = []

    def take(tensor):
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            seen.append(torch.aminmax(tensor.detach()))

    handles = [module.register_forward_hook(lambda module, args, output: take(output)) for module in model.modules()]
    for parameter in model.parameters():
        handles.append(parameter.register_post_accumulate_grad_hook(lambda parameter: take(parameter.grad)))
    try:
        yield seen.clear
    finally:
        for handle in handles:
            handle.remove()


_callbacks = []


def _empty_callbacks():
    """The library of empty_callbacks.cpp, compiled for the PyTorch that is installed."""
    if not _callbacks:
        root, here = os.path.dirname(torch.__file__), os.path.dirname(os.path.abspath(__file__))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "empty_callbacks.so")
            abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
            subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-DNDEBUG", "-fPIC", "-shared", "-w",
                            f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-isystem", os.path.join(root, "include"),
                            os.path.join(here, "empty_callbacks.cpp"), "-o", path,
                            "-L", os.path.join(root, "lib"), "-ltorch_cpu", "-lc10"], check=True)
            _callbacks.append(ctypes.CDLL(path))
    return _callbacks[0]


@contextlib.contextmanager
def empty_callbacks(model):
    library = _empty_callbacks()
    library.begin()
    try:
        yield None
    finally:
        library.end()


PEERS = {
    "empty callbacks": empty_callbacks,
    "module hooks, min and max": module_hooks,
    "anomaly mode": anomaly_mode,
    "DebugMode": debug_mode,
    "DebugMode with hashes": debug_mode_hashes,
}
