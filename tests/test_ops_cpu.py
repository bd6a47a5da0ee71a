"""The CPU kernels against the plain path: outputs, depth, cost and every gradient."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers.quick import quick
from torch import Tensor

from eirehn.cells import EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from eirehn.ops import cpu
from eirehn.ops.cpu import layout, memory, pool, recurrence
from eirehn.ops.fused import weights_of
from eirehn.ops.reference import scan

HYPER = ("paper", "recursive", "bounded", "additive", "scaling")
SYSTEMS = (*HYPER, "SREHN", "SRHN", "RHN")


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "poison", True)


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


def kernel_parameters(cell: RecurrentCell, *, project: bool = False) -> tuple[str, list[Tensor | None]]:
    """What `cpu.Parameters` holds, still tied to the cell's own parameters; to `project` x they are more."""
    kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
    W_x, b_a = None, None
    if project:
        assert isinstance(cell, (RHNCell, SREHNCell))
        W_x = cell.W_x
        if isinstance(cell, SREHNCell):
            W_x, b_a = torch.cat([cell.W_x, cell.W_ax]), cell.b_a
    return kind, [*weights_of(cell, cell.constants()), W_x, b_a]


def arrays(problem: Problem, us: list[Tensor], tied: list[list[Tensor | None]]) -> Any:
    stacked = [
        None if parts[0] is None else torch.stack([p.detach() for p in parts]).numpy()
        for parts in zip(*tied, strict=True)
    ]
    u = torch.stack([u.detach() for u in us]).numpy()
    mask = None if problem.mask is None else problem.mask.numpy()
    sizes = np.array(problem.batch_sizes, np.int64)
    return cpu.Parameters(*stacked), u, problem.h0.numpy(), mask, sizes


def fast(problem: Problem, *, project: bool = False) -> dict[str, Tensor]:
    """By the kernels, from the projected input, or from x itself."""
    xs = [x.clone().requires_grad_() for x in problem.x]
    inputs = xs if project else [cell.project(x) for cell, x in zip(problem.cells, xs, strict=True)]
    kinds_and_tied = [kernel_parameters(cell, project=project) for cell in problem.cells]
    kind, tied = kinds_and_tied[0][0], [tied for _, tied in kinds_and_tied]
    args = arrays(problem, inputs, tied)
    options: Any = {"max_depth": problem.depth, "reverse": problem.reverse}
    run = cpu.forward(kind, *args, **options)
    d_cost = None if problem.d_cost is None else problem.d_cost.numpy()
    grads = cpu.backward(kind, *args, run.out, problem.d_out.numpy(), d_cost, **options)
    assert grads.inputs is not None
    results: dict[str, list[Tensor]] = {}
    for e, cell in enumerate(problem.cells):
        cell.zero_grad()
        pairs = [(inputs[e], grads.inputs[e])]
        pairs += [(t, g[e]) for t, g in zip(tied[e], grads.parameters, strict=True) if t is not None]
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


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("H", "X", "B", "T", "depth"),
    [
        (1, 1, 1, 1, 1),
        (3, 2, 7, 2, 3),
        (20, 2, 20, 17, 3),
        (33, 9, 7, 17, 10),
        (48, 9, 20, 2, 10),
        (48, 1, 1, 17, 3),
    ],
)
@pytest.mark.parametrize("gates", quick("mixed", of=["open", "mixed"]))
def test_matches_the_plain_path(system: str, H: int, X: int, B: int, T: int, depth: int, gates: str) -> None:
    check(make_problem(system, H=H, X=X, sizes=[B] * T, depth=depth, gates=gates))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("sizes", [[7, 7, 5, 5, 2, 1], [40, 33, 20, 17, 16, 1, 1], [1, 1, 1]], ids=len)
@pytest.mark.parametrize("reverse", quick(True, of=[False, True]))
@pytest.mark.parametrize("masked", quick(True, of=[False, True]))
@pytest.mark.parametrize("E", [1, 3])
def test_packed_reversed_masked_and_stacked(
    system: str, sizes: list[int], reverse: bool, masked: bool, E: int
) -> None:
    check(make_problem(system, H=6, sizes=sizes, depth=4, E=E, reverse=reverse, masked=masked, seed=3))


@pytest.mark.parametrize("system", [*HYPER, "SREHN"])
def test_gates_shut_from_the_start(system: str) -> None:
    problem = make_problem(system, H=6, sizes=[20] * 3, gates="shut")
    check(problem)
    results = fast(problem)
    assert not results["depth"].any()
    assert torch.equal(results["out"], problem.h0.repeat(1, 3, 1))  # to the bit


