"""The cross-entropy of each row of logits, which for large vocabularies are as much traffic as the weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..cells.base import transformed
from .backend import HAS_TRITON, chosen_backend

BLOCK = 4096
"""Numbers of a row that a program has at once."""


def cross_entropies(logits: Tensor, target: Tensor) -> Tensor:
    """(N,) for `logits` (N, V) and `target` (N,), whose numbers must be below V. Of bfloat16 on a GPU they are
    computed in float32, and no logarithm or chance is written down, which takes torch several times the traffic."""
    fits = logits.is_cuda and logits.dtype == torch.bfloat16 and HAS_TRITON and chosen_backend() != "reference"
    if not fits or transformed() or not len(logits):
        return F.cross_entropy(logits, target, reduction="none")
    return by_kernel(logits, target)


def by_kernel(logits: Tensor, target: Tensor) -> Tensor:
    found: Tensor = CrossEntropies.apply(logits.contiguous(), target.contiguous())  # type: ignore[no-untyped-call]
    return found


class CrossEntropies(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        from .triton.entropy_kernels import entropies_kernel

        rows, words = logits.shape
        entropies, scales = logits.new_empty((2, rows), dtype=torch.float32).unbind()
        with torch.cuda.device_of(logits):
            entropies_kernel[(rows,)](logits, target, entropies, scales, words, BLOCK=BLOCK, num_warps=8)
        ctx.save_for_backward(logits, target, scales)
        return entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        from .triton.entropy_kernels import gradients_kernel

        logits, target, scales = ctx.saved_tensors
        d_logits = torch.empty_like(logits)
        with torch.cuda.device_of(logits):
            gradients_kernel[(len(logits),)](
                logits, target, scales, above.contiguous(), d_logits, logits.size(1), BLOCK=BLOCK, num_warps=8
            )
        return d_logits, None
