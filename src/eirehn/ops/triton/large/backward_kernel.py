"""Large networks, backward: from the last inner step to the first, with the values that the forward pass kept.

Buffers besides those of the forward pass:

    grads  a slot for each inner step, B rows each, of [W h | W_a h | w | ḡ | z of the *next* inner step]: the
           gradients at the results of the products, in the weights' dtype, for the weight gradients and for the
           products below. One slot more at the end holds the first inner step of the time step after the last.
    carry  float32 (B, 6H): what the owner of a unit hands to itself: the gradient of h less what comes through
           W_h, those of c and a, and that of α_t
    sums   float32 (4, H): the gradients of b, α and β
"""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.
# ruff: noqa: SIM102, SIM109
# An `if` on a constexpr is decided by the compiler: it stands alone. And Triton has no `in`.

import triton
import triton.language as tl

from ..pieces import BOUNDED, NONE, PAPER, RECURSIVE, change_back, gate_growth
from .pieces import add, fetch, grid_barrier, product, put, row


# fmt: off
@triton.jit
def unit_phase(
    pid, programs, size, start, i, r, R, last, mask, W_h, W_zs, alpha, beta, alphas, d_out, d_u,
    ew, grads, carry, sums, B,
    H: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr, WIDTH: tl.constexpr, GRADS: tl.constexpr,
    KIND: tl.constexpr, ELASTIC: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr, BB: tl.constexpr,
    BU: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):
    """The gradients of the state and [s ĝ] of a unit from the inner step after, and from them those of its
    products."""
    # fmt: on
    GATED: tl.constexpr = (KIND == PAPER) or (KIND == RECURSIVE) or (KIND == BOUNDED)
    CARRIED: tl.constexpr = (KIND == RECURSIVE) or (KIND == BOUNDED)  # a, beside c
    ABOVE: tl.constexpr = 3 * HP if ELASTIC else 2 * HP  # columns of W_h: [W_h; W_ah] transposed
    HYPER: tl.constexpr = 3 * HP + (4 * HP if GATED else 2 * HP)  # column of `grads` where z's begins
    U: tl.constexpr = 3 * H if ELASTIC else 2 * H
    slot = tl.full((), 0, tl.int64) + i * R + r - 1
    above = tl.full((), 0, tl.int64) + tl.where(r == last, i * R + R, i * R + r)
    top = r == last
    if OWN:
        W_h += tl.where(top, 0, r).to(tl.int64) * 2 * HP * HP
        sums += (r - 1) * 4 * HP
    for tile in range(pid, (HP + BU - 1) // BU, programs):
        n = tile * BU + tl.arange(0, BU)
        inside = n < H
        stored = n < HP
        for first in range(0, B, BB):
            rows = first + tl.arange(0, BB)
            present = rows < B
            live = rows < size
            keep = live[:, None] & inside[None, :]  # (BB, BU)
            spot = present[:, None] & stored[None, :]
            own = ew + (slot * B + rows)[:, None] * WIDTH + n[None, :]
            mine = carry + rows.to(tl.int64)[:, None] * (6 * HP) + n[None, :]
            packed = (start + rows).to(tl.int64)
            # All that is not a product is asked for first: its way from memory hides behind the products.
            later = spot & (r != last)
            earlier = spot & (r > 1)
            h, s, g_hat = fetch(own, spot), fetch(own + HP, spot), fetch(own + 2 * HP, spot)
            dh = fetch(mine, spot) + fetch(d_out + packed[:, None] * H + n[None, :], keep & top)
            if KIND != NONE:
                w_s, w_g = fetch(own + 3 * HP, spot), fetch(own + 4 * HP, spot)
                c_s, c_g = fetch(own + 7 * HP, earlier), fetch(own + 8 * HP, earlier)
                Wh_s, Wh_g = fetch(own + 9 * HP, spot), fetch(own + 10 * HP, spot)
                dc_s, dc_g = fetch(mine + HP, later), fetch(mine + 2 * HP, later)
                q_s, q_g, a_s, a_g, da_s, da_g = w_s, w_s, w_s, w_s, w_s, w_s
                if GATED:
                    q_s, q_g = fetch(own + 5 * HP, spot), fetch(own + 6 * HP, spot)
                if CARRIED:
                    a_s = tl.where(earlier, fetch(own + 11 * HP, earlier), 1.0)
                    a_g = tl.where(earlier, fetch(own + 12 * HP, earlier), 1.0)
                    da_s, da_g = fetch(mine + 3 * HP, later), fetch(mine + 4 * HP, later)
            if ELASTIC:
                a_row, b_row = row(alpha, n, inside), row(beta, n, inside)
                a_row = tl.where(a_row > 87.0, 87.0, a_row)
                alpha_t = fetch(alphas + packed[:, None] * H + n[None, :], keep)
                d_alpha_t = fetch(mine + 5 * HP, later)

            from_z_s = tl.zeros((BB, BU), tl.float32)
            from_z_g = from_z_s
            if top:
                dmh, _, _, _ = product(
                    grads + above * B * GRADS, GRADS, W_h, ABOVE, 0, rows, present, n, stored,
                    ABOVE, 1, BB, BU, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
            else:
                dmh, _, _, _ = product(
                    grads + above * B * GRADS, GRADS, W_h, ABOVE, 0, rows, present, n, stored,
                    2 * HP, 1, BB, BU, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
                if KIND != NONE:
                    from_z_s, from_z_g, _, _ = product(
                        grads + slot * B * GRADS + HYPER, GRADS, W_zs, ZP, HP, rows, present, n, stored,
                        ZP, 2, BB, BU, BK, SPLIT, STAGES, PRECISION,
                    )  # fmt: skip
            if MASKED:
                at = rows.to(tl.int64)[:, None] * H + n[None, :]
                dmh *= tl.load(mask + at, mask=present[:, None] & inside[None, :], other=0.0).to(tl.float32)
            dh += dmh
            if ELASTIC:
                e_alpha = tl.exp(a_row)
                number = (tl.full((), 0, tl.int32) + r).to(tl.float32)
                growth = gate_growth(a_row, alpha_t, tl.full((), 0, tl.int32) + r)
                d = b_row - e_alpha * growth
                is_open = keep & ((d > 0.0) | ((r == 1) & (d != d)))
                d = tl.where(is_open, d, 0.0)
                g = d * g_hat
                dg = tl.where(is_open, dh * (s - h), 0.0)
                ds = tl.where(is_open, dh * g, 0.0)
                dh = tl.where(is_open, dh * (1.0 - g), dh)
                dg_hat = dg * d
                dd = dg * g_hat
                d_growth = -e_alpha * dd
                d_v = d_growth * (growth + 1.0)
                d_alpha_t += number * d_v
                add(sums + 2 * HP + n, d_growth * growth + (number - 1.0) * d_v, stored)
                add(sums + 3 * HP + n, dd, stored)
            else:
                ds = tl.where(keep, dh * g_hat, 0.0)
                dg_hat = tl.where(keep, dh * (s - h), 0.0)
                dh = tl.where(keep, dh * (1.0 - g_hat), dh)
            # Closed units have the gradient through the z of the next inner step, too.
            dx_s = tl.where(keep, (ds + from_z_s) * (1.0 - s * s), 0.0)
            dx_g = tl.where(keep, (dg_hat + from_z_g) * g_hat * (1.0 - g_hat), 0.0)
            add(sums + n, dx_s, stored)
            add(sums + HP + n, dx_g, stored)

            tl.debug_barrier()  # threads may hold copies of what another one now writes over in `carry`
            x = d_u + packed[:, None] * U + n[None, :]
            put(x, dx_s, keep & (r == 1))
            put(x + H, dx_g, keep & (r == 1))

            item = grads + (slot * B + rows)[:, None] * GRADS + n[None, :]
            if KIND != NONE:
                dWh_s, dh_s, dw_s, dq_s, da_s, dc_s = change_back(
                    dx_s, Wh_s, h, w_s, q_s, a_s, c_s, da_s, dc_s, KIND
                )
                dWh_g, dh_g, dw_g, dq_g, da_g, dc_g = change_back(
                    dx_g, Wh_g, h, w_g, q_g, a_g, c_g, da_g, dc_g, KIND
                )
                dh += dh_s + dh_g
                put(item + 3 * HP, tl.where(keep, dw_s, 0.0), spot)
                put(item + 4 * HP, tl.where(keep, dw_g, 0.0), spot)
                if GATED:
                    put(item + 5 * HP, tl.where(keep, dq_s * q_s * (1.0 - q_s), 0.0), spot)
                    put(item + 6 * HP, tl.where(keep, dq_g * q_g * (1.0 - q_g), 0.0), spot)
                put(mine + HP, dc_s, spot)
                put(mine + 2 * HP, dc_g, spot)
                if CARRIED:
                    put(mine + 3 * HP, da_s, spot)
                    put(mine + 4 * HP, da_g, spot)
            else:
                dWh_s, dWh_g = dx_s, dx_g
            put(item, tl.where(keep, dWh_s, 0.0), spot)
            put(item + HP, tl.where(keep, dWh_g, 0.0), spot)
            put(mine, dh, spot)
            if ELASTIC:
                put(mine + 5 * HP, d_alpha_t, spot)
                du_a = tl.where(keep, d_alpha_t * alpha_t * (1.0 - alpha_t), 0.0)
                put(x + 2 * H, du_a, keep & (r == 1))
                put(item + 2 * HP, du_a, spot & (r == 1))


# fmt: off
@triton.jit
def hyper_back_phase(
    pid, programs, slot, W_p, ew, grads, B,
    HP: tl.constexpr, ZP: tl.constexpr, WIDTH: tl.constexpr, GRADS: tl.constexpr, GATED: tl.constexpr,
    BB: tl.constexpr, BZ: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):
    """The gradient at the argument of z^r's tanh, left one inner step up, beside the s, ĝ, z it came from."""
    # fmt: on
    PROJECTED: tl.constexpr = 4 * HP if GATED else 2 * HP
    slot = tl.full((), 0, tl.int64) + slot
    for tile in range(pid, (ZP + BZ - 1) // BZ, programs):
        n = tile * BZ + tl.arange(0, BZ)
        has_n = n < ZP
        for first in range(0, B, BB):
            rows = first + tl.arange(0, BB)
            present = rows < B
            dz, _, _, _ = product(
                grads + slot * B * GRADS + 3 * HP, GRADS, W_p, PROJECTED + ZP, 0, rows, present, n, has_n,
                PROJECTED + ZP, 1, BB, BZ, BK, SPLIT, STAGES, PRECISION,
            )  # fmt: skip
            spot = present[:, None] & has_n[None, :]
            z = fetch(ew + (slot * B + rows)[:, None] * WIDTH + (13 * HP + n)[None, :], spot)
            up = grads + ((slot - 1) * B + rows)[:, None] * GRADS + (3 * HP + PROJECTED + n)[None, :]
            put(up, dz * (1.0 - z * z), spot)


# fmt: off
@triton.jit(do_not_specialize=["B", "T", "R", "step", "depth"])
def backward_kernel(
    mask, W_h, W_zs, W_p, alpha, beta, batch_sizes, offsets, alphas, flags, d_out, d_u, ew, grads, carry, sums,
    counter, B, T, R, step, depth,
    PHASE: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr, WIDTH: tl.constexpr,
    GRADS: tl.constexpr, KIND: tl.constexpr, ELASTIC: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr,
    REVERSE: tl.constexpr, BB: tl.constexpr, BU: tl.constexpr, BZ: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr, SPIN: tl.constexpr,
):
    """PHASE 0: the whole sequence; 1 and 2: one phase of one inner step, as in `forward_kernel`."""
    # fmt: on
    GATED: tl.constexpr = (KIND == PAPER) or (KIND == RECURSIVE) or (KIND == BOUNDED)
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    if PHASE == 0:
        arrivals = 0
        for done in range(T):
            i = T - 1 - done
            t = T - 1 - i if REVERSE else i
            size, start = tl.load(batch_sizes + t), tl.load(offsets + t)
            last = R
            if ELASTIC:
                last = tl.minimum(tl.maximum(tl.load(flags + i), 1), R)
            r = last
            while r >= 1:
                unit_phase(
                    pid, programs, size, start, i, r, R, last, mask, W_h, W_zs, alpha, beta, alphas,
                    d_out, d_u, ew, grads, carry, sums, B,
                    H, HP, ZP, WIDTH, GRADS, KIND, ELASTIC, OWN, MASKED, BB, BU, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
                arrivals += programs
                grid_barrier(counter, arrivals, SPIN)
                if KIND != NONE:
                    # z¹ is a constant, and its gradient a sum: left to the host.
                    if r > 1:
                        hyper_back_phase(
                            pid, programs, i * R + r - 1, W_p, ew, grads, B,
                            HP, ZP, WIDTH, GRADS, GATED, BB, BZ, BK, SPLIT, STAGES, PRECISION,
                        )  # fmt: skip
                        arrivals += programs
                        grid_barrier(counter, arrivals, SPIN)
                r -= 1
    else:
        t = T - 1 - step if REVERSE else step
        size, start = tl.load(batch_sizes + t), tl.load(offsets + t)
        last = R
        if ELASTIC:
            last = tl.minimum(tl.maximum(tl.load(flags + step), 1), R)
        if depth <= last:
            if PHASE == 1:
                unit_phase(
                    pid, programs, size, start, step, depth, R, last, mask, W_h, W_zs, alpha, beta, alphas,
                    d_out, d_u, ew, grads, carry, sums, B,
                    H, HP, ZP, WIDTH, GRADS, KIND, ELASTIC, OWN, MASKED, BB, BU, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
            else:
                hyper_back_phase(
                    pid, programs, step * R + depth - 1, W_p, ew, grads, B,
                    HP, ZP, WIDTH, GRADS, GATED, BB, BZ, BK, SPLIT, STAGES, PRECISION,
                )  # fmt: skip