@pytest.mark.parametrize("system", ["paper", "RHN"])
def test_without_a_gradient_of_the_cost(system: str) -> None:
    check(make_problem(system, H=6, sizes=[20] * 3, with_cost=False))


def test_an_rhn_may_be_cut_short() -> None:
    check(make_problem("RHN", H=6, sizes=[7] * 3, depth=4)._replace(depth=2))


def test_alpha_beyond_its_limit() -> None:
    problem = make_problem("paper", H=6, sizes=[7] * 3)
    with torch.no_grad():
        problem.cells[0].alpha_hat[:2] = 1000.0
    check(problem)


def run_arrays(problem: Problem) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Everything `forward` and `backward` give back, as arrays."""
    return prepared(problem)()


def everything(problem: Problem) -> list[bytes]:
    outputs, grads = run_arrays(problem)
    return [array.tobytes() for array in (*outputs, *grads)]


def prepared(problem: Problem) -> Callable[[], tuple[list[np.ndarray], list[np.ndarray]]]:
    """`run_arrays` with all that torch has to do already done."""
    kinds_and_tied = [kernel_parameters(cell) for cell in problem.cells]
    us = [cell.project(x) for cell, x in zip(problem.cells, problem.x, strict=True)]
    args = arrays(problem, us, [tied for _, tied in kinds_and_tied])
    options: Any = {"max_depth": problem.depth, "reverse": problem.reverse}
    assert problem.d_cost is not None
    d_out, d_cost, kind = problem.d_out.numpy(), problem.d_cost.numpy(), kinds_and_tied[0][0]

    def run() -> tuple[list[np.ndarray], list[np.ndarray]]:
        outputs = cpu.forward(kind, *args, **options)
        grads = cpu.backward(kind, *args, outputs.out, d_out, d_cost, **options)
        assert grads.inputs is not None
        return list(outputs), [grads.inputs, grads.h0, *(g for g in grads.parameters if g is not None)]

    return run


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("where", ["x", "h0"])
@pytest.mark.parametrize("sizes", [[5] * 4, [5, 5, 4, 2]], ids=["plain", "packed"])
def test_nan_stays_in_its_sample(system: str, where: str, sizes: list[int]) -> None:
    problem = make_problem(system, H=6, sizes=sizes)
    clean, clean_grads = run_arrays(problem)
    bad = getattr(problem, where).clone()
    bad[0, 3] = torch.nan  # at the first time step of sample 3
    outputs, grads = run_arrays(problem._replace(**{where: bad}))
    plain_out = scan(
        problem.cells[0], bad[0] if where == "x" else problem.x[0], sizes,
        bad[0] if where == "h0" else problem.h0[0], max_depth=problem.depth, with_cost=True,
    )  # fmt: skip
    expected = plain_out.out.detach().numpy()
    assert np.array_equal(np.isnan(outputs[0][0]), np.isnan(expected))
    assert np.isnan(expected).any()
    sample = np.concatenate([np.arange(b) for b in sizes])
    others = sample != 3
    for ours, before in zip([*outputs, grads[0]], [*clean, clean_grads[0]], strict=True):
        assert np.array_equal(ours[0, others], before[0, others])
    assert np.array_equal(grads[1][0, [0, 1, 2, 4]], clean_grads[1][0, [0, 1, 2, 4]])


def test_same_bits_twice() -> None:
    problem = cast(make_problem("paper", H=20, sizes=[40] * 9, depth=6, E=3), torch.float32)
    assert everything(problem) == everything(problem)


def test_a_member_does_not_see_the_others() -> None:
    problem = cast(make_problem("paper", H=20, sizes=[40] * 3, E=3), torch.float32)
    together, _ = run_arrays(problem)
    alone = problem._replace(
        cells=problem.cells[1:2],
        **{k: v[1:2] for k, v in problem._asdict().items() if isinstance(v, Tensor)},
    )
    for a, b in zip(together, run_arrays(alone)[0], strict=True):
        assert np.array_equal(a[1:2], b)


def test_two_python_threads_at_once() -> None:
    problem = cast(make_problem("paper", H=20, sizes=[40] * 9, depth=6), torch.float32)
    expected = everything(problem)
    with ThreadPoolExecutor(4) as executor:
        runs = [executor.submit(everything, problem) for _ in range(24)]
        assert all(run.result() == expected for run in runs)


@pytest.fixture
def three_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("samples", "members", "threads", "span"),
    [
        (20, 1, 2, 16),  # 16 by one, 4 by the other
        (20, 1, 3, 8),  # 8, 8 and 4
        (40, 1, 4, 16),  # five of 8 would be two rounds
        (40, 1, 5, 8),
        (20, 5, 4, 16),
    ],
)
def test_tiles_of_large_networks_are_small_where_threads_would_wait(
    samples: int, members: int, threads: int, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = cast(make_problem("paper", H=6, sizes=[samples] * 2, E=members), torch.float32)
    us = [cell.project(x) for cell, x in zip(problem.cells, problem.x, strict=True)]
    given = [kernel_parameters(cell)[1] for cell in problem.cells]
    run = recurrence.Recurrence("paper", *arrays(problem, us, given), max_depth=2)
    assert run._span(threads) == 16  # so that its gradients do not depend on how many there are
    monkeypatch.setattr(recurrence, "_SUMS", 1)
    assert run._span(threads) == span


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("system", quick("paper", of=SYSTEMS))
def test_tiles_of_half_the_lanes(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(system, H=20, sizes=[20, 20, 13, 9, 8, 1], depth=3, masked=True)
    whole, whole_grads = run_arrays(cast(problem, torch.float32))
    spans, span_of = [], recurrence.Recurrence._span

    def span(self: recurrence.Recurrence, threads: int) -> int:
        spans.append(span_of(self, threads))
        return spans[-1]

    monkeypatch.setattr(recurrence, "_SUMS", 1)
    monkeypatch.setattr(recurrence, "_ALONE_NS", 0.0)
    monkeypatch.setattr(recurrence.Recurrence, "_span", span)
    half, half_grads = run_arrays(cast(problem, torch.float32))
    assert spans == [8, 8]
    # To the bit, but for what is summed over samples.
    assert all(np.array_equal(a, b) for a, b in zip(whole + whole_grads[:2], half + half_grads[:2], strict=True))
    check(problem)


def test_a_stash_that_is_full_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a large network is: after two time steps of three inner ones each, and after one."""
    problem = make_problem("paper", H=20, sizes=[20] * 7, depth=3)
    s = layout.shape_of(layout.PAPER, 20, 10, 3, 1, True, 16, 2)
    caches = layout.backward_of, recurrence._plan
    for rows, capacity in ((6 * 310, 6), (1, 3)):
        monkeypatch.setattr(layout, "_STASH_ROWS", rows)
        for each in caches:
            each.cache_clear()
        assert layout.backward_of(s).capacity == capacity
        check(problem)
    for each in caches:
        each.cache_clear()


