"""The CPU kernel for one sample against the equations in NumPy, and when it serves."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from helpers.processes import FEATURES, as_another, in_new_python
from helpers.quick import quick
from helpers.systems import FUSED, draw, make, moderate, oracle_run, stream_of
from torch import Tensor, nn

import eirehn
from eirehn.ops.cpu import call, runtime
from eirehn.ops.dispatch import backend_for


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the kernel took what it was asked to, call by call. What nothing was written to is NaN."""
    calls: list[bool] = []
    original = call.stream

    def spy(*args: Any, **options: Any) -> Any:
        found = original(*args, **options)
        calls.append(found is not None)
        return found

    monkeypatch.setattr(call, "stream", spy)
    monkeypatch.setattr(runtime, "poison", True)
    return calls


def run(layer: Any, x: Tensor, hx: Tensor, **options: Any) -> list[Tensor]:
    with torch.no_grad(), eirehn.use_backend("cpu"):
        return list(layer(x, hx, return_depth=True, return_cost=True, **options))


# Sizes below, at and beyond what a register holds.
SIZES = [(1, 1), (2, 3), (17, 8), (9, 20), (4, 4), (16, 16), (33, 37)]
CASES = [(name, *size, {}) for name in FUSED for size in SIZES]
CASES += [(f"EIREHN-{each}", 3, 5, {"hyper_size": Z}) for each in ("paper", "additive") for Z in (1, 3, 30)]


@pytest.mark.parametrize(("name", "X", "H", "more"), CASES)
def test_it_follows_the_equations(name: str, X: int, H: int, more: dict[str, int], served: list[bool]) -> None:
    layer = moderate(name, X, H, **more)
    x, hx = draw(layer, 4, 1)
    for options in ({}, {"max_depth": 2}):
        out, h_n, depth, cost = run(layer, x, hx, **options)
        truth = oracle_run(name, layer, 0, x, hx[0], **options)
        assert np.array_equal(depth[0].numpy(), truth.depth)
        for ours, theirs in ((out, truth.out), (h_n[0], truth.out[-1]), (cost[0], truth.cost)):
            assert np.abs(ours.numpy() - theirs).max() <= 1e-12
    assert served == [True] * 2


@pytest.mark.parametrize("name", quick("RHN", "EIREHN-paper", of=FUSED))
def test_in_single_precision_and_backwards(name: str, served: list[bool]) -> None:
    layer = moderate(name, 5, 23, bidirectional=True, num_layers=2)
    x, hx = draw(layer, 6, 1)
    whole = run(layer, x, hx)
    with eirehn.use_backend("reference"), torch.no_grad():
        plain = layer(x, hx, return_depth=True, return_cost=True)
        theirs = layer.float()(x.float(), hx.float(), return_depth=True, return_cost=True)
    ours = run(layer, x.float(), hx.float())
    assert served == [True] * 8
    for double, truth in zip(whole, plain, strict=True):
        assert (double - truth).abs().max() <= 1e-12
    assert torch.equal(ours[2], theirs[2])
    bound = max((each - truth).abs().max().item() for each, truth in zip(theirs, plain, strict=True))
    for single, truth in zip(ours, plain, strict=True):
        assert (single - truth).abs().max() <= max(3 * bound, 1e-6)


@pytest.mark.parametrize(("dtype", "alpha"), [(torch.float32, 87.5), (torch.float64, 1000.0)])
def test_alpha_beyond_its_limit(dtype: torch.dtype, alpha: float, served: list[bool]) -> None:
    layer = moderate("EIREHN-paper", 3, 5)
    x, hx = (each.to(dtype) for each in draw(layer, 4, 1))
    with torch.no_grad():
        layer.to(dtype).cells[0].alpha_hat[:2] = alpha
        layer.cells[0].b_a[:2] = -1000.0  # d = β at the first inner step, and far below 0 at the next
        with eirehn.use_backend("reference"):
            truth = layer(x, hx, return_depth=True, return_cost=True)
    ours = run(layer, x, hx)
    assert served == [True]
    for one, other in zip(ours, truth, strict=True):
        assert torch.allclose(one.double(), other.double(), rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-12)


def test_without_a_gradient_to_come_it_serves_where_gradients_are_on(served: list[bool]) -> None:
    layer = make("EIREHN-paper", 2, 5).requires_grad_(False)
    x, hx = draw(layer, 3, 1)
    with eirehn.use_backend("cpu"):
        out = layer(x, hx)[0]
        assert served == [True]
        layer.requires_grad_(True)
        assert torch.allclose(layer(x, hx)[0], out, rtol=0, atol=1e-13)
    assert served == [True]  # not asked


