"""Where everything lies: the packed weights, the scratch memory of a worker, the sums of gradients.

Nothing here needs numba. Offsets are counted in elements; a row is one number of each sample, `lanes` elements, or
for one sample (`Single`) so many of its units.
"""

from __future__ import annotations

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
    """What a call is about, apart from its data."""

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


class Packed(NamedTuple):
    """Offsets into one member's packed weights. The transposes stand last: the forward pass has none."""

    W_h: int
    W_ah: int
    W_z: int  # [W_zs | W_z]
    P: int  # [P; P̄]
    b: int
    b_z: int
    b_bar: int
    alpha: int
    e_alpha: int
    beta: int
    z1: int
    w1: int  # P z¹, then sigm(P̄ z¹ + b̄)
    W_x: int  # [W_x; W_ax]
    b_a: int
    forward_size: int
    W_h_T: int
    W_ah_T: int
    W_z_T: int
    P_T: int
    W_x_T: int
    size: int


class Forward(NamedTuple):
    """Offsets into a worker's scratch memory in the forward pass."""

    h: int
    hm: int
    mask: int
    x: int
    u: int
    alpha_t: int
    d: int
    fall: int  # e^α (e^v − 1), so that d = max(β − fall, 0)
    sgz: int  # s, ĝ and z behind one another: what the hypernetwork reads
    wh: int
    wg: int
    wg1: int
    c: int
    a: int
    tmp: int
    size: int


class Single(NamedTuple):
    """Offsets into the scratch memory of one sample, whose units lie side by side; every vector fills its last row.
    First the parameters that are vectors, and those of whose rows something is left behind the last whole register:
    that, filled up with zeros, a register for each row."""

    b: int
    b_a: int
    b_z: int
    b_bar: int
    alpha: int
    e_alpha: int
    beta: int
    W_h: int
    W_x: int
    W_ah: int
    W_ax: int
    W_zh: int
    W_zg: int
    W_z: int
    P: int
    P_bar: int
    h: int
    x: int
    u: int
    alpha_t: int
    d: int
    fall: int
    sg: int
    z: int
    z1: int
    wh: int
    wg: int
    wg1: int
    c: int
    a: int
    tmp: int
    cost: int  # two rows
    size: int


class Backward(NamedTuple):
    """As `Forward`, for the backward pass. Steps in rows; `…_step` is what lies between two of a kind."""

    mask: int
    u: int
    alpha_t: int
    h: int
    d: int
    fall: int
    wh: int
    wg: int
    c: int
    a: int
    H_step: int  # of h, d, fall, hm and hp
    H2_step: int  # of wh, c and a
    G_step: int
    dh: int
    dhm: int
    dsgz: int
    dz: int
    dc: int
    da: int
    dpre: int
    dalpha_t: int
    tmp: int
    dx: int
    acc_b: int
    acc_alpha: int
    acc_beta: int
    acc_w1: int
    acc_z1: int
    acc_bz: int
    acc_bbar: int
    acc_ba: int
    acc_end: int
    capacity: int  # inner steps in the stash
    hm: int
    dwh: int
    sgz: int
    dzp: int
    z: int
    dwg: int
    hp: int
    du: int
    x: int
    sgz_step: int
    z_step: int
    U_step: int
    X_step: int
    size: int


class Sums(NamedTuple):
    """Offsets into the sums of gradients. Matrices lie in blocks (`products.outer_sums`)."""

    W_h: int
    W_ah: int
    W_z: int
    P: int
    b: int
    alpha: int
    beta: int
    w1: int
    z1: int
    b_z: int
    b_bar: int
    W_x: int
    b_a: int
    size: int


def lanes_of(itemsize: int) -> int:
    """Of a whole tile of numbers of so many bytes."""
    return ROW_BYTES // itemsize


