"""Chooses the backend of a recurrence, once per call, by device, dtype and size, or as the user says."""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._internal.checks import one_of
from ..cells import ACTCell, EIREHNCell, RecurrentCell, RHNCell
from ..cells.base import traced, transformed
from . import reference

if TYPE_CHECKING:
    import numpy.typing as npt

HAS_NUMBA, HAS_TRITON = (importlib.util.find_spec(name) is not None for name in ("numba", "triton"))
BACKENDS = ("auto", "reference", "cpu", "triton", "cuda")
GPU_MAX_HIDDEN = 2048
SMALL = 128  # up to here one GPU program holds a sample's state; above, all of the GPU works on each inner step
# Above, the matrix products of the plain path are faster, except for one sample at a time.
CPU_MAX_HIDDEN = 640


_asked: deque[use_backend] = deque(maxlen=1024)
"""The requests, of which the last is in effect: blocks of several threads may end in any order. Requests for the
whole process are never withdrawn, so the oldest are forgotten."""
_chosen: str | None = None
"""The name of the last request. Compiled code depends on this alone, not on earlier requests."""


def _settle() -> None:
    """Updates `_chosen` without a lock, which a fork could leave locked: whoever writes last also looks last."""
    global _chosen
    while _chosen != (last := _last()):
        _chosen = last


def _last() -> str | None:
    try:
        return _asked[-1].name
    except IndexError:
        return None


class use_backend:  # noqa: N801  # reads as a verb, and is used like torch.no_grad
    """Sets the implementation of the recurrences, for the process or, as a context manager, for a block.

    Args:
        name: one of

            - `"auto"`, the default, or what the environment variable `EIREHN_BACKEND` says: the fastest backend
              that can run a call, and the plain path if none can;
            - `"reference"`: the plain path, a Python loop over time around the equations of the cell;
            - `"cpu"`: numba kernels;
            - `"triton"`: Triton kernels for NVIDIA GPUs;
            - `"cuda"`: CUDA C++ kernels for large networks in bfloat16, on Hopper and later.

    Raises:
        ValueError: if there is no such backend; and at a call of a layer if the backend named cannot run it.

    Examples:
        >>> layer, x = eirehn.EIREHN(9, 32), torch.randn(12, 4, 9)
        >>> with eirehn.use_backend("reference"):
        ...     out, h_n = layer(x)
    """

    def __init__(self, name: str) -> None:
        global _chosen
        one_of("backend", name, BACKENDS)
        self.name = name
        self._counts, self._before = True, _chosen
        if torch.compiler.is_compiling():  # one thread, so that blocks end in order
            _chosen = self.name
        else:
            self._ask()

    def _ask(self) -> None:
        _asked.append(self)
        _settle()

    def __enter__(self) -> None:
        if not self._counts:  # a second block with the same object
            self._ask()
        self._counts = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _chosen
        if torch.compiler.is_compiling():
            _chosen = self._before
            return
        with suppress(ValueError):  # it may have been dropped from the deque
            _asked.remove(self)
        _settle()


def chosen_backend() -> str:
    """The name set by `use_backend`, else by EIREHN_BACKEND, else "auto"."""
    if _chosen is not None:
        return _chosen
    name = os.environ.get("EIREHN_BACKEND", "auto")
    one_of("EIREHN_BACKEND", name, BACKENDS)
    return name


def scan(
    cell: RecurrentCell,
    x: Tensor,
    batch_sizes: list[int] | None,
    state: Tensor,
    *,
    max_depth: int,
    reverse: bool = False,
    x_mask: Tensor | None = None,
    h_mask: Tensor | None = None,
    with_cost: bool = False,
) -> reference.Scan:
    """Runs `cell` over `x`, see `reference.scan`, by the backend that `backend_for` chooses."""
    if batch_sizes is None:
        from .exported import exported_scan

        return exported_scan(cell, x, state, max_depth, reverse, x_mask, h_mask, with_cost)
    one_sample = batch_sizes[0] == 1 and h_mask is None
    backend = backend_for(cell, x, batch_sizes[0], max_depth, one_sample=one_sample)
    options = (max_depth, reverse, x_mask, h_mask, with_cost)
    if backend == "reference":
        return reference.scan(cell, x, batch_sizes, state, *options)
    if not torch.compiler.is_compiling() and torch.jit._trace.is_tracing():
        raise RuntimeError(
            f"torch.jit.trace cannot record the kernels of {type(cell).__name__}: use torch.export.export"
        )
    from .operator import fused_scan

    return fused_scan(backend, cell, x, batch_sizes, state, *options)


def cross_entropies(logits: Tensor, target: Tensor) -> Tensor:
    """The cross-entropy (N,) of `logits` (N, V) and `target` (N,), whose values must be below V; for bfloat16 on a
    GPU by a kernel that moves a fraction of the memory that torch does."""
    fits = logits.is_cuda and logits.dtype == torch.bfloat16 and HAS_TRITON and chosen_backend() != "reference"
    if not fits or transformed() or not len(logits):
        return F.cross_entropy(logits, target, reduction="none")
    from .triton.entropy import by_kernel

    return by_kernel(logits, target)


