"""Calls the kernels of a backend by the contract of the operator, see operator.py."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .dispatch import as_array, is_large
from .weights import Arguments, Weights


def forward(given: Arguments, *, keep: bool = False) -> tuple[Any, ...]:
    """`out`, `depth` and None; with `keep`, for large networks on a GPU, the last is what saves `backward` from
    running the recurrence again."""
    if given.backend == "cpu":
        return *(torch.from_numpy(each) for each in _on_cpu(given).forward()), None
    with torch.cuda.device_of(given.u):  # Triton launches on the current device, wherever the tensors are
        arguments, options = _on_gpu(given)
        if keep:
            options["keep"] = True
        found = _gpu_kernels(given).forward(*arguments, **options, out_dtype=given.h0.dtype)
    return tuple(found) if keep else (*found, None)


def backward(given: Arguments, out: Tensor, d_out: Tensor, *, saved: Any = None) -> list[Tensor]:
    """The gradients of u, h0 and of each weight that is not None, in order. `saved` is what `forward` kept."""
    if given.backend == "cpu":
        found = _on_cpu(given).backward(_array(out), _array(d_out))
        return [torch.from_numpy(each) for each in (found.inputs, found.h0, *found.weights) if each is not None]
    with torch.cuda.device_of(given.u):
        arguments, options = _on_gpu(given)
        if saved is not None:
            options["saved"] = saved
        kernels = _gpu_kernels(given)
        d_u, d_h0, gradients = kernels.backward(*arguments, _whole(out), _whole(d_out), **options)
    return [_apart(each) for each in (d_u, d_h0, *gradients) if each is not None]


def _apart(tensor: Tensor) -> Tensor:
    """A tensor with memory of its own: the outputs of an operator must not share memory."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _on_cpu(given: Arguments) -> Any:
    from .cpu import Recurrence

    u, h0, mask, weights, batch_sizes, kind, max_depth, reverse, _ = given
    sizes = np.array(batch_sizes, np.int64)
    arrays = (Weights(*map(_array, weights)), _array(u), _array(h0), _array(mask), sizes)
    return Recurrence(kind, *arrays, max_depth=max_depth, reverse=reverse)


def _on_gpu(given: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The first arguments of both passes, and their options."""
    u, h0, mask, weights, batch_sizes, kind, max_depth, reverse, _ = given
    if weights.W_ah is None:
        kind = "RHN" if weights.W_h.dim() == 4 else "SRHN"
    arguments = (_whole(u), _whole(h0), Weights(*map(_whole, weights)), *_sizes_on(u.device, tuple(batch_sizes)))
    return arguments, {"kind": kind, "max_depth": max_depth, "mask": _whole(mask), "reverse": reverse}


def _gpu_kernels(given: Arguments) -> Any:
    if given.backend == "cuda":
        from . import cuda

        return cuda
    if is_large(given.h0.size(-1)):
        from .triton import large

        return large
    from . import triton

    return triton


def _array(tensor: Tensor | None) -> Any:
    return None if tensor is None else as_array(tensor)


def _whole(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().contiguous()


@lru_cache(maxsize=64)
def _sizes_on(device: torch.device, batch_sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The number of samples running at each step, and the first row of each step."""
    sizes = torch.tensor(batch_sizes, dtype=torch.int64)
    return sizes.to(device), (sizes.cumsum(0) - sizes).to(device)