# And the bytes of a register with them.
FEATURES = {"avx512f avx": 64, "avx": 32, "": 16}


def as_another(features: str, script: str) -> str:
    """What another processor would be given, on this one."""
    first = f"""
        import llvmlite.binding as llvm
        from numba import njit
        njit(lambda: 0)()  # numba asks, too, and is to be told the truth
        llvm.get_host_cpu_features = lambda: dict.fromkeys({features.split()}, True)
    """
    return in_new_python(textwrap.dedent(first) + textwrap.dedent(script))


@pytest.mark.slow
@pytest.mark.parametrize("features", FEATURES)
def test_products_with_other_registers(features: str) -> None:
    out = as_another(
        features,
        """
        from helpers.vector_products import largest_error, registers
        print(*registers(), largest_error())
        """,
    )
    size, _, wrong = out.split()
    assert int(size) == FEATURES[features]
    assert float(wrong) < 1e-5


def test_threads_that_come_too_late_are_not_waited_for() -> None:
    problem = cast(make_problem("paper", H=20, sizes=[40] * 9, depth=6), torch.float32)
    expected, busy, threads = everything(problem), threading.Event(), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for _ in range(pool._threads + 4):
            pool._jobs.put((partial(busy.wait, 60), SimpleQueue()))  # type: ignore[arg-type]
        with ThreadPoolExecutor(1) as executor:
            assert executor.submit(everything, problem).result(30) == expected
    finally:
        busy.set()
        torch.set_num_threads(threads)
    assert everything(problem) == expected


