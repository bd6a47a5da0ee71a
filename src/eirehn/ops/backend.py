"""Which implementation runs a recurrence: chosen once a call, by device, dtype and size, or named by the user."""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..cells import ACTCell, EIREHNCell, RecurrentCell
from ..cells.base import traced, transformed

if TYPE_CHECKING:
    import numpy.typing as npt

HAS_NUMBA, HAS_TRITON = (importlib.util.find_spec(name) is not None for name in ("numba", "triton"))
BACKENDS = ("auto", "reference", "cpu", "triton")
TRITON_MAX_HIDDEN = 2048
# Beyond, the products are large enough for the plain path's own kernels to be faster, but for one sample at a time.
CPU_MAX_HIDDEN = 640


def _known(name: object, source: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"{source} must be one of {', '.join(map(repr, BACKENDS))}, got {name!r}")
    return str(name)


_asked: deque[use_backend] = deque(maxlen=1024)
"""What was asked for; the last counts. Blocks of several threads may end in any order. Of what was set for the
process, and is never taken back, the oldest are forgotten."""
_chosen: str | None = None
"""The last one's name. Compiled code depends on this alone, not on how much was asked for before."""


def _settle() -> None:
    """Without a lock, which a fork could keep: who writes last looks last."""
    global _chosen
    while _chosen != (last := _last()):
        _chosen = last


def _last() -> str | None:
    try:
        return _asked[-1].name
    except IndexError:
        return None


class use_backend:  # noqa: N801  # reads as a verb, and is used like torch.no_grad
    """Names the implementation of the recurrences, for the process or, as a context manager, while a block lasts.

    "reference" is the plain path, "cpu" the numba kernels, "triton" those for NVIDIA GPUs. "auto", the start
    (or what the environment variable EIREHN_BACKEND says), takes the fastest that can serve a call, and the plain
    path where none can; a backend named here that cannot serve raises an error that says why.

    >>> with use_backend("reference"):
    ...     out, h_n = layer(x)
    """

    def __init__(self, name: str) -> None:
        global _chosen
        self.name = _known(name, "backend")
        self._counts, self._before = True, _chosen
        if torch.compiler.is_compiling():  # one thread, whose blocks end in order
            _chosen = self.name
        else:
            self._ask()

    def _ask(self) -> None:
        _asked.append(self)
        _settle()

    def __enter__(self) -> None:
        if not self._counts:  # a block after another with the same one
            self._ask()
        self._counts = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _chosen
        if torch.compiler.is_compiling():
            _chosen = self._before
            return
        with suppress(ValueError):  # it may have been forgotten
            _asked.remove(self)
        _settle()


def chosen_backend() -> str:
    """What was asked for: by `use_backend`, else by EIREHN_BACKEND, else "auto"."""
    if _chosen is not None:
        return _chosen
    return _known(os.environ.get("EIREHN_BACKEND", "auto"), "EIREHN_BACKEND")


def backend_for(cell: RecurrentCell, x: Tensor, *, one_sample: bool = False) -> str:
    """The implementation to run `cell` over `x`, of one sample without dropout or not, with: "reference", "cpu" or
    "triton"."""
    name = chosen_backend()
    if name == "reference":
        return name
    if name == "auto":
        if not x.is_cuda:
            large = cell.hidden_size > CPU_MAX_HIDDEN and not (one_sample and _streams(cell, x))
            return "reference" if large or obstacle("cpu", cell, x) else "cpu"
        return "reference" if obstacle("triton", cell, x) else "triton"
    reason = obstacle(name, cell, x)
    if reason:
        raise ValueError(f"backend {name!r} cannot run this {type(cell).__name__}: {reason}")
    return name


def _streams(cell: RecurrentCell, x: Tensor) -> bool:
    """Whether the kernel for one sample serves, which takes networks of all sizes."""
    if torch.is_grad_enabled() or traced(x) or transformed():
        return False
    dtype = cell.weight().dtype
    return all(is_bare(getattr(cell, name), dtype) for name in cell.parameter_names)


def is_bare(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether its numbers lie in order at its address: a kernel may read them there."""
    own = type(tensor) is nn.Parameter or type(tensor) is Tensor  # others may have no memory of their own
    return own and tensor.dtype == dtype and tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()


def as_array(tensor: Tensor) -> npt.NDArray[Any]:
    """Its numbers for NumPy, which does not know of signs that torch is yet to turn."""
    return tensor.detach().resolve_neg().numpy()


def obstacle(name: str, cell: RecurrentCell, x: Tensor) -> str | None:
    """Why a backend cannot serve, or None if it can."""
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
    return _cpu_obstacle(weight) if name == "cpu" else _triton_obstacle(cell, weight)


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
    if cell.hidden_size > (TRITON_MAX_HIDDEN if weight.is_cuda else 128):
        return f"it takes a hidden_size of at most {TRITON_MAX_HIDDEN}, got {cell.hidden_size}"
    if not HAS_TRITON:
        return "triton is not installed"
    return None


def differentiated_by_transform() -> bool:
    """Whether torch.func.grad, vjp, jvp or forward-mode AD is at work here."""
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    if torch._C._functorch.maybe_current_level() is None:
        return False
    stack = torch._C._functorch.get_interpreter_stack() or []
    return any(level.key() != torch._C._functorch.TransformType.Vmap for level in stack)