def test_what_it_is_not_for(served: list[bool]) -> None:
    layer = make("EIREHN-paper", 2, 5, hidden_dropout=0.5)
    x, hx = draw(layer, 3, 2)
    run(layer.eval(), x, hx)  # two samples
    assert served == []
    run(layer.train(), x[:, :1], hx[:, :1])  # dropout
    assert served == [False]
    twice = torch.func.stack_module_state([layer.eval(), layer])
    with torch.no_grad(), eirehn.use_backend("cpu"):
        torch.vmap(lambda p: torch.func.functional_call(layer, p, (x[:, :1], hx[:, :1]))[0])(twice[0])
    assert served == [False]


def test_weights_that_do_not_fit_are_refused(served: list[bool]) -> None:
    """As they are for more samples, and not read beyond their end."""
    layer = make("EIREHN-paper", 2, 5)
    x, hx = draw(layer, 3, 1)
    cell = layer.cells[0]
    for name in ("W_ah", "P_bar", "s_0", "b"):
        kept = getattr(cell, name)
        setattr(cell, name, nn.Parameter(kept.detach()[:-1].clone()))
        with pytest.raises(ValueError, match="must have the shape"):
            run(layer, x, hx)
        setattr(cell, name, kept)
    cell.b_z = nn.Parameter(cell.b_z.detach().float())
    with pytest.raises(ValueError, match="must be of float64"):
        run(layer, x, hx)
    assert served == [False] * 5


def test_changed_weights_are_seen_at_once(served: list[bool]) -> None:
    """Also where torch does not count the change."""
    layer = make("EIREHN-paper", 2, 5)
    x, hx = draw(layer, 3, 1)
    run(layer, x, hx)
    layer.cells[0].W_h.data.mul_(0.5)
    out, *_ = run(layer, x, hx)
    assert served == [True] * 2
    assert np.abs(out.numpy() - oracle_run("EIREHN-paper", layer, 0, x, hx[0]).out).max() <= 1e-12


def test_it_streams(served: list[bool]) -> None:
    """Step by step as all at once, to the bit."""
    layer = make("EIREHN-recursive", 3, 20)
    x, hx = draw(layer, 7, 1)
    whole, last, *_ = run(layer, x, hx)
    steps = []
    for t in range(7):
        out, hx, *_ = run(layer, x[t : t + 1], hx)
        steps.append(out)
    assert torch.equal(torch.cat(steps), whole)
    assert torch.equal(hx, last)
    assert all(served)


@pytest.mark.parametrize("name", quick("SREHN", "EIREHN-paper", of=FUSED))
def test_nan_goes_where_it_goes_in_the_plain_path(name: str, served: list[bool]) -> None:
    layer = make(name, 3, 20)
    x, hx = draw(layer, 4, 1)
    x[1, 0, 1] = torch.nan
    out, *_ = run(layer, x, hx)
    with eirehn.use_backend("reference"), torch.no_grad():
        plain, *_ = layer(x, hx)
    assert torch.equal(out.isnan(), plain.isnan())
    assert out.isnan().any()
    assert all(served)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("weight", ["W_h", "W_ah", "P", "W_zg", "b"])
@pytest.mark.parametrize("update", ["paper", "scaling"])
def test_what_is_no_number_in_the_last_place_of_a_weight(
    value: float, weight: str, update: str, served: list[bool]
) -> None:
    """What fills up a register has no part in it."""
    layer = make(f"EIREHN-{update}", 3, 21)
    x, hx = draw(layer, 4, 1)
    with torch.no_grad(), eirehn.use_backend("reference"):
        getattr(layer.cells[0], weight).view(-1)[-1] = value
        plain = layer(x, hx, return_depth=True, return_cost=True)
    for ours, theirs in zip(run(layer, x, hx), plain, strict=True):
        assert torch.allclose(ours.double(), theirs.double(), rtol=0, atol=1e-11, equal_nan=True)
    assert served == [True]


def test_what_has_no_memory_of_its_own_does_not_reach_it() -> None:
    layer, rhn = make("EIREHN-paper", 2, 5), make("RHN", 2, 5)
    (x, hx), cell = draw(layer, 3, 1), layer.cells[0]
    assert stream_of(layer, x[:, 0], hx[0]) is not None
    assert stream_of(layer, x[:, 0], torch.zeros(2, 5, dtype=x.dtype)) is None
    assert stream_of(rhn, x[:, 0], hx[0], max_depth=4) is not None
    assert stream_of(rhn, x[:, 0], hx[0], max_depth=5) is None  # it has four inner steps
    rhn.cells[0].W_h, rhn.cells[0].b = (
        nn.Parameter(each[:0].detach()) for each in (rhn.cells[0].W_h, rhn.cells[0].b)
    )
    assert stream_of(rhn, x[:, 0], hx[0]) is None
    kept = cell.W_z.detach()
    gone = kept.clone()
    gone.untyped_storage().resize_(0)
    turned = kept.T.contiguous().T  # its numbers do not lie in order
    for each in (turned, kept.to("meta"), torch._neg_view(kept), kept.as_subclass(Named), gone):
        del cell.W_z
        cell.W_z = each
        assert stream_of(layer, x[:, 0], hx[0]) is None


