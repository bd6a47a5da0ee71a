"""Large networks, forward: every program computes a few units, and all wait at a barrier once or twice per inner
step.

Buffers, a slot for each inner step (time step · R + r − 1), B rows each:

    ew    float32, [h | s | ĝ | w | ḡ | c | W h | a | z], w, ḡ, c, W h and a for residual and gate: what belongs to
          one unit; h, c and a are those *before* the inner step; without hypernetwork h, s, ĝ alone
    mh    m ⊗ h before the inner step, and
    sgz   [s | ĝ | z | 1], after it: the inputs of products, in the weights' dtype
"""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.
# ruff: noqa: SIM102, SIM109
# An `if` on a constexpr is decided by the compiler: it stands alone. And Triton has no `in`.

import triton
import triton.language as tl

from ..pieces import BOUNDED, NONE, PAPER, RECURSIVE, change, gate_growth, open_steps, tanh
from .pieces import fetch, grid_barrier, product, put, row


# fmt: off
@triton.jit
def z_tile(
    tile, slot, rows, present, W_z, b_z, ew, sgz, B,
    Z: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr, WIDTH: tl.constexpr, KEEP: tl.constexpr,
    BB: tl.constexpr, BZ: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):
    # fmt: on
    WIDE: tl.constexpr = 2 * HP + ZP  # what z is made from
    SGZ: tl.constexpr = WIDE + 8
    n = tile * BZ + tl.arange(0, BZ)
    has_n = n < ZP
    y, _, _, _ = product(
        sgz + (slot - 1) * B * SGZ, SGZ, W_z, WIDE, 0, rows, present, n, has_n,
        WIDE, 1, BB, BZ, BK, SPLIT, STAGES, PRECISION,
    )  # fmt: skip
    z = tanh(y + row(b_z, n, n < Z))
    at = present[:, None] & has_n[None, :]
    place = slot * B + rows
    put(sgz + place[:, None] * SGZ + (2 * HP + n)[None, :], z, at)
    if KEEP:
        put(ew + place[:, None] * WIDTH + (13 * HP + n)[None, :], z, at)


# fmt: off
@triton.jit
def state_tile(
    tile, slot, rows, present, W_h, ew, mh, B,
    HP: tl.constexpr, WIDTH: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):
    # fmt: on
    n = tile * BN + tl.arange(0, BN)
    has_n = n < 2 * HP
    y, _, _, _ = product(
        mh + slot * B * HP, HP, W_h, HP, 0, rows, present, n, has_n,
        HP, 1, BB, BN, BK, SPLIT, STAGES, PRECISION,
    )  # fmt: skip
    at = ew + (slot * B + rows)[:, None] * WIDTH + (9 * HP + n)[None, :]
    put(at, y, present[:, None] & has_n[None, :])


