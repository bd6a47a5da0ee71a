"""Launches the kernels for large networks: the two passes, and time in chunks that fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...dispatch import insist
from ...weights import Weights
from ..launch import KINDS
from .plan import LargeLaunch, Saved, buffers, chunks, default_launch, run, sizes_of
from .weights import (
    Sizes,
    first_gradient,
    first_projections,
    member,
    of_hyper,
    of_projections,
    of_state,
    pad,
    padded,
    summed_gradients,
    weight_gradients,
)

_BACKWARD_ORDER = (
    "alpha", "beta", "batch_sizes", "offsets", "alphas", "flags", "d_out", "d_u", "ew", "grads", "carry", "sums",
)  # fmt: skip


class Call(NamedTuple):
    """The sequences of one network, and how they are run."""

    u: Tensor
    h0: Tensor
    weights: Weights[Tensor]
    mask: Tensor | None
    batch_sizes: Tensor
    offsets: Tensor
    out: Tensor
    size: Sizes
    kind: str
    reverse: bool
    launch: LargeLaunch
    cuda: bool


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
    launch: LargeLaunch | None = None,
    keep: bool = False,
    cuda: bool = False,
) -> Any:
    """As `triton.forward`, and with `keep` also what `backward` takes as `saved`. Members of an ensemble run one
    after the other. With `cuda` the kernels of `ops.cuda` run the passes that they can, in the same memory."""
    from .pieces import depth_kernel

    size = sizes_of(u, h0, weights, batch_sizes, kind, max_depth)
    E = h0.size(0)
    out = torch.empty((E, size.N, size.H), dtype=out_dtype or u.dtype, device=u.device)
    depth = torch.full((E, size.N), max_depth, dtype=torch.int64, device=u.device)
    saved = buffers(E, weights, size, keep)
    launch = launch or default_launch(weights.W_h.dtype)
    for e in range(E if size.N > 0 else 0):
        own = member(weights, e)
        dropout = None if mask is None else mask[e]
        call = Call(u[e], h0[e], own, dropout, batch_sizes, offsets, out[e], size, kind, reverse, launch, cuda)
        _run_forward(call, Saved(*(each[e] for each in saved)), keep)
        if size.elastic:
            block = min(2048, max(16, 1 << (size.H - 1).bit_length()))
            depth_kernel[(size.N,)](
                saved.alphas[e], own.alpha, own.beta, depth[e], max_depth, H=size.H, BLOCK=block
            )
    return (out, depth, saved) if keep else (out, depth)


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
    launch: LargeLaunch | None = None,
    saved: Saved | None = None,
    cuda: bool = False,
) -> tuple[Tensor, Tensor, Weights[Tensor]]:
    """As `triton.backward`. Without `saved` the forward pass is run again, from `out`, in as many chunks of time
    steps as it takes to stay within `launch.workspace`."""
    size = sizes_of(u, h0, weights, batch_sizes, kind, max_depth)
    launch = launch or default_launch(weights.W_h.dtype, backward=True)
    d_u = torch.empty_like(u)
    if size.N == 0:
        nothing = {name: torch.zeros_like(each) for name, each in weights._asdict().items() if each is not None}
        return d_u, torch.zeros_like(h0), Weights(**nothing)
    members = []
    for e in range(h0.size(0)):
        own, dropout = member(weights, e), None if mask is None else mask[e]
        call = Call(u[e], h0[e], own, dropout, batch_sizes, offsets, out[e], size, kind, reverse, launch, cuda)
        kept = None if saved is None else Saved(*(each[e] for each in saved))
        members.append(_run_backward(call, d_out[e], d_u[e], kept))
    d_h0 = _stack([each for each, _ in members])
    names = members[0][1].keys()
    return d_u, d_h0, Weights(**{name: _stack([each[name] for _, each in members]) for name in names})


def _stack(tensors: list[Tensor]) -> Tensor:
    """As torch.stack, without a copy of a single one."""
    return torch.stack(tensors) if len(tensors) > 1 else tensors[0].contiguous()[None]


def _run_forward(call: Call, saved: Saved, keep: bool) -> None:
    u, h0, weights, mask, batch_sizes, offsets, out, size, kind, reverse, launch, _ = call
    first, whole = pad(h0.float(), size.HP), padded(weights, size)
    given: dict[str, Tensor | None] = {
        "u": u, "mask": mask, "W_h": whole.W_h, "W_ah": whole.W_ah, "b": weights.b, "alpha": weights.alpha,
        "beta": weights.beta, "W_zs": whole.W_zs, "W_z": whole.W_z, "b_z": weights.b_z, "P": whole.P,
        "P_bar": whole.P_bar, "b_bar": weights.b_bar, "batch_sizes": batch_sizes, "offsets": offsets, "out": out,
        "alphas": saved.alphas, "flags": saved.flags, "ew": saved.ew, "mh": saved.mh, "sgz": saved.sgz, "h0": first,
    }  # fmt: skip
    if _on_chip("forward", call, given, keep):
        return
    from .forward_kernel import forward_kernel

    saved.ew[0, :, : size.HP] = first
    saved.mh[0] = first if mask is None else first * pad(mask.float(), size.HP)
    into_z = projections = first_w = None
    if size.hyper:
        into_z, projections = of_hyper(whole), of_projections(whole)
        first_w = first_projections(weights, projections, size)
    tensors = [
        u, mask, of_state(whole), weights.b, weights.alpha, weights.beta, into_z, weights.b_z, first_w, projections,
        weights.b_bar, batch_sizes, offsets, out, *(saved.alphas, saved.flags, saved.ew, saved.mh, saved.sgz),
        torch.zeros(1, dtype=torch.int32, device=u.device),
    ]  # fmt: skip
    phases = [
        (i, r, p)
        for i in range(size.T)
        for r in range(1, size.R + 1)
        for p in (1, 2)
        if p == 2 or (size.hyper and r > 1)
    ]
    wide = -(-2 * size.HP // launch.rows) + -(-size.ZP // launch.hyper_rows)
    run(
        forward_kernel,
        tensors,
        [size.B, size.T, size.R, saved.mh.size(0)],
        phases,
        max(-(-size.HP // launch.units), wide if size.hyper else 0),
        launch,
        size,
        kind,
        Z=size.Z,
        BN=launch.rows,
        BZ=launch.hyper_rows,
        MASKED=mask is not None,
        REVERSE=reverse,
        KEEP=keep,
    )


def _run_backward(call: Call, d_out: Tensor, d_u: Tensor, saved: Saved | None) -> tuple[Tensor, dict[str, Tensor]]:
    """The gradients of h0 and the weights; that of u goes to `d_u`."""
    _, h0, weights, mask, batch_sizes, offsets, _, size, *_ = call
    whole, device = padded(weights, size), h0.device
    carry = torch.zeros((size.B, 6 * size.HP), dtype=torch.float32, device=device)
    sums = torch.zeros((size.R if size.own else 1, 4, size.HP), dtype=torch.float32, device=device)
    later = torch.zeros((size.B, size.grads), dtype=weights.W_h.dtype, device=device)
    found: dict[str, Tensor] = {}
    for low, high in chunks(size, call.launch.workspace, saved is not None):
        part = size._replace(T=high - low)
        steps = slice(size.T - high, size.T - low) if call.reverse else slice(low, high)
        kept = saved or _recomputed(call, part, low, steps)
        grads = torch.empty((part.T * part.R + 1, size.B, size.grads), dtype=later.dtype, device=device)
        grads[-1] = later
        given: dict[str, Tensor | None] = {
            "mask": mask, "W_h": whole.W_h, "W_ah": whole.W_ah, "W_zs": whole.W_zs, "W_z": whole.W_z, "P": whole.P,
            "P_bar": whole.P_bar, "alpha": weights.alpha, "beta": weights.beta, "batch_sizes": batch_sizes[steps],
            "offsets": offsets[steps], "alphas": kept.alphas, "flags": kept.flags, "d_out": d_out, "d_u": d_u,
            "ew": kept.ew, "grads": grads, "carry": carry, "sums": sums,
        }  # fmt: skip
        resident = _walk_back(call._replace(size=part), given, grads, whole)
        made = weight_gradients(part, weights, kept.mh[:-1], kept.sgz[: part.T * part.R], grads[:-1])
        if size.hyper:
            made["z1"] = first_gradient(part, whole, grads[:-1])
        found = {name: found[name] + each for name, each in made.items()} if found else made
        later = grads[0]
    found |= summed_gradients(size, weights, sums)
    if resident:
        d_mh = carry[:, size.HP : size.HP + size.H]
    else:
        above = of_state(whole)[0].float() if size.own else of_state(whole).float()
        d_mh = (later[:, : above.size(0)].float() @ above)[:, : size.H]
        d_mh = d_mh if mask is None else d_mh * mask
    d_h0 = carry[:, : size.H] + d_mh
    return d_h0.to(h0.dtype), {name: each.to(getattr(weights, name).dtype) for name, each in found.items()}


def _walk_back(call: Call, given: dict[str, Tensor | None], grads: Tensor, whole: Weights[Tensor]) -> bool:
    """Whether the kernel was one of `ops.cuda`."""
    size, launch = call.size, call.launch
    if _on_chip("backward", call, given):
        return True
    from .backward_kernel import backward_kernel

    if size.elastic:
        grads[:-1] = 0.0  # inner steps that were not taken leave their rows alone
    tensors = [given["mask"], *_turned(size, whole), *(given[name] for name in _BACKWARD_ORDER)]
    tensors.append(torch.zeros(1, dtype=torch.int32, device=grads.device))
    phases = [
        (i, r, p)
        for i in reversed(range(size.T))
        for r in reversed(range(1, size.R + 1))
        for p in (1, 2)
        if p == 1 or (size.hyper and r > 1)
    ]
    run(
        backward_kernel,
        tensors,
        [size.B, size.T, size.R],
        phases,
        max(-(-size.HP // launch.units), -(-size.ZP // launch.back_rows)),
        launch,
        size,
        call.kind,
        GRADS=size.grads,
        BZ=launch.back_rows,
        MASKED=given["mask"] is not None,
        REVERSE=call.reverse,
    )
    return False


def _on_chip(name: str, call: Call, given: dict[str, Tensor | None], keep: bool = False) -> bool:
    """Makes a pass by the kernel of `ops.cuda` that keeps its weights, where that is asked for and can."""
    if not call.cuda:
        return False
    from ...cuda.resident import run_pass

    reason = run_pass(name, call.size, KINDS[call.kind][0], given, reverse=call.reverse, keep=keep)
    if reason is not None:
        insist("cuda", reason)
    return reason is None


def _turned(size: Sizes, whole: Weights[Tensor]) -> list[Tensor | None]:
    """The weights with the summed index last, as the Triton kernel reads them."""
    back_s = back_z = None
    if size.hyper:
        into_z = of_hyper(whole)
        back_s = into_z[:, : 2 * size.HP].mT.contiguous()  # (2HP, ZP)
        back_z = torch.cat([of_projections(whole), into_z[:, 2 * size.HP :]]).mT.contiguous()  # (ZP, 4HP + ZP)
    return [of_state(whole).mT.contiguous(), back_s, back_z]  # the first: (HP, 3HP)


def _recomputed(call: Call, part: Sizes, low: int, steps: slice) -> Saved:
    """What `forward` would have kept of the time steps in `steps`, the `low`-th in order and those after it."""
    h0, sizes, offsets = call.h0, call.batch_sizes, call.offsets
    if low > 0:
        before = steps.stop if call.reverse else steps.start - 1
        running, row = int(sizes[before]), int(offsets[before])
        h0 = torch.cat([call.out[row : row + running].to(h0.dtype), h0[running:]])
    kept = Saved(*(each[0] for each in buffers(1, call.weights, part, True)))
    again = torch.empty_like(call.out)
    _run_forward(
        call._replace(h0=h0, batch_sizes=sizes[steps], offsets=offsets[steps], out=again, size=part), kept, True
    )
    return kept
