"""Weights in few bits: each row of a matrix as integers of so many bits and one scale.

Their first eight bits are written by how often each value of them occurs: of weights that are spread as a bell that
saves about one bit of each, of differences that are mostly zero nearly all. The others are as good as random.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

SHORT = 1 << 14
"""Numbers that a tensor may have to be kept as it is."""


def packed(value: Tensor, bits: int = 16, beside: Tensor | None = None) -> dict[str, Any]:
    """A tensor of rows, or how it differs from the one `beside` it; one that is short as it is."""
    if value.numel() <= SHORT or not value.is_floating_point():
        return {"exact": value.cpu()}
    rows = value.cpu().double() if beside is None else value.cpu().double() - beside
    largest = 2 ** (bits - 1) - 1
    scale = rows.abs().amax(-1, keepdim=True) / largest
    numbers = (rows / torch.where(scale > 0, scale, 1.0)).round().to(torch.int32).numpy() + largest
    high, low = numbers >> (bits - 8), numbers & (2 ** (bits - 8) - 1)
    planes = [np.packbits((low >> plane & 1).astype(np.uint8)) for plane in range(bits - 8)]
    by_frequency = zlib.compressobj(strategy=zlib.Z_RLE)
    return {
        "bits": bits,
        "shape": list(value.shape),
        "high": _bytes(by_frequency.compress(high.astype(np.uint8).tobytes()) + by_frequency.flush()),
        "low": _bytes(b"".join(plane.tobytes() for plane in planes)),
        "scale": scale.to(value.dtype),
    }


def shape_of(content: Mapping[str, Any]) -> tuple[int, ...]:
    """Of what was packed, before any room is taken for it."""
    whole = content.get("exact", content.get("numbers"))
    return tuple(content["shape"] if whole is None else whole.shape)


def unpacked(content: Mapping[str, Any], beside: Tensor | None = None) -> Tensor:
    """What `packed` made so, to rounding."""
    if "exact" in content:
        return content["exact"]  # type: ignore[no-any-return]
    scale = content["scale"]
    rows = (content["numbers"] if "numbers" in content else _numbers(content)).double() * scale.double()
    return (rows if beside is None else rows + beside).to(scale.dtype)  # type: ignore[no-any-return]


def _numbers(content: Mapping[str, Any]) -> Tensor:
    bits, shape = content["bits"], content["shape"]
    count = int(np.prod(shape))
    # No more than there can be, whatever a damaged or hostile file would grow to.
    high = np.frombuffer(zlib.decompressobj().decompress(content["high"].numpy().tobytes(), count + 1), np.uint8)
    numbers = high.astype(np.int32) << (bits - 8)
    for plane, packed_bits in enumerate(content["low"].view(bits - 8, -(-count // 8)).numpy()):
        numbers |= np.unpackbits(packed_bits, count=count).astype(np.int32) << plane
    return torch.from_numpy(numbers - (2 ** (bits - 1) - 1)).view(shape)


def _bytes(content: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(bytearray(content), np.uint8))
