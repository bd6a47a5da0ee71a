"""Memory layouts: the packed weights, the scratch memory of a worker, the sums of gradients.

Nothing here needs numba. Offsets are counted in elements; a row is one value of each sample, `lanes` elements, or,
for one sample (`Single`), of `lanes` of its units.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import NamedTuple

ROW_BYTES = 64  # of a row of a whole tile: one register with AVX-512, two with AVX, four with NEON
BLOCK = 4  # rows of a weight panel, and both sides of a block of a weight gradient

# How the hypernetwork's state changes the product `W h`.
NONE, PAPER, RECURSIVE, ADDITIVE, SCALING, BOUNDED = range(6)
KINDS = {
    "none": NONE,
    "paper": PAPER,
    "recursive": RECURSIVE,
    "additive": ADDITIVE,
    "scaling": SCALING,
    "bounded": BOUNDED,
}
GATED = (PAPER, RECURSIVE, BOUNDED)

_STASH_ROWS = 80000  # rows of one worker's stash, 5 MB, unless the inner steps of one time step have more
_STASH_STEPS = 32  # beyond this many inner steps at once the products of weight gradients gain nothing


class Shape(NamedTuple):
    """The sizes of a call."""

    H: int
    Z: int  # 0 without a hypernetwork
    G: int  # rows of [P; P̄]: 4H where the update is gated, 2H where it is not, 0 without a hypernetwork
    R: int  # inner steps at most
    sets: int  # weight sets: R for an RHN, else 1
    kind: int
    elastic: bool
    lanes: int
    X: int = 0  # the width of the input where the kernels project it, 0 where they are given the projection

    @property
    def U(self) -> int:
        """Rows of the projected input."""
        return (3 if self.elastic else 2) * self.H


# Offsets, each with the size of the whole; the functions below say how much lies there, and of what.
Packed = namedtuple(
    "Packed",
    "W_h W_ah W_z P b b_z b_bar alpha e_alpha beta z1 w1 W_x b_a forward_size W_h_T W_ah_T W_z_T P_T W_x_T size",
)
Forward = namedtuple(
    "Forward",
    "h hm mask x u alpha_t d fall sgz wh wg wg1 c a tmp depth size z",
)
Steps = namedtuple("Steps", "H_step d_step H2_step G_step sgz_step z_step")
NO_STEPS = Steps(0, 0, 0, 0, 0, 0)
Single = namedtuple(
    "Single",
    "b b_a b_z b_bar alpha e_alpha beta W_h W_x W_ah W_ax W_zh W_zg W_z P P_bar h x u alpha_t d fall sg z z1 wh wg "
    "wg1 c a tmp depth size",
)
Backward = namedtuple(
    "Backward",
    "mask u alpha_t h d fall wh wg1 wg c a dh dhm dsgz dz dc da dpre dalpha_t tmp dx depth acc_b acc_alpha "
    "acc_beta acc_w1 acc_z1 acc_bz acc_bbar acc_ba acc_end hm dwh sgz dzp z dwg hp du x size capacity H_step "
    "d_step H2_step G_step sgz_step z_step U_step X_step",
)
Sums = namedtuple("Sums", "W_h W_ah W_z P b alpha beta w1 z1 b_z b_bar W_x b_a size")


def lanes_of(itemsize: int) -> int:
    """The lanes of a full tile of values of `itemsize` bytes."""
    return ROW_BYTES // itemsize


def padded(rows: int) -> int:
    return -(-rows // BLOCK) * BLOCK


@lru_cache(maxsize=64)
def shape_of(kind: int, H: int, Z: int, R: int, sets: int, elastic: bool, lanes: int, X: int = 0) -> Shape:
    G = 0 if kind == NONE else 4 * H if kind in GATED else 2 * H
    return Shape(H, Z, G, R, sets, kind, elastic, lanes, X)


@lru_cache(maxsize=64)
def parameter_shapes(s: Shape) -> dict[str, tuple[int, ...]]:
    """The shapes that the kernels expect of each member; they do not check them."""
    H, H2, Z = s.H, 2 * s.H, s.Z
    own = (s.sets,) if s.sets > 1 else ()
    shapes: dict[str, tuple[int, ...]] = {"W_h": (*own, H2, H), "b": (*own, H2)}
    if s.elastic:
        shapes |= {"W_ah": (H, H), "alpha": (H,), "beta": (H,)}
    if s.G:
        shapes |= {"z1": (Z,), "W_zs": (Z, H2), "W_z": (Z, Z), "b_z": (Z,), "P": (H2, Z)}
    if s.G > H2:
        shapes |= {"P_bar": (H2, Z), "b_bar": (H2,)}
    if s.X:
        shapes |= {"W_x": (s.U, s.X)} | ({"b_a": (H,)} if s.elastic else {})
    return shapes


def _place(sizes: dict[str, int]) -> dict[str, int]:
    """The offset of each, and the `size` of all."""
    offsets, place = {}, 0
    for name, size in sizes.items():
        offsets[name] = place
        place += size
    return {**offsets, "size": place}


@lru_cache(maxsize=64)
def packed_of(s: Shape) -> Packed:
    """The layout of the weights of one member, in the order of the products (`pack.pack`). The transposes, which
    the forward pass does not need, are last."""
    H, Z, G = s.H, s.Z, s.G
    A = H if s.elastic else 0
    first = {
        "W_h": s.sets * padded(2 * H) * H,
        "W_ah": padded(A) * H,
        "W_z": padded(Z) * (2 * H + Z),  # [W_zs | W_z]
        "P": padded(G) * Z,  # [P; P̄]
        "b": s.sets * 2 * H,
        "b_z": Z,
        "b_bar": 2 * H,
        "alpha": A,
        "e_alpha": A,
        "beta": A,
        "z1": Z,
        "w1": G,  # P z¹, then sigm(P̄ z¹ + b̄)
        "W_x": padded(s.U) * s.X,  # [W_x; W_ax]
        "b_a": A,
    }
    transposes = {
        "W_h_T": s.sets * padded(H) * 2 * H,
        "W_ah_T": padded(A) * H,
        "W_z_T": padded(2 * H + Z) * Z,
        "P_T": padded(Z) * G,
        "W_x_T": padded(s.X) * s.U,
    }
    return Packed(**_place(first | transposes), forward_size=sum(first.values()))


@lru_cache(maxsize=64)
def forward_of(s: Shape) -> Forward:
    """The layout of a worker's scratch memory in the forward pass, where an inner step overwrites the one
    before."""
    H, Z, G = s.H, s.Z, s.G
    rows = {
        "h": H,
        "hm": H,
        "mask": H,
        "x": s.X,
        "u": padded(s.U),
        "alpha_t": padded(H),
        "d": H,
        "fall": H,  # e^α (e^v − 1), so that d = max(β − fall, 0)
        "sgz": 2 * H + Z,  # s, ĝ and z behind one another: what the hypernetwork reads
        "wh": padded(2 * H),
        "wg": padded(G),
        "wg1": G,  # of the first inner step, the same at every time step
        "c": 2 * H if Z else 0,
        "a": 2 * H if Z else 0,
        "tmp": padded(Z),
        "depth": 1,
    }
    offsets = _place({name: n * s.lanes for name, n in rows.items()})
    return Forward(**offsets, z=offsets["sgz"] + 2 * H * s.lanes)


def single_of(s: Shape) -> Single:
    """The layout of the scratch memory of one sample, with units in the lanes; the last row of a vector is
    padded."""

    def rows(units: int) -> int:
        return -(-units // s.lanes)

    def left(count: int, columns: int) -> int:
        """A row for each row of a matrix: its values after the last full register, padded with zeros."""
        return count if columns % s.lanes else 0

    H, Z, A, gated = s.H, s.Z, s.H if s.elastic else 0, s.G > 2 * s.H
    h, z = rows(H), rows(Z)
    needed = {
        "b": s.sets * 2 * h,
        "b_a": h,
        "b_z": z,
        "b_bar": 2 * h,
        "alpha": h,
        "e_alpha": h,
        "beta": h,
        "W_h": left(s.sets * 2 * H, H),
        "W_x": left(2 * H, s.X),
        "W_ah": left(A, H),
        "W_ax": left(A, s.X),
        "W_zh": left(Z, H),
        "W_zg": left(Z, H),
        "W_z": left(Z, Z),
        "P": left(2 * H, Z),
        "P_bar": left(2 * H if gated else 0, Z),
        "h": h,
        "x": rows(s.X),
        "u": 3 * h,
        "alpha_t": h,
        "d": h,
        "fall": h,
        "sg": 2 * h,
        "z": z,
        "z1": z,
        "wh": 2 * h,
        "wg": 4 * h,
        "wg1": 4 * h,
        "c": 2 * h,
        "a": 2 * h,
        "tmp": z,
        "depth": 1,
    }
    return Single(**_place({name: n * s.lanes for name, n in needed.items()}))


def _step(rows: int) -> int:
    """An odd number of rows: steps a power of two apart would share one set of the cache."""
    return rows | 1


@lru_cache(maxsize=64)
def backward_of(s: Shape) -> Backward:
    """The layout of a worker's scratch memory in the backward pass, which keeps all inner steps, `…_step` apart."""
    H, Z, G, R = s.H, s.Z, s.G, s.R
    step = {  # H_step is that of h, fall, hm and hp, H2_step that of wh, dwh, c and a
        "H_step": _step(H),
        "d_step": _step(H) if s.elastic else 0,  # at fixed depth all gates are the same
        "H2_step": _step(padded(2 * H)),
        "G_step": _step(padded(G)),
        "sgz_step": _step(2 * H + Z),
        "z_step": _step(Z),
        "U_step": _step(s.U),
        "X_step": _step(s.X),
    }
    H_step, _, H2_step, G_step, sgz_step, z_step, U_step, X_step = step.values()
    per_step = 2 * H_step + H2_step + sgz_step + 2 * z_step + G_step + U_step + X_step
    capacity = max(R, min(_STASH_STEPS, _STASH_ROWS // per_step) // R * R)  # inner steps in the stash
    hyper = 1 if Z else 0
    rows = {
        "mask": H,
        "u": padded(s.U),
        "alpha_t": padded(H),
        "h": (R + 1) * H_step,
        "d": (R if s.elastic else 1) * H_step,
        "fall": R * H_step,
        "wh": R * H2_step,
        "wg1": G,
        "wg": (R - 1) * G_step,
        "c": hyper * (R + 1) * H2_step,
        "a": hyper * (R + 1) * H2_step,
        "dh": padded(H),
        "dhm": padded(H),
        "dsgz": padded(2 * H + Z),
        "dz": padded(Z),
        "dc": hyper * 2 * H,
        "da": hyper * 2 * H,
        "dpre": 2 * H,
        "dalpha_t": H,
        "tmp": padded(Z),
        "dx": padded(s.X),
        "depth": 1,
        "acc_b": s.sets * 2 * H,
        "acc_alpha": H,
        "acc_beta": H,
        "acc_w1": G,
        "acc_z1": Z,
        "acc_bz": Z,
        "acc_bbar": 2 * H,
        "acc_ba": H,
        "acc_end": 0,
        # The stash: what the weight gradients are products of.
        "hm": capacity * H_step,
        "dwh": capacity * H2_step,
        "sgz": (capacity + 1) * sgz_step,
        "dzp": capacity * z_step,
        "z": capacity * z_step,
        "dwg": capacity * G_step,
        "hp": capacity * H_step,
        "du": capacity * U_step,
        "x": capacity * X_step,
        "slack": BLOCK,  # read, not used, by the last block of `outer_sums`
    }
    offsets = _place({name: n * s.lanes for name, n in rows.items()})
    del offsets["slack"]
    return Backward(**offsets, **{name: n * s.lanes for name, n in step.items()}, capacity=capacity)


@lru_cache(maxsize=64)
def sums_of(s: Shape) -> Sums:
    """The layout of the sums of gradients. Matrices are stored in blocks (`products.outer_sums`)."""
    H, Z, G = s.H, s.Z, s.G
    A = H if s.elastic else 0
    sizes = {
        "W_h": s.sets * padded(2 * H) * padded(H),
        "W_ah": padded(A) * padded(A),
        "W_z": padded(Z) * padded(2 * H + Z),
        "P": padded(G) * padded(Z),
        "b": s.sets * 2 * H,
        "alpha": A,
        "beta": A,
        "w1": G,
        "z1": Z,
        "b_z": Z,
        "b_bar": 2 * H if G else 0,
        "W_x": padded(s.U) * padded(s.X),
        "b_a": A if s.X else 0,
    }
    return Sums(**_place(sizes))
