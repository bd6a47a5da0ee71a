"""The operator's contract handed to the kernels of a backend.

Tensors come with the ensemble axis of the operator, or all without it, for one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .backend import as_array

if TYPE_CHECKING:
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
    *,
    kept: list[Any] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`kept`, for large networks on a GPU, takes what spares `backward` to run the recurrence again."""
    alone = u.dim() == 2
    results: Sequence[Any]
    if backend == "cpu":
        from . import cpu

        results = cpu.forward(
            kind,
            cpu.Parameters(*(_array(each, alone) for each in weights)),
            *(_array(u, alone), _array(h0, alone), _array(mask, alone)),
            _sizes(tuple(batch_sizes)),
            max_depth=max_depth,
            reverse=reverse,
        )
        out, depth, cost = (torch.from_numpy(each[0] if alone else each) for each in results)
        return out, depth, cost
    from . import triton

    with torch.cuda.device_of(u):  # Triton launches on the current device, wherever the tensors are
        results = _triton_kernels(h0).forward(
            *(_whole(u, alone), _whole(h0, alone)),
            triton.Weights(*(_whole(each, alone) for each in weights)),
            *_sizes_on(u.device, tuple(batch_sizes)),
            kind=_triton_kind(kind, weights, alone),
            max_depth=max_depth,
            mask=_whole(mask, alone),
            reverse=reverse,
            out_dtype=h0.dtype,
            **({"keep": True} if kept is not None else {}),
        )
    if kept is not None:
        kept.append(results[3])
    out, depth, cost = (each[0] if alone else each for each in results[:3])
    return out, depth, cost


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
    *,
    kept: list[Any] | None = None,
) -> list[Tensor]:
    """The gradients of u, h0 and of each weight there is, in order."""
    alone = u.dim() == 2
    if backend == "cpu":
        from . import cpu

        found = cpu.backward(
            kind,
            cpu.Parameters(*(_array(each, alone) for each in weights)),
            *(_array(u, alone), _array(h0, alone), _array(mask, alone)),
            _sizes(tuple(batch_sizes)),
            *(_array(out, alone), _array(d_out, alone), _array(d_cost, alone)),
            max_depth=max_depth,
            reverse=reverse,
        )
        arrays = [each for each in (found.inputs, found.h0, *found.parameters) if each is not None]
        return [torch.from_numpy(each[0] if alone else each) for each in arrays]
    from . import triton

    with torch.cuda.device_of(u):
        d_u, d_h0, gradients = _triton_kernels(h0).backward(
            *(_whole(u, alone), _whole(h0, alone)),
            triton.Weights(*(_whole(each, alone) for each in weights)),
            *_sizes_on(u.device, tuple(batch_sizes)),
            *(_whole(out, alone), _whole(d_out, alone), _whole(d_cost, alone)),
            kind=_triton_kind(kind, weights, alone),
            max_depth=max_depth,
            mask=_whole(mask, alone),
            reverse=reverse,
            **({"saved": kept[0]} if kept else {}),
        )
    own = [_apart(each) for each in (d_u, d_h0, *gradients) if each is not None]
    return [each[0] for each in own] if alone else own


def _apart(tensor: Tensor) -> Tensor:
    """Its own memory: what an operator returns may not share any."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


SMALL = 128  # up to here one program holds a sample's state; beyond, the whole chip works on each inner step


def is_large(hidden_size: int) -> bool:
    return hidden_size > SMALL


def _triton_kernels(h0: Tensor) -> Any:
    from . import triton

    if is_large(h0.size(-1)):
        from .triton import large

        return large
    return triton


def _array(tensor: Tensor | None, alone: bool) -> Any:
    if tensor is None:
        return None
    array = as_array(tensor)
    return array[None] if alone else array


def _whole(tensor: Tensor | None, alone: bool) -> Any:
    """Contiguous, and with the ensemble axis."""
    if tensor is None:
        return None
    tensor = tensor.detach().contiguous()
    return tensor[None] if alone else tensor


@lru_cache(maxsize=64)
def _sizes(batch_sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.array(batch_sizes, np.int64)


@lru_cache(maxsize=64)
def _sizes_on(device: torch.device, batch_sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Samples running at each step, and the first row of each step."""
    sizes = torch.tensor(batch_sizes, dtype=torch.int64)
    return sizes.to(device), (sizes.cumsum(0) - sizes).to(device)


def _triton_kind(kind: str, weights: Weights, alone: bool) -> str:
    if weights.W_ah is not None:
        return kind
    return "RHN" if weights.W_h.dim() == (3 if alone else 4) else "SRHN"
