"""The CPU kernels against the plain path: outputs, depth and every gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from helpers.cpu_problems import (
    HYPER,
    SYSTEMS,
    arrays,
    cast,
    check,
    everything,
    from_inputs,
    make_problem,
    plain,
)
from helpers.quick import quick
from torch import Tensor

import eirehn.ops.cpu.recurrence as module
from eirehn.ops import cpu
from eirehn.ops.cpu import layout, runtime


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "poison", True)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("H", "X", "B", "T", "depth"),
    [
        (1, 1, 1, 1, 1),
        (3, 2, 7, 2, 3),
        (20, 2, 20, 17, 3),
        (33, 9, 7, 17, 10),
        (48, 9, 20, 2, 8),  # the additive update amplifies roundings too much at 10
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
    results = everything(problem)
    assert not results["depth"].any()
    assert torch.equal(results["out"], problem.h0.repeat(1, 3, 1))  # to the bit


def test_an_rhn_may_be_cut_short() -> None:
    check(make_problem("RHN", H=6, sizes=[7] * 3, depth=4)._replace(depth=2))


def test_alpha_beyond_its_limit() -> None:
    problem = make_problem("paper", H=6, sizes=[7] * 3)
    with torch.no_grad():
        problem.cells[0].alpha_hat[:2] = 1000.0
    check(problem)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("where", ["x", "h0"])
@pytest.mark.parametrize("sizes", [[5] * 4, [5, 5, 4, 2]], ids=["plain", "packed"])
def test_nan_stays_in_its_sample(system: str, where: str, sizes: list[int]) -> None:
    problem = make_problem(system, H=6, sizes=sizes)
    bad = getattr(problem, where).clone()
    bad[0, 3] = torch.nan  # at the first time step of sample 3
    dirty_problem = problem._replace(**{where: bad})
    clean, dirty = everything(problem, from_inputs), everything(dirty_problem, from_inputs)
    expected = plain(dirty_problem, dirty_problem.x, dirty_problem.h0)[0]
    assert torch.equal(dirty["out"].isnan(), expected.isnan())
    assert expected.isnan().any()
    others = np.concatenate([np.arange(b) for b in sizes]) != 3
    for name in ("out", "depth", "d x"):
        assert torch.equal(dirty[name][0, others], clean[name][0, others])
    assert torch.equal(dirty["d h0"][0, [0, 1, 2, 4]], clean["d h0"][0, [0, 1, 2, 4]])


def test_a_member_does_not_see_the_others() -> None:
    problem = cast(make_problem("paper", H=20, sizes=[40] * 3, E=3), torch.float32)
    second = {name: each[1:2] for name, each in problem._asdict().items() if isinstance(each, Tensor)}
    alone = everything(problem._replace(cells=problem.cells[1:2], **second))
    together = everything(problem)
    assert all(torch.equal(together[name][1:2], alone[name]) for name in ("out", "depth"))


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
    run = cpu.Recurrence(*arrays(problem), max_depth=problem.depth)
    assert run._span(threads) == 16  # so that its gradients do not depend on how many there are
    monkeypatch.setattr(module, "_SUMS", 1)
    assert run._span(threads) == span


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("system", quick("paper", of=SYSTEMS))
def test_tiles_of_half_the_lanes(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(system, H=20, sizes=[20, 20, 13, 9, 8, 1], depth=3, masked=True)
    whole = everything(cast(problem, torch.float32))
    spans, span_of = [], cpu.Recurrence._span

    def span(self: cpu.Recurrence, threads: int) -> int:
        spans.append(span_of(self, threads))
        return spans[-1]

    monkeypatch.setattr(module, "_SUMS", 1)
    monkeypatch.setattr(module, "_ALONE_NS", 0.0)
    monkeypatch.setattr(cpu.Recurrence, "_span", span)
    half = everything(cast(problem, torch.float32))
    assert spans == [8, 8]
    # To the bit, but for what is summed over samples.
    assert all(torch.equal(whole[name], half[name]) for name in ("out", "depth", "d x", "d h0"))
    check(problem)


def test_a_stash_that_is_full_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a large network is: after two time steps of three inner ones each, and after one."""
    problem = make_problem("paper", H=20, sizes=[20] * 7, depth=3)
    s = layout.shape_of(layout.PAPER, 20, 10, 3, 1, True, 16, 2)
    caches = layout.backward_of, module._plan
    for rows, capacity in ((6 * 310, 6), (1, 3)):
        monkeypatch.setattr(layout, "_STASH_ROWS", rows)
        for each in caches:
            each.cache_clear()
        assert layout.backward_of(s).capacity == capacity
        check(problem)
    for each in caches:
        each.cache_clear()


def test_what_does_not_fit_is_refused() -> None:
    kind, weights, *rest = arrays(make_problem("paper", H=6, sizes=[7] * 3))
    for wrong in ({"P_bar": weights.P_bar[..., :2]}, {"alpha": None}, {"b": weights.b.astype(np.float32)}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            cpu.Recurrence(kind, weights._replace(**wrong), *rest, max_depth=3)
    with pytest.raises(ValueError, match="u must"):
        cpu.Recurrence(kind, weights, rest[0][:, 1:], *rest[1:], max_depth=3)
    with pytest.raises(ValueError, match="batch_sizes"):
        cpu.Recurrence(kind, weights, *rest[:3], np.array([7, 6, 8]), max_depth=3)


def test_read_only_and_strided_arrays() -> None:
    kind, weights, *rest = arrays(make_problem("paper", H=6, sizes=[7] * 3))
    expected = cpu.Recurrence(kind, weights, *rest, max_depth=3).forward()
    for array in (weights.W_h, rest[1], rest[-1]):
        array.flags.writeable = False
    strided = weights._replace(alpha=np.repeat(weights.alpha, 2, axis=-1)[:, ::2])
    found = cpu.Recurrence(kind, strided, *rest, max_depth=3).forward()
    assert np.array_equal(found.out, expected.out)
