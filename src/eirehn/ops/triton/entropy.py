"""The cross-entropy of each row of logits, whose memory traffic for large vocabularies is that of the weights.

For logits in half precision, entropies and gradients are computed in float32, one row per program, and logarithms
and probabilities are not stored.
"""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 4096
"""Numbers of a row that a program has at once."""


def by_kernel(logits: Tensor, target: Tensor) -> Tensor:
    found: Tensor = CrossEntropies.apply(logits.contiguous(), target.contiguous())
    return found


class CrossEntropies(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        rows, words = logits.shape
        entropies, scales = logits.new_empty((2, rows), dtype=torch.float32).unbind()
        with torch.cuda.device_of(logits):
            entropies_kernel[(rows,)](logits, target, entropies, scales, words, BLOCK=BLOCK, num_warps=8)
        ctx.save_for_backward(logits, target, scales)
        return entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        logits, target, scales = ctx.saved_tensors
        d_logits = torch.empty_like(logits)
        with torch.cuda.device_of(logits):
            gradients_kernel[(len(logits),)](
                logits, target, scales, above.contiguous(), d_logits, logits.size(1), BLOCK=BLOCK, num_warps=8
            )
        return d_logits, None


@triton.jit
def entropies_kernel(logits, target, entropies, scales, V, BLOCK: tl.constexpr):
    """`entropies` = log Σ exp x − x[target] for each row x; `scales` keeps the logarithm."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, V, BLOCK):
        here = start + at < V
        x = tl.load(logits + row * V + start + at, mask=here, other=-float("inf")).to(tl.float32)
        most = tl.maximum(most, x)
    top = tl.max(most, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        here = start + at < V
        x = tl.load(logits + row * V + start + at, mask=here, other=-float("inf")).to(tl.float32)
        total += tl.exp(x - top)
    scale = top + tl.log(tl.sum(total, 0))
    wanted = tl.load(logits + row * V + tl.load(target + row)).to(tl.float32)
    tl.store(scales + row, scale)
    tl.store(entropies + row, scale - wanted)


@triton.jit
def gradients_kernel(logits, target, scales, d_entropies, d_logits, V, BLOCK: tl.constexpr):
    """`d_logits` = (softmax x − 1[target]) · d for each row x and the gradient d of its entropy."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    scale, wanted = tl.load(scales + row), tl.load(target + row)
    above = tl.load(d_entropies + row)
    for start in range(0, V, BLOCK):
        here = start + at < V
        x = tl.load(logits + row * V + start + at, mask=here, other=0.0).to(tl.float32)
        found = (tl.exp(x - scale) - tl.where(start + at == wanted, 1.0, 0.0)) * above
        tl.store(d_logits + row * V + start + at, found.to(d_logits.dtype.element_ty), mask=here)