class Named(Tensor):
    pass


def test_large_networks_stream_by_it_and_are_trained_by_the_plain_path(served: list[bool]) -> None:
    """They take the plain path, too, where weights are not plain memory, and under dropout and vmap."""
    layer = eirehn.EIREHN(2, 700, max_depth=2)
    x, cell = torch.randn(3, 1, 2), layer.cells[0]
    named: list[str] = []

    def of_each(x: Tensor) -> Tensor:
        named.append(backend_for(cell, x, one_sample=True))
        return x

    with torch.no_grad(), eirehn.use_backend("auto"):
        expected = layer(x)[0]
        assert served == [True]
        kept = cell.W_ah.detach()
        for each in (torch._neg_view(-kept), kept.T.contiguous().T, kept):
            del cell.W_ah
            cell.W_ah = each
            assert torch.allclose(layer(x)[0], expected, rtol=0, atol=1e-5)
        assert served == [True] * 2
        torch.vmap(of_each)(x)
        assert named == ["reference"]
        assert backend_for(cell, x) == "reference"  # of several samples
        layer.hidden_dropout = 0.5
        layer(x)
    with eirehn.use_backend("auto"):
        layer(x)
        assert backend_for(cell, x, one_sample=True) == "reference"
    assert served == [True] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for pages that cannot be read")
def test_nothing_is_read_beyond_a_parameter() -> None:
    """Each ends where a page ends behind which nothing can be read, and another starts where such a page ends."""
    script = """
        import ctypes, mmap
        import torch
        import eirehn
        from helpers.systems import draw, make, stream_of

        PAGE, libc, kept = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True), []

        def fenced(value, at_end):
            size = value.numel() * value.element_size()
            pages = -(-size // PAGE)
            area = mmap.mmap(-1, (pages + 2) * PAGE)
            kept.append(area)
            address = ctypes.addressof(ctypes.c_char.from_buffer(area))
            for page in (0, pages + 1):
                assert libc.mprotect(ctypes.c_void_p(address + page * PAGE), PAGE, 0) == 0
            offset = PAGE + (pages * PAGE - size if at_end else 0)
            found = torch.frombuffer(area, dtype=value.dtype, count=value.numel(), offset=offset).view(value.shape)
            return torch.nn.Parameter(found.copy_(value))

        for name in ("RHN", "EIREHN-paper", "EIREHN-scaling"):
            for X, H in ((1, 1), (1, 3), (5, 20), (16, 16), (3, 37)):
                for dtype in (torch.float32, torch.float64):
                    layer = make(name, X, H).to(dtype)
                    x, hx = (each.to(dtype) for each in draw(layer, 3, 1))
                    with torch.no_grad(), eirehn.use_backend("cpu"):
                        expected = layer(x, hx)[0]
                        for at_end in (False, True):
                            for key, value in list(layer.cells[0].named_parameters()):
                                setattr(layer.cells[0], key, fenced(value.detach(), at_end))
                            assert stream_of(layer, x[:, 0], hx[0]) is not None
                            assert torch.equal(layer(x, hx)[0], expected)
        print("whole", flush=True)
        import os
        os._exit(0)  # the areas have views
    """
    assert in_new_python(script).strip() == "whole"


@pytest.mark.slow
@pytest.mark.parametrize("features", FEATURES)
def test_with_other_registers(features: str) -> None:
    out = as_another(
        features,
        """
        import torch
        import eirehn
        from eirehn.ops.cpu.simd import register_lanes
        from helpers.systems import draw, moderate, oracle_run
        wrong = {torch.float32: 0.0, torch.float64: 0.0}
        for dtype in wrong:
            for name in ("RHN", "SREHN", "EIREHN-paper", "EIREHN-scaling"):
                for size in ((1, 1), (3, 5), (8, 16), (9, 20)):
                    layer = moderate(name, *size)
                    x, hx = draw(layer, 4, 1)
                    truth = torch.from_numpy(oracle_run(name, layer, 0, x, hx[0]).out)
                    with torch.no_grad(), eirehn.use_backend("cpu"):
                        out = layer.to(dtype)(x.to(dtype), hx.to(dtype))[0]
                    wrong[dtype] = max(wrong[dtype], (out - truth).abs().max().item())
        print(register_lanes(4), *wrong.values())
        """,
    )
    lanes, single, double = out.split()
    assert 4 * int(lanes) == FEATURES[features]
    assert float(single) < 1e-5
    assert float(double) < 1e-12