# fmt: off
@triton.jit
def hyper_phase(
    pid, programs, slot, W_h, W_z, b_z, ew, mh, sgz, B,
    Z: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr, WIDTH: tl.constexpr, KEEP: tl.constexpr,
    BB: tl.constexpr, BN: tl.constexpr, BZ: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):
    """`z^r` from the inner step before, beside `W h`."""
    # fmt: on
    slot = tl.full((), 0, tl.int64) + slot
    z_tiles: tl.constexpr = (ZP + BZ - 1) // BZ
    for tile in range(pid, z_tiles + (2 * HP + BN - 1) // BN, programs):
        for first in range(0, B, BB):
            rows = first + tl.arange(0, BB)
            present = rows < B
            if tile < z_tiles:
                z_tile(
                    tile, slot, rows, present, W_z, b_z, ew, sgz, B,
                    Z, HP, ZP, WIDTH, KEEP, BB, BZ, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
            else:
                state_tile(
                    tile - z_tiles, slot, rows, present, W_h, ew, mh, B,
                    HP, WIDTH, BB, BN, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip


# fmt: off
@triton.jit
def update_phase(
    pid, programs, size, start, slot, ahead, r, R, u, mask, W_h, b, alpha, beta, first_w, P, b_bar,
    out, alphas, flag, ew, mh, sgz, B,
    H: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr, WIDTH: tl.constexpr, KIND: tl.constexpr,
    ELASTIC: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr, KEEP: tl.constexpr,
    BB: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):
    """What belongs to a unit: `w`, `ḡ`, `s`, `ĝ`, the gate, and the state for the next inner step.

    The state is left both there and at `ahead`, the first slot of the next time step: whether this inner step is
    the last is known only when all programs have seen their gates.
    """
    # fmt: on
    GATED: tl.constexpr = (KIND == PAPER) or (KIND == RECURSIVE) or (KIND == BOUNDED)
    CARRIED: tl.constexpr = (KIND == RECURSIVE) or (KIND == BOUNDED)  # a, beside c
    U: tl.constexpr = 3 * H if ELASTIC else 2 * H
    SGZ: tl.constexpr = 2 * HP + ZP + 8
    slot = tl.full((), 0, tl.int64) + slot
    ahead = tl.full((), 0, tl.int64) + ahead
    if OWN:
        W_h += (r - 1).to(tl.int64) * 2 * HP * HP
        b += (r - 1) * 2 * H
    for tile in range(pid, (HP + BU - 1) // BU, programs):
        n = tile * BU + tl.arange(0, BU)
        inside = n < H
        stored = n < HP
        b_s, b_g = row(b, n, inside), row(b + H, n, inside)
        for first in range(0, B, BB):
            rows = first + tl.arange(0, BB)
            present = rows < B
            keep = (rows < size)[:, None] & inside[None, :]  # (BB, BU)
            spot = present[:, None] & stored[None, :]
            own = ew + (slot * B + rows)[:, None] * WIDTH + n[None, :]
            packed = (start + rows).to(tl.int64)[:, None]
            x = u + packed * U + n[None, :]
            # All that is not a product is asked for first: its way from memory hides behind the products.
            x_s, x_g = fetch(x, keep & (r == 1)), fetch(x + H, keep & (r == 1))
            h = fetch(own, spot)
            if ELASTIC:
                a_row, b_row = row(alpha, n, inside), row(beta, n, inside)
                u_a = fetch(x + 2 * H, keep & (r == 1))
            if KIND != NONE:
                w_s_first, w_g_first = row(first_w, n, stored & (r == 1)), row(first_w + HP, n, stored & (r == 1))
            if GATED:
                q_s_first = row(first_w + 2 * HP, n, stored & (r == 1))
                q_g_first = row(first_w + 3 * HP, n, stored & (r == 1))
                q_s_bias, q_g_bias = row(b_bar, n, inside & (r > 1)), row(b_bar + H, n, inside & (r > 1))
            zeros = tl.zeros((BB, BU), tl.float32)

            Wa = zeros
            if ELASTIC:
                if r == 1:
                    # z is a constant here: with `W h` made where it is used, this inner step is a single phase.
                    Wh_s, Wh_g, Wa, _ = product(
                        mh + slot * B * HP, HP, W_h, HP, HP, rows, present, n, stored,
                        HP, 3, BB, BU, BK, SPLIT, STAGES, PRECISION,
                    )  # fmt: skip
                    if KEEP and KIND != NONE:
                        put(own + 9 * HP, Wh_s, spot)
                        put(own + 10 * HP, Wh_g, spot)
                else:
                    if KIND == NONE:
                        Wh_s, Wh_g, _, _ = product(
                            mh + slot * B * HP, HP, W_h, HP, HP, rows, present, n, stored,
                            HP, 2, BB, BU, BK, SPLIT, STAGES, PRECISION,
                        )  # fmt: skip
                    else:
                        Wh_s, Wh_g = fetch(own + 9 * HP, spot), fetch(own + 10 * HP, spot)
            else:
                Wh_s, Wh_g, _, _ = product(
                    mh + slot * B * HP, HP, W_h, HP, HP, rows, present, n, stored,
                    HP, 2, BB, BU, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
            if ELASTIC:
                a_row = tl.where(a_row > 87.0, 87.0, a_row)
                e_alpha = tl.exp(a_row)
                at = alphas + packed * H + n[None, :]
                if r == 1:
                    alpha_t = tl.sigmoid(Wa + u_a)
                    tl.store(at, alpha_t, mask=keep)
                    count = open_steps(a_row, e_alpha, b_row, alpha_t, keep, R)
                    tl.atomic_max(flag, tl.max(tl.max(count, axis=1), axis=0), sem="relaxed")
                else:
                    alpha_t = fetch(at, keep)

            w_s, w_g, q_s, q_g, c_s, c_g = zeros, zeros, zeros, zeros, zeros, zeros
            a_s = tl.full((BB, BU), 1.0, tl.float32)
            a_g = a_s
            if KIND != NONE:
                if r == 1:
                    w_s += w_s_first
                    w_g += w_g_first
                    if GATED:
                        q_s += q_s_first
                        q_g += q_g_first
                else:
                    c_s, c_g = fetch(own + 7 * HP, spot), fetch(own + 8 * HP, spot)
                    if CARRIED:
                        a_s, a_g = fetch(own + 11 * HP, spot), fetch(own + 12 * HP, spot)
                    w_s, w_g, q_s, q_g = product(
                        sgz + slot * B * SGZ + 2 * HP, SGZ, P, ZP, HP, rows, present, n, stored,
                        ZP, 4 if GATED else 2, BB, BU, BK, SPLIT, STAGES, PRECISION,
                    )  # fmt: skip
                    if GATED:
                        q_s = tl.sigmoid(q_s + q_s_bias)
                        q_g = tl.sigmoid(q_g + q_g_bias)
                if KEEP:
                    put(own + 3 * HP, w_s, spot)
                    put(own + 4 * HP, w_g, spot)
                    if GATED:
                        put(own + 5 * HP, q_s, spot)
                        put(own + 6 * HP, q_g, spot)

            pre_s, a_s, c_s = change(Wh_s, h, w_s, q_s, a_s, c_s, KIND)
            pre_g, a_g, c_g = change(Wh_g, h, w_g, q_g, a_g, c_g, KIND)
            s = tanh(pre_s + b_s + x_s)
            g_hat = tl.sigmoid(pre_g + b_g + x_g)
            if ELASTIC:
                d = b_row - e_alpha * gate_growth(a_row, alpha_t, tl.full((), 0, tl.int32) + r)
                # A NaN gate counts as open at r = 1, so that the NaN reaches the state, and as closed after.
                is_open = keep & ((d > 0.0) | ((r == 1) & (d != d)))
                g = tl.where(is_open, d, 0.0) * g_hat
            else:
                is_open = keep
                g = g_hat
            h = tl.where(is_open, g * s + (1.0 - g) * h, h)

            if KEEP:
                put(own + HP, s, spot)
                put(own + 2 * HP, g_hat, spot)
            if KIND != NONE:
                at = sgz + (slot * B + rows)[:, None] * SGZ + n[None, :]
                put(at, s, spot)
                put(at + HP, g_hat, spot)
            tl.store(out + packed * H + n[None, :], h.to(out.dtype.element_ty), mask=keep)
            if MASKED:
                at = rows.to(tl.int64)[:, None] * H + n[None, :]
                dropped = h * tl.load(mask + at, mask=present[:, None] & inside[None, :], other=0.0).to(tl.float32)
            else:
                dropped = h
            put(ew + (ahead * B + rows)[:, None] * WIDTH + n[None, :], h, spot)
            put(mh + (ahead * B + rows)[:, None] * HP + n[None, :], dropped, spot)
            more = spot & (r < R)
            below = B * WIDTH
            put(own + below, h, more)
            put(mh + ((slot + 1) * B + rows)[:, None] * HP + n[None, :], dropped, more)
            if KIND != NONE:
                put(own + below + 7 * HP, c_s, more)
                put(own + below + 8 * HP, c_g, more)
                if CARRIED:
                    put(own + below + 11 * HP, a_s, more)
                    put(own + below + 12 * HP, a_g, more)


# fmt: off
@triton.jit(do_not_specialize=["B", "T", "R", "SLOTS", "step", "depth"])
def forward_kernel(
    u, mask, W_h, b, alpha, beta, W_z, b_z, first_w, P, b_bar, batch_sizes, offsets, out, alphas, flags,
    ew, mh, sgz, counter, B, T, R, SLOTS, step, depth,
    PHASE: tl.constexpr, H: tl.constexpr, Z: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr,
    WIDTH: tl.constexpr, KIND: tl.constexpr, ELASTIC: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr,
    REVERSE: tl.constexpr, KEEP: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr,
    BZ: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
    SPIN: tl.constexpr,
):
    """PHASE 0: the whole sequence, all programs at once on the chip. 1 and 2: one phase, of inner step `depth` of
    the `step`-th time step in order, for a launch each where programs cannot wait for each other."""
    # fmt: on
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    if PHASE == 0:
        arrivals = 0
        for i in range(T):
            t = T - 1 - i if REVERSE else i
            # Read here, not in the phase that needs them: every read right behind a barrier is waited for.
            size, start = tl.load(batch_sizes + t), tl.load(offsets + t)
            r = 1
            last = R
            while r <= last:
                slot = (i * R + r - 1) % SLOTS
                if KIND != NONE:
                    if r > 1:
                        hyper_phase(
                            pid, programs, slot, W_h, W_z, b_z, ew, mh, sgz, B,
                            Z, HP, ZP, WIDTH, KEEP, BB, BN, BZ, BK, SPLIT, STAGES, PRECISION,
                        )  # fmt: skip
                        arrivals += programs
                        grid_barrier(counter, arrivals, SPIN)
                update_phase(
                    pid, programs, size, start, slot, (i * R + R) % SLOTS, r, R, u, mask, W_h, b, alpha, beta,
                    first_w, P, b_bar, out, alphas, flags + i, ew, mh, sgz, B,
                    H, HP, ZP, WIDTH, KIND, ELASTIC, OWN, MASKED, KEEP, BB, BU, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
                arrivals += programs
                grid_barrier(counter, arrivals, SPIN)
                if ELASTIC:
                    if r == 1:
                        last = tl.minimum(tl.load(flags + i, volatile=True), R)
                r += 1
    else:
        t = T - 1 - step if REVERSE else step
        size, start = tl.load(batch_sizes + t), tl.load(offsets + t)
        slot = (step * R + depth - 1) % SLOTS
        last = R
        if ELASTIC:
            last = tl.maximum(tl.load(flags + step), 1)
        if depth <= last:
            if PHASE == 1:
                hyper_phase(
                    pid, programs, slot, W_h, W_z, b_z, ew, mh, sgz, B,
                    Z, HP, ZP, WIDTH, KEEP, BB, BN, BZ, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
            else:
                update_phase(
                    pid, programs, size, start, slot, (step * R + R) % SLOTS, depth, R, u, mask, W_h, b, alpha,
                    beta, first_w, P, b_bar, out, alphas, flags + step, ew, mh, sgz, B,
                    H, HP, ZP, WIDTH, KIND, ELASTIC, OWN, MASKED, KEEP, BB, BU, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
