"""Recurrences for the CPU kernels, and what the plain path makes of them, with every gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from eirehn.cells import EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from eirehn.ops import cpu
from eirehn.ops.cpu.call import CellCall
from eirehn.ops.operator import recurrence, run
from eirehn.ops.reference import scan
from eirehn.ops.weights import Weights, weights_of
from helpers.systems import largest_error

HYPER = ("paper", "recursive", "bounded", "additive", "scaling")
SYSTEMS = (*HYPER, "SREHN", "SRHN", "RHN")


def make_cell(system: str, X: int, H: int, depth: int, gates: str, seed: int) -> RecurrentCell:
    torch.manual_seed(seed)
    if system == "RHN":
        return RHNCell(X, H, depth=depth, dtype=torch.float64)
    if system == "SRHN":
        return SRHNCell(X, H, depth=depth, dtype=torch.float64)
    if system == "SREHN":
        cell: SREHNCell = SREHNCell(X, H, max_depth=depth, dtype=torch.float64)
    else:
        cell = EIREHNCell(X, H, max_depth=depth, weight_update=system, dtype=torch.float64)
    with torch.no_grad():
        if gates in ("open", "shut"):  # whatever the input
            cell.W_ah.mul_(0.1)
            cell.W_ax.mul_(0.1)
        if gates == "open":  # at every depth up to 10
            cell.alpha_hat.fill_(-7.0)
            cell.b_a.fill_(-6.0)
        elif gates == "shut":
            cell.alpha_hat.fill_(-4.0)
            cell.b_a.fill_(6.0)
        else:  # anything from none to all of ten inner steps, unit by unit and sample by sample
            cell.alpha_hat.uniform_(-6.0, -1.5)
            cell.b_a.uniform_(-6.0, 1.5)
            cell.W_ax.uniform_(-3.0, 3.0)
            cell.W_ah.uniform_(-1.0, 1.0)
            cell.beta_hat.uniform_(-2.0, 3.0)
        for name, parameter in cell.named_parameters():
            if name in ("b", "b_z", "b_bar", "s_0", "g_0", "z_0"):
                parameter.uniform_(-0.5, 0.5)
    return cell


class Problem(NamedTuple):
    cells: list[RecurrentCell]
    x: Tensor  # (E, N, X)
    h0: Tensor  # (E, B, H)
    mask: Tensor | None  # (E, B, H)
    batch_sizes: list[int]
    depth: int
    reverse: bool
    d_out: Tensor  # (E, N, H)


def make_problem(
    system: str, *, X: int = 2, H: int = 5, sizes: list[int], depth: int = 3, gates: str = "mixed", E: int = 1,
    masked: bool = False, reverse: bool = False, seed: int = 0,
) -> Problem:  # fmt: skip
    cells = [make_cell(system, X, H, depth, gates, seed + e) for e in range(E)]
    draw = torch.Generator().manual_seed(seed)
    N, B = sum(sizes), sizes[0]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw)

    mask = (normal(E, B, H) > 0).double() * 2 if masked else None
    return Problem(cells, normal(E, N, X), normal(E, B, H) * 0.5, mask, sizes, depth, reverse, normal(E, N, H))


def cast(problem: Problem, dtype: torch.dtype) -> Problem:
    cells = [copy.deepcopy(cell).to(dtype) for cell in problem.cells]
    tensors = {k: v.to(dtype) for k, v in problem._asdict().items() if isinstance(v, Tensor)}
    return problem._replace(cells=cells, **tensors)


Results = tuple[Tensor, Tensor]  # out (E, N, H) and depth (E, N)


def plain(problem: Problem, x: Tensor, h0: Tensor) -> Results:
    """By the plain path, one member after the other."""
    sizes, options = problem.batch_sizes, {"max_depth": problem.depth, "reverse": problem.reverse}
    found = []
    for e, cell in enumerate(problem.cells):
        mask = None if problem.mask is None else problem.mask[e]
        each = scan(cell, x[e], sizes, h0[e], h_mask=mask, **options)
        found.append((each.out, each.depth))
    out, depth = map(torch.stack, zip(*found, strict=True))
    return out, depth


def from_inputs(problem: Problem, x: Tensor, h0: Tensor) -> Results:
    """By the kernels, which project x too, as they serve layers and their ensembles."""
    cells = problem.cells
    call = CellCall(cells[0], problem.batch_sizes, problem.depth, problem.reverse).of(len(cells))
    parameters = [torch.stack([getattr(cell, name) for cell in cells]) for name in call.names]
    return run(call, x, h0, problem.mask, *parameters)


def from_projections(problem: Problem, x: Tensor, h0: Tensor) -> Results:
    """By the kernels from the projected input, as they serve compiled code."""
    return recurrence(*tensors_of(problem, x, h0), *options_of(problem), "cpu")


def tensors_of(problem: Problem, x: Tensor, h0: Tensor) -> list[Tensor | None]:
    u = torch.stack([cell.project(each) for cell, each in zip(problem.cells, x, strict=True)])
    weights = zip(*(weights_of(cell, cell.constants()) for cell in problem.cells), strict=True)
    return [u, h0, problem.mask, *(None if parts[0] is None else torch.stack(parts) for parts in weights)]


def options_of(problem: Problem) -> tuple[list[int], str, int, bool]:
    kind = getattr(problem.cells[0], "weight_update", "none")
    return problem.batch_sizes, kind, problem.depth, problem.reverse


def everything(problem: Problem, way: Callable[..., Results] = from_projections) -> dict[str, Tensor]:
    """All outputs and all gradients."""
    x, h0 = (each.clone().requires_grad_() for each in (problem.x, problem.h0))
    out, depth = way(problem, x, h0)
    leaves = {"x": x, "h0": h0}
    leaves |= {f"{e} {name}": p for e, cell in enumerate(problem.cells) for name, p in cell.named_parameters()}
    gradients = torch.autograd.grad(out, list(leaves.values()), problem.d_out, materialize_grads=True)
    found = {"out": out.detach(), "depth": depth}
    return found | {f"d {name}": each for name, each in zip(leaves, gradients, strict=True)}


def redrawn(problem: Problem) -> list[Problem]:
    """Problems as large as this, with the same cells."""
    given = problem.x, problem.h0, problem.d_out
    changed = [[each * sign for each in given] for sign in (-1.0, 0.7, -1.3)]
    return [problem._replace(x=x, h0=h0, d_out=d_out) for x, h0, d_out in changed]


def plain_error(problem: Problem) -> float:
    """Of the plain path in single precision."""
    single = everything(cast(problem, torch.float32), plain)
    return largest_error(single.values(), everything(problem, plain).values())


def check(problem: Problem) -> None:
    """The kernels in double precision, and in single beside the plain path's own (`theirs`)."""
    single = cast(problem, torch.float32)
    truth, theirs = everything(problem, plain), everything(single, plain)
    # Of a single tensor the plain path's error is down to luck, a few roundings this way or that, so the largest of
    # all counts, and in small problems that of three more draws of what comes in.
    bound = max(3 * largest_error(theirs.values(), truth.values()), 16 * torch.finfo(torch.float32).eps)
    if truth["out"].numel() < 1000:
        bound = max(bound, 3 * max(map(plain_error, redrawn(problem))))
    for way in (from_inputs, from_projections):
        double, ours = everything(problem, way), everything(single, way)
        for name, value in double.items():
            assert value.shape == truth[name].shape, name
            assert largest_error([value], [truth[name]]) <= 1e-11, name
        assert torch.equal(double["depth"], truth["depth"])
        # Where a gate is so near to shutting that float32 cannot tell, there is nothing to compare.
        if torch.equal(theirs["depth"], truth["depth"]) and torch.equal(ours["depth"], truth["depth"]):
            assert largest_error(ours.values(), truth.values()) <= min(bound, 1e-4)


def arrays(problem: Problem) -> tuple[Any, ...]:
    """What `Recurrence` takes by place."""
    given = tensors_of(problem, problem.x, problem.h0)
    u, h0, mask, *weights = [None if each is None else each.detach().numpy() for each in given]
    sizes, kind, *_ = options_of(problem)
    return kind, Weights(*weights), u, h0, mask, np.array(sizes, np.int64)


def prepared(problem: Problem) -> Callable[[], list[bytes]]:
    """Both passes by the kernels alone, bit by bit: torch has nothing to do any more."""
    given, d_out = arrays(problem), problem.d_out.numpy()

    def bits() -> list[bytes]:
        call = cpu.Recurrence(*given, max_depth=problem.depth, reverse=problem.reverse)
        outputs = call.forward()
        found = call.backward(outputs.out, d_out)
        parts = (*outputs, found.inputs, found.h0, *found.weights)
        return [each.tobytes() for each in parts if each is not None]

    return bits
