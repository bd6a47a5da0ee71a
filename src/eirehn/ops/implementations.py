"""The operator's contract handed to the kernels of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from . import triton
    from .operator import Weights


def cost_dtype(h0: Tensor) -> torch.dtype:
    """The gate is computed in float32 at least."""
    return torch.float64 if h0.dtype == torch.float64 else torch.float32


def forward(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    weights: Weights,
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    if backend == "cpu":
        from . import cpu

        result = cpu.forward(
            kind,
            cpu.Parameters(*map(_array, weights)),
            u.numpy(),
            h0.numpy(),
            _array(mask),
            _sizes(tuple(batch_sizes)),
            max_depth=max_depth,
            reverse=reverse,
        )
        return torch.from_numpy(result.out), torch.from_numpy(result.depth), torch.from_numpy(result.cost)
    from . import triton

    sizes, offsets = _sizes_on(u.device, tuple(batch_sizes))
    return triton.forward(
        u.contiguous(),
        h0.contiguous(),
        _contiguous(weights),
        sizes,
        offsets,
        kind=_triton_kind(kind, weights),
        max_depth=max_depth,
        mask=None if mask is None else mask.contiguous(),
        reverse=reverse,
        out_dtype=h0.dtype,
    )


def backward(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    weights: Weights,
    out: Tensor,
    d_out: Tensor,
    d_cost: Tensor | None,
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
    backend: str,
) -> list[Tensor]:
    if backend == "cpu":
        from . import cpu

        found = cpu.backward(
            kind,
            cpu.Parameters(*map(_array, weights)),
            u.numpy(),
            h0.numpy(),
            _array(mask),
            _sizes(tuple(batch_sizes)),
            out.numpy(),
            d_out.numpy(),
            _array(d_cost),
            max_depth=max_depth,
            reverse=reverse,
        )
        return [torch.from_numpy(each) for each in (found.u, found.h0, *found.parameters) if each is not None]
    from . import triton

    sizes, offsets = _sizes_on(u.device, tuple(batch_sizes))
    d_u, d_h0, gradients = triton.backward(
        u.contiguous(),
        h0.contiguous(),
        _contiguous(weights),
        sizes,
        offsets,
        out.contiguous(),
        d_out.contiguous(),
        None if d_cost is None else d_cost.contiguous(),
        kind=_triton_kind(kind, weights),
        max_depth=max_depth,
        mask=None if mask is None else mask.contiguous(),
        reverse=reverse,
    )
    return [each for each in (d_u, d_h0, *gradients) if each is not None]


def _contiguous(weights: Weights) -> triton.Weights:
    from . import triton

    packed: list[Any] = [None if each is None else each.contiguous() for each in weights]
    return triton.Weights(*packed)


def _triton_kind(kind: str, weights: Weights) -> str:
    if weights.W_ah is not None:
        return kind
    return "RHN" if weights.W_h.dim() == 4 else "SRHN"


@lru_cache(maxsize=64)
def _sizes_on(device: torch.device, batch_sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Samples running at each step, and the first row of each step."""
    sizes = torch.tensor(batch_sizes, dtype=torch.int64)
    return sizes.to(device), (sizes.cumsum(0) - sizes).to(device)


def _array(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.numpy()


@lru_cache(maxsize=64)
def _sizes(batch_sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.array(batch_sizes, np.int64)
