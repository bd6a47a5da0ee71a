"""Cross-entropies of rows of logits in half precision, and their gradients, in float32: a row a program."""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.

import triton
import triton.language as tl


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
