"""Launches the kernels: sizes, buffers, launches, and the weight gradients at the end."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...cells.gate import ALPHA_LIMIT
from ..dispatch import SMALL
from ..weights import Weights

# kind: (weight update's number in pieces.py, has an elastic gate, own weights for each inner step)
KINDS: dict[str, tuple[int, bool, bool]] = {
    "none": (0, True, False),  # SREHN
    "paper": (1, True, False),
    "recursive": (2, True, False),
    "additive": (3, True, False),
    "scaling": (4, True, False),
    "bounded": (5, True, False),
    "SRHN": (0, False, False),
    "RHN": (0, False, True),
}
GATED = (1, 2, 5)
"""The numbers of updates with a gate ḡ."""
_MULTIPROCESSORS = 132  # of an H100 or H200; only a choice of warps hangs on it
_SPLIT = 256  # rows of one product in the weight gradients: many small ones fill the chip, one long one does not


class Launch(NamedTuple):
    """How a kernel is launched; any choice gives the same results up to rounding.

    block: samples in a program, 1 or a power of two from 16 on.
    num_warps: warps in a program.
    precision: of the products of float32 tiles, "ieee", "tf32x3" or "tf32"; with one sample always float32.
    resident: weights stay on the chip for the whole sequence; otherwise each inner step reads them again.
    maxnreg: a cap on the registers of a thread, so that more programs share a multiprocessor.
    workspace: bytes for what the weight gradients need; the backward pass takes as many time steps at once
        as fit.
    """

    block: int = 1
    num_warps: int = 4
    precision: str = "ieee"
    resident: bool = True
    maxnreg: int | None = None
    workspace: int = 256 << 20


class Sizes(NamedTuple):
    E: int
    N: int
    B: int
    T: int
    H: int
    Z: int
    HP: int  # padded to powers of two
    ZP: int
    sets: int


def default_launch(
    members: int, batch: int, hidden_size: int, *, backward: bool = False, dtype: torch.dtype = torch.float32
) -> Launch:
    """One sample a program, its weights in registers as long as they fit: what measured fastest on an H200.

    Where there are more samples than multiprocessors, fewer warps let two or more programs share one. Of very many
    samples a program takes 16, for which it needs three times as long as for one; not of bfloat16 weights, whose
    products would then be rounded too.
    """
    padded = _padded(hidden_size)
    load = members * batch / _MULTIPROCESSORS
    if padded == 64 and batch >= 16 and load > (4 if backward else 7) and dtype == torch.float32:
        return Launch(block=16, num_warps=8, precision="tf32x3", resident=False)
    if padded == 64 and backward and load > 2:
        return Launch(block=1, num_warps=2, resident=False)
    if padded > 32:
        # Two programs of four warps share a multiprocessor; the backward pass has no registers left for weights.
        return Launch(block=1, num_warps=4 if padded == 64 else 8, resident=padded == 64 and not backward)
    if padded == 32 and backward:
        return Launch(block=1, num_warps=1, resident=False)
    few = load <= 1
    return Launch(block=1, num_warps=(2 if few else 1) if padded == 16 else (4 if few else 2))


def forward(
    u: Tensor,
    h0: Tensor,
    weights: Weights[Tensor],
    batch_sizes: Tensor,
    offsets: Tensor,
    *,
    kind: str,
    max_depth: int,
    mask: Tensor | None = None,
    reverse: bool = False,
    out_dtype: torch.dtype | None = None,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor]:
    """Runs E networks over packed sequences; returns `out` (E, N, H) and `depth` (E, N) int64.

    Args:
        u: (E, N, 3H), `[W_x x | W_ax x + b_a]` in packed rows; RHN and SRHN (E, N, 2H).
        h0: (E, B, H).
        batch_sizes, offsets: (T,) int64 on the device of `u`: samples still running at each time step, and the
            packed row of the first of them.
        mask: (E, B, H) or None: dropout of `h` in `W_h h` and `W_ah h`.
        out_dtype: of `out`, that of `u` where None. float32 keeps the states whole for `backward`.
    """
    from .forward_kernel import forward_kernel

    update, elastic, own = KINDS[kind]
    size = _sizes(u, h0, weights, batch_sizes, own)
    launch = launch or default_launch(size.E, size.B, size.H, dtype=weights.W_h.dtype)
    out = u.new_empty((size.E, size.N, size.H), dtype=out_dtype or u.dtype)
    depth = torch.empty((size.E, size.N), dtype=torch.int64, device=u.device)
    if not elastic:
        depth.fill_(max_depth)
    if size.N == 0:
        return out, depth
    _launch(
        forward_kernel,
        (-(-size.B // launch.block), size.E),
        launch,
        [u, h0, mask, *weights, batch_sizes, offsets, out, depth],
        [size.N, size.B, size.T, max_depth, size.sets, 0],
        size,
        KIND=update,
        ELASTIC=elastic,
        OWN=own,
        MASKED=mask is not None,
        REVERSE=reverse,
    )
    return out, depth


def backward(
    u: Tensor,
    h0: Tensor,
    weights: Weights[Tensor],
    batch_sizes: Tensor,
    offsets: Tensor,
    out: Tensor,
    d_out: Tensor,
    *,
    kind: str,
    max_depth: int,
    mask: Tensor | None = None,
    reverse: bool = False,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor, Weights[Tensor]]:
    """The gradients of `u`, `h0` and the weights, each in the dtype of what it belongs to, given `forward`'s
    arguments and `out`, and its gradient `d_out` (E, N, H)."""
    from .backward_kernel import backward_kernel

    update, elastic, own = KINDS[kind]
    size = _sizes(u, h0, weights, batch_sizes, own)
    launch = launch or default_launch(size.E, size.B, size.H, backward=True, dtype=weights.W_h.dtype)
    d_u = torch.empty_like(u)
    d_h = torch.zeros_like(h0, dtype=torch.float32)
    if size.N == 0:
        zeros = {name: torch.zeros_like(each) for name, each in weights._asdict().items() if each is not None}
        return d_u, d_h.to(h0.dtype), Weights(**zeros)
    table = _Columns(size.H, size.Z if update else 0)
    programs = -(-size.B // launch.block)
    chunk = _chunk(size, max_depth, table.width, launch.workspace)
    rows = _round_up(chunk * size.B, _SPLIT if chunk * size.B > _SPLIT else 1)
    work = h0.new_empty((size.E, max_depth, rows, table.width), dtype=torch.float32)
    width = 13 * size.HP + size.ZP
    scratch = h0.new_empty((size.E * programs * max_depth * launch.block, width), dtype=torch.float32)
    sums = h0.new_empty((size.E, programs, 4 * size.HP + size.ZP), dtype=torch.float32)
    total: list[Tensor] = []
    starts = range(0, size.T, chunk)
    for low in starts if reverse else reversed(starts):
        work.zero_()  # rows of ended samples and of inner steps not taken are not written
        _launch(
            backward_kernel,
            (programs, size.E),
            launch,
            [u, h0, mask, *weights, batch_sizes, offsets, out, d_out, d_u, d_h, scratch, work, sums],
            [size.N, size.B, size.T, max_depth, size.sets, rows, low, min(low + chunk, size.T)],
            size,
            KIND=update,
            ELASTIC=elastic,
            OWN=own,
            MASKED=mask is not None,
            REVERSE=reverse,
            GRAD=table.grad,
            WIDTH=table.width,
        )
        products = table.products(work, elastic=elastic, own=own, hyper=update > 0, gated=update in GATED)
        parts = [sums.sum(1), *products]
        total = [a + b for a, b in zip(total, parts, strict=True)] if total else parts
    return d_u, d_h.to(h0.dtype), _gradients(weights, size, total, own=own)


class _Columns:
    """The columns of the workspace: inputs of the products, [m⊗h | s | ĝ | z | 1], then gradients of their
    results, [W h | W_a h | w | ḡ | z of the next inner step]. Both begin on 16 bytes."""

    def __init__(self, H: int, Z: int) -> None:
        self.H, self.Z = H, Z
        self.grad = _round_up(3 * H + Z + 1 if Z else H, 4)
        self.width = self.grad + _round_up(7 * H + Z if Z else 3 * H, 4)

    def products(self, work: Tensor, *, elastic: bool, own: bool, hyper: bool, gated: bool) -> list[Tensor]:
        """Sums over all rows of gradient × input: of `[W_h; W_ah]`, of `[P; P_bar]` with their biases, of
        `[W_zs | W_z]` with its bias."""
        E, R, rows, _ = work.shape
        splits = rows // _SPLIT if rows % _SPLIT == 0 and rows else 1
        parts = work.view(E * R * splits, rows // splits, self.width)
        left, right = parts[..., self.grad :].mT, parts
        H, Z = self.H, self.Z

        def summed(d: Tensor, x: Tensor, keep_depth: bool = False) -> Tensor:
            y = torch.bmm(d, x).view(E, R, splits, d.size(1), x.size(2))
            return y.sum(2) if keep_depth else y.sum((1, 2))

        found = [summed(left[:, : (3 if elastic else 2) * H], right[..., :H], own)]
        if own:
            found.append(work[..., self.grad : self.grad + 2 * H].sum(2))  # (E, R, 2H)
        if hyper:
            found.append(summed(left[:, 3 * H : (7 if gated else 5) * H], right[..., 3 * H : 3 * H + Z + 1]))
            found.append(summed(left[:, 7 * H : 7 * H + Z], right[..., H : 3 * H + Z + 1]))
        return found


def _gradients(weights: Weights[Tensor], size: Sizes, total: list[Tensor], *, own: bool) -> Weights[Tensor]:
    """Splits the sums into the gradients of the weights."""
    H, Z, HP = size.H, size.Z, size.HP
    sums, of_h = total[0], total[1]  # (E, 4 HP + ZP), (E, 3H, H)
    found: dict[str, Tensor] = {}
    if own:
        # With a smaller max_depth the weights of the deeper inner steps have gradient zero.
        unused = size.sets - of_h.size(1)
        found["W_h"] = torch.nn.functional.pad(of_h, (0, 0, 0, 0, 0, unused))
        found["b"] = torch.nn.functional.pad(total[2], (0, 0, 0, unused))
    else:
        found["W_h"] = of_h[:, : 2 * H]
        found["b"] = torch.cat([sums[:, :H], sums[:, HP : HP + H]], -1)
    if weights.alpha is not None:
        found["W_ah"] = of_h[:, 2 * H :]
        found["alpha"] = sums[:, 2 * HP : 2 * HP + H].masked_fill(weights.alpha > ALPHA_LIMIT[torch.float32], 0.0)
        found["beta"] = sums[:, 3 * HP : 3 * HP + H]
    if weights.z1 is not None:
        of_z, of_hyper = total[2], total[3]  # (E, 4H or 2H, Z + 1), (E, Z, 2H + Z + 1)
        found["z1"] = sums[:, 4 * HP : 4 * HP + Z]
        found["P"] = of_z[:, : 2 * H, :Z]
        found["W_zs"] = of_hyper[..., : 2 * H]
        found["W_z"] = of_hyper[..., 2 * H : 2 * H + Z]
        found["b_z"] = of_hyper[..., -1]
        if weights.P_bar is not None:
            found["P_bar"] = of_z[:, 2 * H :, :Z]
            found["b_bar"] = of_z[:, 2 * H :, Z]
    return Weights(**{name: grad.to(getattr(weights, name).dtype).contiguous() for name, grad in found.items()})


def _launch(
    kernel: Any,
    grid: tuple[int, int],
    launch: Launch,
    tensors: list[Tensor | None],
    numbers: list[int],
    size: Sizes,
    **constants: Any,
) -> None:
    options: dict[str, Any] = {"num_warps": launch.num_warps, "num_stages": 1}
    if launch.maxnreg is not None and os.environ.get("TRITON_INTERPRET") != "1":
        options["maxnreg"] = launch.maxnreg
    kernel[grid](
        *tensors,
        *numbers,
        H=size.H,
        Z=size.Z,
        HP=size.HP,
        ZP=size.ZP,
        BB=launch.block,
        RESIDENT=launch.resident,
        PRECISION=launch.precision,
        **constants,
        **options,
    )


def _sizes(u: Tensor, h0: Tensor, weights: Weights[Tensor], batch_sizes: Tensor, own: bool) -> Sizes:
    E, B, H = h0.shape
    if H > SMALL:
        raise ValueError(f"hidden_size must be at most {SMALL} for the small kernels, got {H}")
    Z = 1 if weights.z1 is None else weights.z1.size(1)
    sets = weights.W_h.size(1) if own else 1
    return Sizes(E, u.size(1), B, batch_sizes.numel(), H, Z, _padded(H), _padded(Z), sets)


def _padded(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _chunk(size: Sizes, max_depth: int, width: int, workspace: int) -> int:
    """The number of time steps whose workspace fits."""
    step = 4 * size.E * max_depth * size.B * width
    return max(1, min(size.T, workspace // max(step, 1)))
