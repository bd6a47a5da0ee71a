"""Which block keeps which weights, and whether they fit.

Each block has a multiprocessor of its own. Some own 16 rows of the hypernetwork's z, the others a few hidden units,
and each keeps its rows of all weights in shared memory for the whole sequence. An RHN has a set of weights for
every inner step: those that do not fit are loaded, one after the other, before they are needed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..triton.large.weights import Sizes

MAX_BATCH = 32
MAX_UNITS = 16  # a tile of the tensor cores
ROWS = 16
_SPARE = 1024  # a product may read so far behind its weights, into results that nobody takes


class Plan(NamedTuple):
    """units: of a block, and how many blocks; row_blocks: with 16 rows of z each. slabs: warps whose sums have room
    side by side. kept: sets of weights that stay on the chip. memory: bytes of shared memory; others: of the other
    sets of all blocks."""

    units: int
    unit_blocks: int
    row_blocks: int
    slabs: int
    kept: int
    memory: int
    others: int = 0

    @property
    def blocks(self) -> int:
        return self.unit_blocks + self.row_blocks


@lru_cache(maxsize=256)
def plan(size: Sizes, processors: int, limit: int, threads: int, *, backward: bool) -> Plan | None:
    """The plan; None if the network does not fit `processors` blocks of `threads`, with `limit` bytes of shared
    memory each."""
    row_blocks = -(-size.ZP // ROWS)
    if not 1 <= size.B <= min(MAX_BATCH, threads // ROWS) or row_blocks >= processors:
        return None
    fewest = -(-size.HP // (processors - row_blocks))
    most = min(MAX_UNITS, threads // size.B)
    warps = threads // 32
    # Many units share one reading of the state; sums that have room for all warps need not be added in rounds.
    for slabs in (warps, warps // 2, warps // 4):
        for units in range(most, fewest - 1, -1):
            memory = _memory(size, units, slabs, sets(size), threads, backward)
            if memory <= limit:
                return Plan(units, -(-size.HP // units), row_blocks, slabs, sets(size), memory)
    units = max(fewest, ROWS // 2)  # both halves of fewer would not fill a tile, forward
    for slabs in (warps, warps // 2, warps // 4):
        for kept in range(sets(size) - 2 if units <= most else 0, 0, -1):
            memory = _memory(size, units, slabs, kept + 1, threads, backward)
            if memory <= limit:
                count = -(-size.HP // units)
                others = count * (sets(size) - kept) * _set(size, units)
                return Plan(units, count, row_blocks, slabs, kept, memory, others)
    return None


def sets(size: Sizes) -> int:
    return size.R if size.own else 1


def _memory(size: Sizes, units: int, slabs: int, places: int, threads: int, backward: bool) -> int:
    needs = _backward_needs(size, units, places, threads) if backward else _forward_needs(size, units, places)
    return max(fixed + slabs * samples(size.B) * wide * 4 for fixed, wide in needs) + _SPARE


def _set(size: Sizes, units: int) -> int:
    """Bytes of a block's part of one set of W_h, and of W_ah."""
    return (3 if size.elastic else 2) * blocks(size.HP) * units * 64


def _forward_needs(size: Sizes, units: int, places: int) -> list[tuple[int, int]]:
    """Bytes kept, and numbers a sample in the sums of the largest product, of a unit's block and of another."""
    halves, projections = 3 if size.elastic else 2, size.projected // size.HP
    constants = 2 * sets(size) + projections + (2 if size.gated else 0) + 3
    head = 16 + -(-constants * units // 4) * 16
    weights = places * _set(size, units) + projections * blocks(size.ZP) * units * 64
    return [(head + weights, max(halves, projections) * _pitch(units)), *_hyper_needs(size, 2)]


def _backward_needs(size: Sizes, units: int, places: int, threads: int) -> list[tuple[int, int]]:
    head = sets(size) * (4 if size.elastic else 2) * threads * 4 + -(-3 * units // 4) * 16
    weights = places * _set(size, units) + 2 * blocks(size.ZP) * units * 64
    wide = (2 if size.hyper else 1) * _pitch(units)
    return [(head + weights, wide), *_hyper_needs(size, size.projected // size.HP)]


def _hyper_needs(size: Sizes, parts: int) -> list[tuple[int, int]]:
    """`parts` vectors of HP go into z, besides z itself."""
    if not size.hyper:
        return []
    return [(ROWS * 4 + (parts * blocks(size.HP) + blocks(size.ZP)) * ROWS * 64, _pitch(ROWS))]


def board(size: Sizes, *, backward: bool) -> int:
    """Elements of both halves of the board, the memory in which the blocks exchange the state."""
    halves, projections = 3 if size.elastic else 2, size.projected // size.HP
    vectors = halves + projections if backward else 3 if size.hyper else 1
    return 2 * (vectors * blocks(size.HP) + blocks(size.ZP)) * samples(size.B) * 32


def blocks(k: int) -> int:
    return -(-k // 32)


def samples(batch: int) -> int:
    """The number of samples that kernels are compiled for, the same for several batch sizes."""
    return -(-batch // 4) * 4


def _pitch(each: int) -> int:
    """As in pieces.cu."""
    return each if 3 <= each % 8 <= 5 else (each + 3) // 8 * 8 + 4
