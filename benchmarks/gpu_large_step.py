"""One training step of a language model the size of the paper's largest, around the kernels for large networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from eirehn.ops.triton.large import LargeLaunch, backward, forward
from eirehn.ops.weights import Weights

WORDS = 10_000


class Way(NamedTuple):
    """How a pass is run: by Triton's kernels, or by those in CUDA C++ where they fit."""

    launch: LargeLaunch
    cuda: bool = False


class Recurrence(torch.autograd.Function):
    """The two passes with what the first keeps for the second; `ahead` and `back` say how they are launched."""

    @staticmethod
    def forward(
        ctx: Any,
        ahead: Way,
        back: Way,
        sizes: tuple[Tensor, Tensor],
        u: Tensor,
        h0: Tensor,
        *w: Tensor,
    ) -> Any:
        ctx.back, ctx.sizes = back, sizes
        weights = Weights(*(each[None] for each in w))
        out, _, saved = forward(
            u[None], h0[None], weights, *sizes, kind="paper", max_depth=4, **ahead._asdict(), keep=True,
            out_dtype=torch.float32,
        )  # fmt: skip
        ctx.save_for_backward(u, h0, out, *w)
        ctx.saved = saved
        return out[0]

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        u, h0, out, *w = ctx.saved_tensors
        weights = Weights(*(each[None] for each in w))
        d_u, d_h0, grads = backward(
            u[None], h0[None], weights, *ctx.sizes, out, d_out.contiguous()[None], kind="paper",
            max_depth=4, **ctx.back._asdict(), saved=ctx.saved,
        )  # fmt: skip
        return None, None, None, d_u[0], d_h0[0], *(each[0] for each in grads)


def training_step(ahead: Way, back: LargeLaunch) -> Callable[[], object]:
    """Tied embedding and softmax in bfloat16, master weights, clipping and SGD in float32."""
    H, Z, T, B = 1200, 600, 35, 20
    generator = torch.Generator(device="cuda").manual_seed(0)

    def parameter(*shape: int) -> Tensor:
        value = torch.empty(shape, device="cuda").uniform_(-0.04, 0.04, generator=generator)
        return value.requires_grad_()

    shapes = {
        "words": (WORDS, H), "bias": (WORDS,), "W_in": (3 * H, H), "b_a": (H,), "W_h": (2 * H, H), "b": (2 * H,),
        "W_ah": (H, H), "alpha": (H,), "beta": (H,), "start": (2 * H,), "z0": (Z,), "W_zs": (Z, 2 * H),
        "W_z": (Z, Z), "b_z": (Z,), "P": (2 * H, Z), "P_bar": (2 * H, Z), "b_bar": (2 * H,),
    }  # fmt: skip
    p = {name: parameter(*shape) for name, shape in shapes.items()}
    with torch.no_grad():
        p["b_a"] -= 4.0
        p["alpha"] -= 3.0
        p["beta"] += 3.0
    sizes = torch.full((T,), B, device="cuda")
    packing = (sizes, sizes.cumsum(0) - sizes)
    tokens = torch.randint(WORDS, (T * B,), device="cuda", generator=generator)
    targets = torch.randint(WORDS, (T * B,), device="cuda", generator=generator)
    state = torch.zeros(B, H, device="cuda")
    optimizer = torch.optim.SGD(p.values(), lr=0.2, foreach=True)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        low = {name: each.bfloat16() for name, each in p.items() if name not in ("alpha", "beta")}
        bias = F.pad(low["b_a"], (2 * H, 0))
        u = F.linear(F.embedding(tokens, low["words"]), low["W_in"], bias)
        z1 = torch.tanh(F.linear(low["start"], low["W_zs"]) + F.linear(low["z0"], low["W_z"], low["b_z"]))
        out = Recurrence.apply(
            ahead, back, packing, u, state, low["W_h"], low["b"], low["W_ah"], F.softplus(p["alpha"]),
            torch.sigmoid(p["beta"]), z1, low["W_zs"], low["W_z"], low["b_z"], low["P"], low["P_bar"], low["b_bar"],
        )  # fmt: skip
        logits = F.linear(out.bfloat16(), low["words"], low["bias"])
        loss = F.cross_entropy(logits.float(), targets) * T
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), 10.0, foreach=True)
        optimizer.step()
        state.copy_(out.detach()[-B:])
        return loss

    return step