def backend_for(
    cell: RecurrentCell, x: Tensor, batch: int = 1, max_depth: int | None = None, *, one_sample: bool = False
) -> str:
    """The backend that runs `cell` over `x`: "reference", "cpu", "triton" or "cuda". `x` holds `batch` samples;
    `one_sample` says that there is one, and no dropout."""
    name = chosen_backend()
    if name == "reference":
        return name
    if name != "auto":
        reason = obstacle(name, cell, x, batch, max_depth)
        if reason:
            raise ValueError(f"backend {name!r} cannot run this {type(cell).__name__}: {reason}")
        return name
    if x.is_cuda:
        for each in ("cuda", "triton"):
            if not obstacle(each, cell, x, batch, max_depth):
                return each
        return "reference"
    large = cell.hidden_size > CPU_MAX_HIDDEN and not (one_sample and _streams(cell, x))
    return "reference" if large or obstacle("cpu", cell, x) else "cpu"


def _streams(cell: RecurrentCell, x: Tensor) -> bool:
    """Whether the kernel for one sample can run, which supports networks of all sizes."""
    if torch.is_grad_enabled() or traced(x) or transformed():
        return False
    dtype = cell.weight().dtype
    return all(is_bare(getattr(cell, name), dtype) for name in cell.parameter_names)


def is_bare(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether its values lie contiguously at its address, so that a kernel may read them there."""
    own = type(tensor) is nn.Parameter or type(tensor) is Tensor  # others may not have memory of their own
    return own and tensor.dtype == dtype and tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()


def as_array(tensor: Tensor) -> npt.NDArray[Any]:
    """Its values for NumPy, which does not support torch's lazy negation."""
    return tensor.detach().resolve_neg().numpy()


def obstacle(name: str, cell: RecurrentCell, x: Tensor, batch: int = 1, max_depth: int | None = None) -> str | None:
    """Why a backend cannot run a call, or None if it can."""
    if isinstance(cell, ACTCell):
        return "ACT has no fused form"
    if isinstance(cell, EIREHNCell) and cell.weight_update == "outer":
        return "weight_update 'outer' has no fused form"
    weight = cell.weight()
    if x.device != weight.device:
        return f"input is on {x.device}, the weights on {weight.device}"
    if x.numel() == 0:
        return "the batch is empty"
    if differentiated_by_transform():
        # jvp through a torch.library operator is silently zero, and its reverse mode is not nestable.
        return "torch.func.grad, jvp and forward-mode gradients need the plain path"
    if name == "cpu":
        return _cpu_obstacle(weight)
    if name == "triton":
        return _triton_obstacle(cell, weight)
    return _cuda_obstacle(cell, weight, batch, cell.resolve_depth(max_depth))


def _cpu_obstacle(weight: Tensor) -> str | None:
    if weight.device.type != "cpu":
        return f"the weights are on {weight.device}"
    if weight.dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64, got {weight.dtype}"
    if not HAS_NUMBA:
        return "numba is not installed"
    return None


def _triton_obstacle(cell: RecurrentCell, weight: Tensor) -> str | None:
    if not weight.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the weights are on {weight.device}"
    if weight.dtype not in (torch.float32, torch.bfloat16):
        return f"it takes float32 and bfloat16, got {weight.dtype}"
    if cell.hidden_size > (GPU_MAX_HIDDEN if weight.is_cuda else SMALL):
        return f"it takes a hidden_size of at most {GPU_MAX_HIDDEN}, got {cell.hidden_size}"
    if not HAS_TRITON:
        return "triton is not installed"
    return None


def _cuda_obstacle(cell: RecurrentCell, weight: Tensor, batch: int, max_depth: int) -> str | None:
    if not SMALL < cell.hidden_size <= GPU_MAX_HIDDEN:
        return f"it takes a hidden_size of {SMALL + 1} to {GPU_MAX_HIDDEN}, got {cell.hidden_size}"
    if weight.dtype != torch.bfloat16 and not (weight.dtype == torch.float32 and runs_in_half(weight)):
        return f"it takes bfloat16, or float32 under autocast to bfloat16, got {weight.dtype}"
    if not HAS_TRITON:
        return "triton, whose kernels do the rest, is not installed"
    from . import cuda

    # A pass that does not fit on the GPU is left to Triton, unless the user named this backend.
    passes = ("forward", "backward") if torch.is_grad_enabled() else ("forward",)
    kind, Z = "none", 0
    if isinstance(cell, RHNCell):
        kind = "RHN" if cell.W_h.dim() == 3 else "SRHN"
    elif isinstance(cell, EIREHNCell) and cell.weight_update != "none":
        kind, Z = cell.weight_update, cell.hyper_size
    if torch.compiler.is_compiling():
        batch = 1  # it may be symbolic; the real one is checked when the compiled code runs
    network = (kind, cell.hidden_size, Z)
    found = [cuda.obstacle(*network, weight.device, batch, max_depth, each) for each in passes]
    reasons = [each for each in found if each is not None]
    return reasons[0] if reasons and (len(reasons) == len(passes) or chosen_backend() == "cuda") else None


def insist(name: str, reason: str) -> None:
    """Raises if the user named this backend, which cannot run; if it was chosen automatically, another takes
    over."""
    if chosen_backend() == name:
        raise ValueError(f"backend {name!r} cannot run this network: {reason}")


def runs_in_half(tensor: Tensor) -> bool:
    """Whether products with `tensor` run in bfloat16 on a GPU under the present autocast."""
    mixed = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    return tensor.is_cuda and mixed


def differentiated_by_transform() -> bool:
    """Whether torch.func.grad, vjp, jvp or forward-mode AD is active."""
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    if torch._C._functorch.maybe_current_level() is None:
        return False
    stack = torch._C._functorch.get_interpreter_stack() or []
    return any(level.key() != torch._C._functorch.TransformType.Vmap for level in stack)


def is_large(hidden_size: int) -> bool:
    return hidden_size > SMALL
