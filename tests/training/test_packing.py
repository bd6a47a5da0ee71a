"""Weights in few bits, against the definition: the nearest of so many even steps up to the largest of a row."""

from __future__ import annotations

import math
import tracemalloc
import zlib

import numpy as np
import pytest
import torch

from eirehn.training.packing import packed, shape_of, unpacked


@pytest.mark.parametrize("bits", [8, 9, 10, 11, 12, 14, 16])
@pytest.mark.parametrize("shape", [(2, 300, 50), (20_001,), (1, 3, 7_777)])
def test_the_nearest_step(bits: int, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    value = random.standard_normal(shape) * 10.0 ** random.integers(-6, 6, (*shape[:-1], 1))
    if len(shape) == 3:
        value[0, 1] = 0.0
    steps = 2 ** (bits - 1) - 1
    largest = np.abs(value).max(-1, keepdims=True)
    expected = np.rint(value / np.where(largest > 0, largest, 1.0) * steps) / steps * largest
    back = unpacked(packed(torch.from_numpy(value), bits)).numpy()
    np.testing.assert_allclose(back, expected, rtol=1e-12, atol=0)
    single = unpacked(packed(torch.from_numpy(value).float(), bits))
    assert single.dtype == torch.float32
    assert (np.abs(single.double().numpy() - value) <= largest * (0.5 / steps + 1e-6)).all()


def test_beside_another() -> None:
    """A difference is as exact as it is small."""
    torch.manual_seed(0)
    other = torch.randn(200, 100, dtype=torch.float64)
    value = other + 1e-3 * torch.randn(200, 100, dtype=torch.float64)
    before = value.clone()
    back = unpacked(packed(value, 8, other), other)
    assert torch.equal(value, before)
    assert (back - value).abs().max() <= (value - other).abs().max() * 0.5 / 127 * (1 + 1e-9)
    assert torch.equal(unpacked(packed(other, 8, other), other), other)


def test_short_ones_and_integers_are_as_they_are() -> None:
    short = torch.randn(1, 5000)
    assert torch.equal(unpacked(packed(short, 8)), short)
    assert torch.equal(unpacked(packed(short, 8, torch.ones(1, 5000)), torch.ones(1, 5000)), short)
    whole = torch.arange(100_000)
    assert torch.equal(unpacked(packed(whole)), whole)


def test_frequent_values_take_little_room() -> None:
    """As little as Shannon says, nearly: the entropy of the first eight bits, and all of the others."""
    value = torch.randn(100, 5000, generator=torch.Generator().manual_seed(0))
    content = packed(value, 12)
    steps = np.rint(value.double().numpy() / content["scale"].double().numpy()).astype(int) + 2047
    counts = np.bincount((steps >> 4).ravel(), minlength=256)
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log2(shares)).sum()
    assert entropy < 7.3
    assert content["high"].numel() * 8 / value.numel() == pytest.approx(entropy, rel=0.02)
    assert content["low"].numel() == math.ceil(value.numel() / 8) * 4
    assert packed(torch.zeros(100, 5000), 8)["high"].numel() < 10_000


def test_no_more_room_is_taken_than_the_shape_says() -> None:
    content = packed(torch.randn(100, 200), 8)
    assert shape_of(content) == shape_of({"exact": torch.zeros(100, 200)}) == (100, 200)
    bomb = np.frombuffer(bytearray(zlib.compress(bytes(50_000_000))), np.uint8)
    tracemalloc.start()
    try:
        with pytest.raises(RuntimeError, match="shape"):
            unpacked({**content, "high": torch.from_numpy(bomb)})
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
