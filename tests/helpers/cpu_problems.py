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
from eirehn.ops.reference import scan
from eirehn.ops.weights import Weights, weights_of

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
    d_cost: Tensor | None  # (E, N)


def make_problem(
    system: str, *, X: int = 2, H: int = 5, sizes: list[int], depth: int = 3, gates: str = "mixed", E: int = 1,
    masked: bool = False, reverse: bool = False, with_cost: bool = True, seed: int = 0,
) -> Problem:  # fmt: skip
    cells = [make_cell(system, X, H, depth, gates, seed + e) for e in range(E)]
    draw = torch.Generator().manual_seed(seed)
    N, B = sum(sizes), sizes[0]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw)

    mask = (normal(E, B, H) > 0).double() * 2 if masked else None
    d_cost = normal(E, N) if with_cost else None
    return Problem(
        cells, normal(E, N, X), normal(E, B, H) * 0.5, mask, sizes, depth, reverse, normal(E, N, H), d_cost
    )


def cast(problem: Problem, dtype: torch.dtype) -> Problem:
    cells = [copy.deepcopy(cell).to(dtype) for cell in problem.cells]
    tensors = {k: v.to(dtype) for k, v in problem._asdict().items() if isinstance(v, Tensor)}
    return problem._replace(cells=cells, **tensors)