def padded(rows: int) -> int:
    return -(-rows // BLOCK) * BLOCK


@lru_cache(maxsize=64)
def shape_of(kind: int, H: int, Z: int, R: int, sets: int, elastic: bool, lanes: int, X: int = 0) -> Shape:
    G = 0 if kind == NONE else 4 * H if kind in GATED else 2 * H
    return Shape(H, Z, G, R, sets, kind, elastic, lanes, X)


@lru_cache(maxsize=64)
def parameter_shapes(s: Shape) -> dict[str, tuple[int, ...]]:
    """What the kernels read of each member, without a check of their own."""
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


def _place(sizes: dict[str, int], start: int = 0) -> dict[str, int]:
    offsets, place = {}, start
    for name, size in sizes.items():
        offsets[name] = place
        place += size
    return {**offsets, "size": place}


@lru_cache(maxsize=64)
def packed_of(s: Shape) -> Packed:
    H, Z, G = s.H, s.Z, s.G
    A = H if s.elastic else 0
    first = _place(
        {
            "W_h": s.sets * padded(2 * H) * H,
            "W_ah": padded(A) * H,
            "W_z": padded(Z) * (2 * H + Z),
            "P": padded(G) * Z,
            "b": s.sets * 2 * H,
            "b_z": Z,
            "b_bar": 2 * H,
            "alpha": A,
            "e_alpha": A,
            "beta": A,
            "z1": Z,
            "w1": G,
            "W_x": padded(s.U) * s.X,
            "b_a": A,
        },
    )
    forward_size = first.pop("size")
    transposes = {
        "W_h_T": s.sets * padded(H) * 2 * H,
        "W_ah_T": padded(A) * H,
        "W_z_T": padded(2 * H + Z) * Z,
        "P_T": padded(Z) * G,
        "W_x_T": padded(s.X) * s.U,
    }
    return Packed(**first, forward_size=forward_size, **_place(transposes, forward_size))


@lru_cache(maxsize=64)
def forward_of(s: Shape) -> Forward:
    H, Z, G = s.H, s.Z, s.G
    rows = {
        "h": H,
        "hm": H,
        "mask": H,
        "x": s.X,
        "u": padded(s.U),
        "alpha_t": padded(H),
        "d": H,
        "fall": H,
        "sgz": 2 * H + Z,
        "wh": padded(2 * H),
        "wg": padded(G),
        "wg1": G,
        "c": 2 * H if Z else 0,
        "a": 2 * H if Z else 0,
        "tmp": padded(Z),
    }
    return Forward(**_place({name: n * s.lanes for name, n in rows.items()}))


def single_of(s: Shape) -> Single:
    def rows(units: int) -> int:
        return -(-units // s.lanes)

    def left(count: int, columns: int) -> int:
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
        "cost": 2,
    }
    return Single(**_place({name: n * s.lanes for name, n in needed.items()}))


def _step(rows: int) -> int:
    """An odd number of rows: steps a power of two apart would share one set of the cache."""
    return rows | 1


@lru_cache(maxsize=64)
def backward_of(s: Shape) -> Backward:
    H, Z, G, R = s.H, s.Z, s.G, s.R
    H_step, H2_step, G_step = _step(H), _step(padded(2 * H)), _step(padded(G))
    sgz_step, z_step, U_step, X_step = _step(2 * H + Z), _step(Z), _step(s.U), _step(s.X)
    per_step = 2 * H_step + H2_step + sgz_step + 2 * z_step + G_step + U_step + X_step
    capacity = max(R, min(_STASH_STEPS, _STASH_ROWS // per_step) // R * R)
    hyper = 1 if Z else 0
    rows = {
        "mask": H,
        "u": padded(s.U),
        "alpha_t": padded(H),
        "h": (R + 1) * H_step,
        "d": R * H_step,
        "fall": R * H_step,
        "wh": R * H2_step,
        "wg": R * G_step,
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
        "acc_b": s.sets * 2 * H,
        "acc_alpha": H,
        "acc_beta": H,
        "acc_w1": G,
        "acc_z1": Z,
        "acc_bz": Z,
        "acc_bbar": 2 * H,
        "acc_ba": H,
        "acc_end": 0,
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
    steps = {
        "H_step": H_step, "H2_step": H2_step, "G_step": G_step, "sgz_step": sgz_step, "z_step": z_step,
        "U_step": U_step, "X_step": X_step,
    }  # fmt: skip
    return Backward(**offsets, **{name: n * s.lanes for name, n in steps.items()}, capacity=capacity)


@lru_cache(maxsize=64)
def sums_of(s: Shape) -> Sums:
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
