"""Which backend runs a call: what was asked for, what can, and what is said where it cannot."""

import threading
from collections import deque

import pytest
import torch

import eirehn
from eirehn.ops.dispatch import HAS_TRITON, backend_for, chosen_backend, obstacle


@pytest.fixture(autouse=True)
def _cpu_kernels(_plain_path):
    with eirehn.use_backend("cpu"):
        yield


def test_a_named_backend_that_cannot_serve_says_why():
    x = torch.randn(3, 2, 2)
    with pytest.raises(ValueError, match="backend 'cpu' cannot run this ACTCell: ACT has no fused form"):
        eirehn.ACT(2, 3)(x)
    with pytest.raises(ValueError, match="weight_update 'outer' has no fused form"):
        eirehn.EIREHN(2, 3, weight_update="outer")(x)
    with pytest.raises(ValueError, match=r"it takes float32 and float64, got torch.bfloat16"):
        eirehn.EIREHN(2, 3, dtype=torch.bfloat16)(x.bfloat16())
    with pytest.raises(ValueError, match=r"torch.func.grad, jvp and forward-mode gradients need the plain path"):
        torch.func.grad(lambda x: eirehn.EIREHN(2, 3)(x)[0].sum())(x)
    with eirehn.use_backend("triton"), pytest.raises(ValueError, match="backend 'triton' cannot run"):
        eirehn.EIREHN(2, 300)(x)


@pytest.mark.parametrize(
    ("hidden", "dtype", "message"),
    [
        (128, torch.bfloat16, "it takes a hidden_size of 129 to 2048, got 128"),
        (300, torch.float32, "it takes bfloat16, or float32 under autocast to bfloat16, got torch.float32"),
        (300, torch.bfloat16, "it needs an NVIDIA GPU of compute capability 9.0 or later"),
    ],
)
def test_what_the_cuda_kernels_are_for(hidden, dtype, message):
    if not HAS_TRITON:
        pytest.skip("triton is not installed")
    layer = eirehn.SREHN(2, hidden, dtype=dtype)
    with (
        eirehn.use_backend("cuda"),
        pytest.raises(ValueError, match=f"backend 'cuda' cannot run this .*: {message}"),
    ):
        layer(torch.randn(3, 2, 2, dtype=dtype))


def test_auto_falls_back_without_a_word(recwarn):
    x = torch.randn(3, 2, 2)
    with eirehn.use_backend("auto"):
        eirehn.ACT(2, 3)(x)
        eirehn.EIREHN(2, 3, weight_update="outer")(x)
        eirehn.EIREHN(2, 3, dtype=torch.bfloat16)(x.bfloat16())
        assert eirehn.EIREHN(2, 3)(torch.randn(3, 0, 2))[0].shape == (3, 0, 3)
        assert backend_for(eirehn.EIREHN(2, 3).cells[0], x) == "cpu"
        assert backend_for(eirehn.EIREHN(2, 1200).cells[0], x) == "reference"
    assert not recwarn


def test_use_backend_nests_and_refuses_unknown_names(monkeypatch):
    assert chosen_backend() == "cpu"
    with eirehn.use_backend("reference"):
        assert chosen_backend() == "reference"
        with pytest.raises(ValueError, match="must be one of auto, reference, cpu, triton, cuda, got 'gpu'"):
            eirehn.use_backend("gpu")
        assert chosen_backend() == "reference"
    assert chosen_backend() == "cpu"
    monkeypatch.setattr("eirehn.ops.dispatch._asked", deque())
    monkeypatch.setattr("eirehn.ops.dispatch._chosen", None)
    assert chosen_backend() == "auto"
    monkeypatch.setenv("EIREHN_BACKEND", "reference")
    assert chosen_backend() == "reference"
    monkeypatch.setenv("EIREHN_BACKEND", "fast")
    with pytest.raises(ValueError, match=r"EIREHN_BACKEND must be one of .*, got 'fast'"):
        chosen_backend()


def test_blocks_of_several_threads_end_in_any_order():
    """The first to begin is the first to end."""
    within, ended = threading.Event(), threading.Event()

    def first():
        with eirehn.use_backend("reference"):
            within.wait(10)
        ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    with eirehn.use_backend("auto"):
        within.set()
        assert ended.wait(10)
        assert chosen_backend() == "auto"
    thread.join()
    assert chosen_backend() == "cpu"


@pytest.mark.slow
def test_compiled_code_depends_on_the_choice_alone(monkeypatch):
    """Not on how often there was one: dynamo gives up after some that it takes for different."""
    monkeypatch.setattr("eirehn.ops.dispatch._asked", deque(maxlen=1024))
    monkeypatch.setattr("eirehn.ops.dispatch._chosen", None)
    compiled = []

    def count(module, _):
        compiled.append(module)
        return module.forward

    def read(x):
        with eirehn.use_backend("reference"):
            y = layer(x)[0]
        return layer(x)[0] + y

    layer, x = eirehn.EIREHN(2, 3), torch.randn(4, 2, 2)
    torch.compiler.reset()
    fast = torch.compile(read, backend=count, fullgraph=True)
    expected = read(x)
    for index in range(12):
        eirehn.use_backend(("reference", "cpu")[index % 2])
        torch.testing.assert_close(fast(x), expected)
        assert chosen_backend() == ("reference", "cpu")[index % 2]
    assert len(compiled) <= 2


def test_a_block_after_another_with_the_same():
    asked = eirehn.use_backend("reference")
    for _ in range(2):
        with asked:
            assert chosen_backend() == "reference"
        assert chosen_backend() == "cpu"


def test_what_is_set_for_the_process_stays(monkeypatch):
    monkeypatch.setattr("eirehn.ops.dispatch._asked", deque(maxlen=4))
    monkeypatch.setattr("eirehn.ops.dispatch._chosen", None)
    for name in ("reference", "auto") * 4:
        eirehn.use_backend(name)
    with eirehn.use_backend("cpu"):
        assert chosen_backend() == "cpu"
    assert chosen_backend() == "auto"


def test_obstacle_names_a_device_that_does_not_match():
    cell = eirehn.EIREHNCell(2, 3)
    assert "meta" in (obstacle("cpu", cell, torch.empty(3, 2, device="meta")) or "")