def plain(problem: Problem) -> dict[str, Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # these products are too small for more
    try:
        return plain_results(problem)
    finally:
        torch.set_num_threads(threads)


def plain_results(problem: Problem) -> dict[str, Tensor]:
    results: dict[str, list[Tensor]] = {}
    for e, cell in enumerate(problem.cells):
        cell.zero_grad()
        x, h0 = (t[e].clone().requires_grad_() for t in (problem.x, problem.h0))
        run = scan(
            cell, x, problem.batch_sizes, h0, max_depth=problem.depth, reverse=problem.reverse,
            h_mask=None if problem.mask is None else problem.mask[e], with_cost=True,
        )  # fmt: skip
        depth = torch.cat([run.depth[t, :b] for t, b in enumerate(problem.batch_sizes)])
        assert run.cost is not None
        cost = torch.cat([run.cost[t, :b] for t, b in enumerate(problem.batch_sizes)])
        loss = (run.out * problem.d_out[e]).sum()
        if problem.d_cost is not None:
            loss = loss + (cost * problem.d_cost[e]).sum()
        loss.backward()
        collect(results, cell, x, h0, run.out, depth, cost)
    return {name: torch.stack(parts) for name, parts in results.items()}


def collect(results: Any, cell: RecurrentCell, x: Tensor, h0: Tensor, *outputs: Tensor) -> None:
    values = dict(zip(("out", "depth", "cost"), outputs, strict=True))
    for name, leaf in {"x": x, "h0": h0, **dict(cell.named_parameters())}.items():
        values[f"d {name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    for name, value in values.items():
        results.setdefault(name, []).append(value.detach())


def kernel_weights(cell: RecurrentCell, *, project: bool = False) -> tuple[str, list[Tensor | None]]:
    """The weights, still tied to the cell's own parameters; to `project` x they are more."""
    kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
    W_x, b_a = None, None
    if project:
        assert isinstance(cell, (RHNCell, SREHNCell))
        W_x = cell.W_x
        if isinstance(cell, SREHNCell):
            W_x, b_a = torch.cat([cell.W_x, cell.W_ax]), cell.b_a
    return kind, [*weights_of(cell, cell.constants()), W_x, b_a]


def recurrence(problem: Problem, kind: str, us: list[Tensor], tied: list[list[Tensor | None]]) -> cpu.Recurrence:
    """By the kernels; with projected inputs `us`, or x where the weights are for it."""
    weights, *rest, projection = arrays(problem, us, tied)
    return cpu.Recurrence(
        kind, weights, *rest, max_depth=problem.depth, reverse=problem.reverse, projection=projection
    )


def arrays(problem: Problem, us: list[Tensor], tied: list[list[Tensor | None]]) -> Any:
    """What `Recurrence` takes after the kind, and last its projection."""
    stacked = [
        None if parts[0] is None else torch.stack([p.detach() for p in parts]).numpy()
        for parts in zip(*tied, strict=True)
    ]
    u = torch.stack([u.detach() for u in us]).numpy()
    mask = None if problem.mask is None else problem.mask.numpy()
    sizes = np.array(problem.batch_sizes, np.int64)
    *weights, W_x, b_a = stacked
    projection = None if W_x is None else cpu.Projection(W_x, b_a)
    return Weights(*weights), u, problem.h0.numpy(), mask, sizes, projection


def fast(problem: Problem, *, project: bool = False) -> dict[str, Tensor]:
    """By the kernels, from the projected input, or from x itself."""
    xs = [x.clone().requires_grad_() for x in problem.x]
    inputs = xs if project else [cell.project(x) for cell, x in zip(problem.cells, xs, strict=True)]
    kinds_and_tied = [kernel_weights(cell, project=project) for cell in problem.cells]
    kind, tied = kinds_and_tied[0][0], [tied for _, tied in kinds_and_tied]
    run = recurrence(problem, kind, inputs, tied).forward()
    d_cost = None if problem.d_cost is None else problem.d_cost.numpy()
    grads = recurrence(problem, kind, inputs, tied).backward(run.out, problem.d_out.numpy(), d_cost)
    assert grads.inputs is not None
    of_weights = (*grads.weights, *(grads.projection or (None, None)))
    results: dict[str, list[Tensor]] = {}
    for e, cell in enumerate(problem.cells):
        cell.zero_grad()
        pairs = [(inputs[e], grads.inputs[e])]
        pairs += [(t, g[e]) for t, g in zip(tied[e], of_weights, strict=True) if t is not None]
        torch.autograd.backward([t for t, _ in pairs], [torch.from_numpy(g) for _, g in pairs])
        h0 = problem.h0[e].clone().requires_grad_()
        h0.grad = torch.from_numpy(grads.h0[e])
        collect(results, cell, xs[e], h0, *(torch.from_numpy(part[e]) for part in run))
    return {name: torch.stack(parts) for name, parts in results.items()}


def error(value: Tensor, truth: Tensor) -> float:
    scale = truth.abs().max().item()
    difference = (value.double() - truth).abs().max().item()
    return difference / scale if scale > 0 else difference


def check(problem: Problem) -> None:
    truth = plain(problem)
    single = cast(problem, torch.float32)
    theirs = plain(single)
    for project in (False, True):
        compare(truth, theirs, fast(problem, project=project), fast(single, project=project))


def compare(
    truth: dict[str, Tensor], theirs: dict[str, Tensor], double: dict[str, Tensor], ours: dict[str, Tensor]
) -> None:
    """The kernels in double precision, and `ours` in single beside the plain path's own (`theirs`)."""
    for name, value in double.items():
        assert value.shape == truth[name].shape, name
        assert error(value, truth[name]) <= 1e-11, name
    assert torch.equal(double["depth"], truth["depth"])
    if not torch.equal(theirs["depth"], truth["depth"]) or not torch.equal(ours["depth"], truth["depth"]):
        return  # a gate so near to shutting that float32 cannot tell: nothing to compare
    # Of a single tensor the plain path's error is down to luck, a few roundings this way or that, so the largest of
    # all counts; and in the smallest problems even that is luck, so sixteen roundings are always allowed.
    bound = max(3 * max(error(theirs[name], truth[name]) for name in theirs), 16 * torch.finfo(torch.float32).eps)
    for name, value in ours.items():
        assert error(value, truth[name]) <= min(bound, 1e-4), name


def run_arrays(problem: Problem) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Everything `forward` and `backward` give back, as arrays."""
    return prepared(problem)()


def everything(problem: Problem) -> list[bytes]:
    outputs, grads = run_arrays(problem)
    return [array.tobytes() for array in (*outputs, *grads)]


def prepared(problem: Problem) -> Callable[[], tuple[list[np.ndarray], list[np.ndarray]]]:
    """`run_arrays` with all that torch has to do already done."""
    kinds_and_tied = [kernel_weights(cell) for cell in problem.cells]
    us = [cell.project(x).detach() for cell, x in zip(problem.cells, problem.x, strict=True)]
    weights, *rest, _ = arrays(problem, us, [tied for _, tied in kinds_and_tied])
    assert problem.d_cost is not None
    d_out, d_cost, kind = problem.d_out.numpy(), problem.d_cost.numpy(), kinds_and_tied[0][0]

    def run() -> tuple[list[np.ndarray], list[np.ndarray]]:
        given = cpu.Recurrence(kind, weights, *rest, max_depth=problem.depth, reverse=problem.reverse)
        outputs = given.forward()
        grads = given.backward(outputs.out, d_out, d_cost)
        assert grads.inputs is not None
        return list(outputs), [grads.inputs, grads.h0, *(g for g in grads.weights if g is not None)]

    return run
