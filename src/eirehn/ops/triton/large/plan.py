"""How the kernels for large networks are launched, and the memory they work in."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...weights import Weights
from ..launch import GATED, KINDS
from .weights import Sizes, pad


class LargeLaunch(NamedTuple):
    """How the kernels are launched; any choice gives the same results up to rounding.

    programs: how many run at once, None for one on each multiprocessor, as far as there is work for them.
    block: samples in a tile, a power of two from 16 on; None for 16 or 32.
    units: in a tile of element-wise work. rows, hyper_rows: of `W_h`, and of what makes z, in a tile of products
        forward; back_rows: of z backward, where sums are longest.
    step, split: a product takes `step` of its sum at once, in each of `split` parts.
    num_warps, num_stages: warps of a program; steps of a product under way at once.
    precision: of the products of float32 weights, "ieee", "tf32x3" or "tf32".
    persistent: one launch for the sequence, whose programs wait for each other at barriers; otherwise one launch
        for each phase, for machines where they cannot.
    spin: how a program waits, "atomic" or "load".
    workspace: bytes `backward` may take for what it recomputes, where nothing was kept.
    """

    programs: int | None = None
    block: int | None = None
    units: int = 16
    rows: int = 32
    hyper_rows: int = 16
    back_rows: int = 16
    step: int = 64
    split: int = 1
    num_warps: int = 4
    num_stages: int = 3
    precision: str = "tf32x3"
    persistent: bool = True
    spin: str = "atomic"
    workspace: int = 4 << 30


class Saved(NamedTuple):
    """What `forward` keeps for `backward`; forward_kernel.py says what lies where."""

    ew: Tensor  # (E, T R + 1, B, ·) float32
    mh: Tensor  # (E, T R + 1, B, ·)
    sgz: Tensor  # (E, T R + 1, B, ·), no rows without hypernetwork
    alphas: Tensor  # (E, N, H) float32, no rows at fixed depth
    flags: Tensor  # (E, T) int32: inner steps of the deepest sample, in the order of processing


def default_launch(dtype: torch.dtype, *, backward: bool = False) -> LargeLaunch:
    """In bfloat16, what measured fastest on an H200 at a hidden size of 1200."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return LargeLaunch(programs=3, persistent=False)
    if dtype == torch.float32:
        return LargeLaunch(step=32, num_stages=2)
    return LargeLaunch(num_stages=5)


def chunks(size: Sizes, workspace: int, kept: bool) -> list[tuple[int, int]]:
    """Time steps taken at once, last first."""
    step = size.R * size.B * (4 * size.width + 4 * (size.HP + size.sgz + size.grads))
    chunk = size.T if kept else max(1, min(size.T, workspace // step))
    return [(low, min(low + chunk, size.T)) for low in reversed(range(0, size.T, chunk))]


def buffers(members: int, weights: Weights[Tensor], size: Sizes, keep: bool) -> Saved:
    dtype, device = weights.W_h.dtype, weights.W_h.device
    slots = size.T * size.R + 1 if keep else 2 * size.R
    lead = (members, slots, size.B)
    # The weight gradients read the rows of inner steps that were not taken, too.
    new = torch.zeros if size.elastic and keep else torch.empty
    sgz = new((*lead, size.sgz), dtype=dtype, device=device)
    if size.hyper:
        assert weights.z1 is not None
        z1 = pad(weights.z1, size.ZP).view(-1, 1, 1, size.ZP).to(dtype)
        sgz[:, :: size.R, :, 2 * size.HP : 2 * size.HP + size.ZP] = z1
        sgz[..., 2 * size.HP + size.ZP :] = 0.0
        sgz[..., 2 * size.HP + size.ZP] = 1.0
    return Saved(
        torch.empty((*lead, size.width), dtype=torch.float32, device=device),
        new((*lead, size.HP), dtype=dtype, device=device),
        sgz,
        torch.empty((members, size.N if size.elastic else 0, size.H), dtype=torch.float32, device=device),
        torch.zeros((members, size.T), dtype=torch.int32, device=device),
    )


def run(
    kernel: Any,
    tensors: list[Tensor | None],
    numbers: list[int],
    phases: list[tuple[int, int, int]],
    tiles: int,
    launch: LargeLaunch,
    size: Sizes,
    kind: str,
    **constants: Any,
) -> None:
    """One launch, or one for each of `phases`; `tiles` are those of the phase with the most."""
    constants |= {
        "H": size.H,
        "HP": size.HP,
        "ZP": size.ZP,
        "WIDTH": size.width,
        "KIND": KINDS[kind][0],
        "ELASTIC": size.elastic,
        "OWN": size.own,
        "BB": launch.block or (16 if size.B <= 16 else 32),
        "BU": launch.units,
        "BK": launch.step,
        "SPLIT": launch.split,
        "STAGES": launch.num_stages,
        "PRECISION": launch.precision,
        "SPIN": launch.spin,
        "num_warps": launch.num_warps,
    }
    programs = launch.programs
    if programs is None:
        device = next(each.device for each in tensors if each is not None)
        # A program without a tile in any phase would only make the barriers longer.
        programs = min(torch.cuda.get_device_properties(device).multi_processor_count, tiles)
    grid = (programs,)
    if launch.persistent:
        kernel[grid](*tensors, *numbers, 0, 0, PHASE=0, launch_cooperative_grid=True, **constants)
        return
    for step, depth, phase in phases:
        kernel[grid](*tensors, *numbers, step, depth, PHASE=phase, **constants)


def sizes_of(
    u: Tensor, h0: Tensor, weights: Weights[Tensor], batch_sizes: Tensor, kind: str, max_depth: int
) -> Sizes:
    Z = 0 if weights.z1 is None else weights.z1.size(1)
    return sizes_for(kind, h0.size(2), Z, max_depth, h0.size(1), u.size(1), batch_sizes.numel())


def sizes_for(kind: str, H: int, Z: int, R: int, B: int, N: int = 0, T: int = 0) -> Sizes:
    update, elastic, own = KINDS[kind]
    return Sizes(
        N, B, T, R, H, Z, -(-H // 8) * 8, -(-Z // 8) * 8,
        hyper=update > 0, gated=update in GATED, elastic=elastic, own=own,
    )  # fmt: skip