def in_new_python(script: str, **environment: str) -> str:
    paths = [str(Path(__file__).parent), *sys.path]
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.slow
def test_a_forked_child_runs_too() -> None:
    out = in_new_python("""
        import os, torch
        from test_ops_cpu import cast, make_problem, prepared
        torch.set_num_threads(2)
        run = prepared(cast(make_problem("paper", H=20, sizes=[40] * 9, depth=6), torch.float32))
        everything = lambda: [array.tobytes() for arrays in run() for array in arrays]
        expected = everything()
        child = os.fork()
        same = everything() == expected
        if child == 0:
            os._exit(0 if same else 3)
        print(same, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert out.split() == ["True", "0"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["gone", "never"])
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, folder: str) -> None:
    (tmp_path / "kernel_in_a_file.py").write_text("def kernel(x):\n    x[0] = 2.0\n")
    (tmp_path / "file").write_text("")
    cache = tmp_path / ("cache" if folder == "gone" else "file/cache")
    out = in_new_python(
        f"""
        import pathlib, shutil, sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from kernel_in_a_file import kernel
        from eirehn.ops.cpu.kernels import Kernel
        compiled = Kernel(kernel, "stamp")
        cache = pathlib.Path({str(cache)!r})
        if cache.exists():  # found writable, and then taken away
            shutil.rmtree(cache)
            cache.write_text("")
        x = np.zeros(1)
        compiled(x)
        print(x[0])
        """,
        NUMBA_CACHE_DIR=str(cache),
    )
    assert out.split() == ["2.0"]


def test_what_does_not_fit_is_refused() -> None:
    problem = make_problem("paper", H=6, sizes=[7] * 3)
    kind, tied = kernel_parameters(problem.cells[0])
    u = problem.cells[0].project(problem.x[0])
    parameters, *rest = arrays(problem, [u], [tied])
    for wrong in ({"P_bar": parameters.P_bar[..., :2]}, {"alpha": None}, {"b": parameters.b.astype(np.float32)}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            cpu.forward(kind, parameters._replace(**wrong), *rest, max_depth=3)
    with pytest.raises(ValueError, match="u must"):
        cpu.forward(kind, parameters, rest[0][:, 1:], *rest[1:], max_depth=3)
    with pytest.raises(ValueError, match="batch_sizes"):
        cpu.forward(kind, parameters, *rest[:3], np.array([7, 6, 8]), max_depth=3)


def test_read_only_and_strided_arrays() -> None:
    problem = make_problem("paper", H=6, sizes=[7] * 3)
    kind, tied = kernel_parameters(problem.cells[0])
    u = problem.cells[0].project(problem.x[0])
    parameters, u_array, h0, mask, sizes = arrays(problem, [u], [tied])
    expected = cpu.forward(kind, parameters, u_array, h0, mask, sizes, max_depth=3)
    for array in (parameters.W_h, sizes, h0):
        array.flags.writeable = False
    doubled = np.repeat(parameters.alpha, 2, axis=-1)[:, ::2]
    found = cpu.forward(kind, parameters._replace(alpha=doubled), u_array, h0, mask, sizes, max_depth=3)
    assert np.array_equal(found.out, expected.out)


def test_importing_compiles_nothing() -> None:
    assert in_new_python("import sys, eirehn.ops.cpu; print('numba' in sys.modules)").split() == ["False"]


@pytest.mark.parametrize(("dtype", "wide"), [(np.float32, np.float64), (np.float64, np.longdouble)])
@pytest.mark.parametrize("half", [False, True])
def test_functions_to_the_last_places(dtype: Any, wide: Any, half: bool) -> None:
    from helpers.vector_functions import apply

    draw = np.random.default_rng(0)
    x = np.concatenate([draw.normal(size=4096) * scale for scale in (1e-4, 0.1, 1, 10)]).astype(dtype)
    exact = x.astype(wide)
    truths = np.tanh(exact), 1 / (1 + np.exp(-exact)), np.expm1(exact)
    for value, truth in zip(apply(x, half=half), truths, strict=True):
        assert (np.abs(value - truth) <= 3 * np.spacing(np.abs(truth).astype(dtype))).all()
    special = np.zeros(16, dtype)
    special[:6] = [np.nan, np.inf, -np.inf, -0.0, 1e4, -1e4]
    tanh, sigmoid, _ = apply(special, half=half)
    assert np.array_equal(tanh[:6], [np.nan, 1, -1, 0, 1, -1], equal_nan=True)
    assert np.signbit(tanh[3])
    assert np.array_equal(sigmoid[:6], [np.nan, 1, 0, 0.5, 1, 0], equal_nan=True)
