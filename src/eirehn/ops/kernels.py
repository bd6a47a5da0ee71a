"""The operator's contract, see operator.py, handed to the kernels of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .dispatch import as_array, is_large
from .weights import Weights


def forward(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    weights: Weights[Tensor],
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
    backend: str,
    *,
    keep: bool = False,
) -> tuple[Any, ...]:
    """`out`, `depth` and `cost`, and with `keep`, which is for large networks on a GPU, what spares `backward` to
    run the recurrence again, else None."""
    if backend == "cpu":
        recurrence = _on_cpu(u, h0, mask, weights, batch_sizes, kind, max_depth, reverse)
        return *(torch.from_numpy(each) for each in recurrence.forward()), None
    with torch.cuda.device_of(u):  # Triton launches on the current device, wherever the tensors are
        given, options = _on_gpu(u, h0, mask, weights, batch_sizes, kind, max_depth, reverse)
        if keep:
            options["keep"] = True
        found = _gpu_kernels(backend, h0).forward(*given, **options, out_dtype=h0.dtype)
    return tuple(found) if keep else (*found, None)


def backward(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    weights: Weights[Tensor],
    out: Tensor,
    d_out: Tensor,
    d_cost: Tensor | None,
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
    backend: str,
    *,
    saved: Any = None,
) -> list[Tensor]:
    """The gradients of u, h0 and of each weight there is, in order. `saved`: what `forward` kept."""
    if backend == "cpu":
        recurrence = _on_cpu(u, h0, mask, weights, batch_sizes, kind, max_depth, reverse)
        found = recurrence.backward(_array(out), _array(d_out), _array(d_cost))
        return [torch.from_numpy(each) for each in (found.inputs, found.h0, *found.weights) if each is not None]
    with torch.cuda.device_of(u):
        given, options = _on_gpu(u, h0, mask, weights, batch_sizes, kind, max_depth, reverse)
        if saved is not None:
            options["saved"] = saved
        above = (_whole(each) for each in (out, d_out, d_cost))
        d_u, d_h0, gradients = _gpu_kernels(backend, h0).backward(*given, *above, **options)
    return [_apart(each) for each in (d_u, d_h0, *gradients) if each is not None]


def _apart(tensor: Tensor) -> Tensor:
    """Its own memory: what an operator returns may not share any."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _on_cpu(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    weights: Weights[Tensor],
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
) -> Any:
    from .cpu import Recurrence

    given = (Weights(*map(_array, weights)), _array(u), _array(h0), _array(mask), np.array(batch_sizes, np.int64))
    return Recurrence(kind, *given, max_depth=max_depth, reverse=reverse)


def _on_gpu(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    weights: Weights[Tensor],
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What both passes take first, and their options."""
    if weights.W_ah is None:
        kind = "RHN" if weights.W_h.dim() == 4 else "SRHN"
    given = (_whole(u), _whole(h0), Weights(*map(_whole, weights)), *_sizes_on(u.device, tuple(batch_sizes)))
    return given, {"kind": kind, "max_depth": max_depth, "mask": _whole(mask), "reverse": reverse}


def _gpu_kernels(backend: str, h0: Tensor) -> Any:
    if backend == "cuda":
        from . import cuda

        return cuda
    if is_large(h0.size(-1)):
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
    """Samples running at each step, and the first row of each step."""
    sizes = torch.tensor(batch_sizes, dtype=torch.int64)
    return sizes.to(device), (sizes.cumsum(0) - sizes).to(device)
