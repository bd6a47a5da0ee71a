"""The whole sequence of one tile of samples in one program, backward: README.md has the derivation."""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.
# ruff: noqa: SIM102, SIM109
# An `if` on a constexpr is decided by the compiler: it stands alone, so that it is not mixed with one on data.

import triton
import triton.language as tl

from .pieces import (
    BOUNDED,
    NONE,
    PAPER,
    RECURSIVE,
    change,
    change_back,
    gate_growth,
    halves,
    matrix,
    open_steps,
    steps_of,
    tanh,
    times,
    times_t,
    two_times,
    two_times_t,
    vector,
)


# fmt: off
# Sizes that change from call to call are not specialized on: each new value would be a new compilation.
@triton.jit(do_not_specialize=["N", "B", "T", "R", "SETS", "M", "low", "high"])
def backward_kernel(
    u, h0, mask,
    W_h, b, W_ah, alpha, beta, z1, W_zs, W_z, b_z, P, P_bar, b_bar,
    batch_sizes, offsets, out, d_out, d_u, d_h, scratch, work, sums,
    N, B, T, R, SETS, M, low, high,
    H: tl.constexpr, Z: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr, BB: tl.constexpr, KIND: tl.constexpr,
    ELASTIC: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr, REVERSE: tl.constexpr,
    RESIDENT: tl.constexpr, PRECISION: tl.constexpr, GRAD: tl.constexpr, WIDTH: tl.constexpr,
):
    """Time steps `low` to `high`. `d_h` (E, B, H) holds the gradient of the state, coming and going.

    `work` (E, R, M, WIDTH) takes, for the weight gradients, the inputs of the products of each inner step in
    columns [m⊗h | s | ĝ | z | 1] and, from column GRAD on, the gradients of their results
    [W h | W_a h | w | ḡ | z of the next inner step]. `sums` takes those of b, α, β and z¹, by program.
    """
    # fmt: on
    GATED: tl.constexpr = (KIND == PAPER) or (KIND == RECURSIVE) or (KIND == BOUNDED)
    U: tl.constexpr = 3 * H if ELASTIC else 2 * H
    SCRATCH: tl.constexpr = 13 * HP + ZP
    member = tl.program_id(1).to(tl.int64)
    program = member * tl.num_programs(0) + tl.program_id(0)
    first = tl.program_id(0) * BB
    rows = first + tl.arange(0, BB)  # (BB,)
    col = tl.arange(0, HP)
    zcol = tl.arange(0, ZP)
    inside = (col < H)[None, :]
    present = (rows < B)[:, None] & inside  # (BB, HP)

    u += member * N * U
    d_u += member * N * U
    out += member * N * H
    d_out += member * N * H
    work += member * R * M * WIDTH
    scratch += program * R * BB * SCRATCH
    W_h += member * SETS * 2 * H * H
    b += member * SETS * 2 * H
    state = (member * B + rows)[:, None] * H + col[None, :]
    dh = tl.load(d_h + state, mask=present, other=0.0)
    if MASKED:
        m = tl.load(mask + state, mask=present, other=0.0).to(tl.float32)

    if RESIDENT and not OWN:
        W_hs, W_hg = halves(W_h, H, H, H, HP, HP, BB)
    if ELASTIC:
        W_ah += member * H * H
        a_row = vector(alpha + member * H, H, HP)
        a_row = tl.where(a_row > 87.0, 87.0, a_row)
        e_alpha = tl.exp(a_row)
        b_row = vector(beta + member * H, H, HP)
        if RESIDENT:
            W_a = matrix(W_ah, H, H, H, HP, HP, BB)
    if KIND != NONE:
        W_zs += member * Z * 2 * H
        W_z += member * Z * Z
        P += member * 2 * H * Z
        z_first = vector(z1 + member * Z, Z, ZP) + tl.zeros((BB, ZP), tl.float32)
        w_s_first = times_t(z_first, matrix(P, Z, H, Z, HP, ZP, BB), BB, PRECISION)
        w_g_first = times_t(z_first, matrix(P + H * Z, Z, H, Z, HP, ZP, BB), BB, PRECISION)
        if RESIDENT:
            P_s, P_g = halves(P, Z, H, Z, HP, ZP, BB)
            W_zh = matrix(W_zs, 2 * H, Z, H, ZP, HP, BB)
            W_zg = matrix(W_zs + H, 2 * H, Z, H, ZP, HP, BB)
            W_zz = matrix(W_z, Z, Z, Z, ZP, ZP, BB)
    if GATED:
        P_bar += member * 2 * H * Z
        b_bar += member * 2 * H
        first_s, first_g = vector(b_bar, H, HP), vector(b_bar + H, H, HP)
        first_s += times_t(z_first, matrix(P_bar, Z, H, Z, HP, ZP, BB), BB, PRECISION)
        first_g += times_t(z_first, matrix(P_bar + H * Z, Z, H, Z, HP, ZP, BB), BB, PRECISION)
        q_s_first, q_g_first = tl.sigmoid(first_s), tl.sigmoid(first_g)
        if RESIDENT:
            Q_s, Q_g = halves(P_bar, Z, H, Z, HP, ZP, BB)

    zeros = tl.zeros((BB, HP), tl.float32)
    ones = tl.full((BB, HP), 1.0, tl.float32)
    sum_s, sum_g, sum_alpha, sum_beta = zeros, zeros, zeros, zeros
    sum_z = tl.zeros((BB, ZP), tl.float32)

    count_steps = tl.minimum(tl.maximum(steps_of(batch_sizes, first, T), low), high) - low
    for i in range(count_steps):
        t = low + i if REVERSE else low + count_steps - 1 - i
        size = tl.load(batch_sizes + t)
        n = tl.load(offsets + t) + rows  # (BB,)
        live = rows < size
        keep = live[:, None] & inside  # (BB, HP)
        # The state before: of the neighbouring step where the sample was running then, else the first one.
        before = t + 1 if REVERSE else t - 1
        known = (before >= 0) & (before < T)
        size_before = tl.load(batch_sizes + before, mask=known, other=0)
        n_before = tl.load(offsets + before, mask=known, other=0) + rows
        started = (rows < size_before)[:, None] & keep
        h = tl.load(out + n_before[:, None] * H + col[None, :], mask=started, other=0.0).to(tl.float32)
        h_start = tl.load(h0 + state, mask=keep, other=0.0).to(tl.float32)
        h = tl.where(started, h, h_start)
        x = n[:, None] * U + col[None, :]
        x_s = tl.load(u + x, mask=keep, other=0.0).to(tl.float32)
        x_g = tl.load(u + x + H, mask=keep, other=0.0).to(tl.float32)
        dh += tl.load(d_out + n[:, None] * H + col[None, :], mask=keep, other=0.0).to(tl.float32)
        if ELASTIC:
            u_a = tl.load(u + x + 2 * H, mask=keep, other=0.0).to(tl.float32)
            if not RESIDENT:
                W_a = matrix(W_ah, H, H, H, HP, HP, BB)
            mh = h * m if MASKED else h
            alpha_t = tl.sigmoid(times_t(mh, W_a, BB, PRECISION) + u_a)
            count = open_steps(a_row, e_alpha, b_row, alpha_t, keep, R)
            last = tl.max(tl.max(count, axis=1), axis=0)
        else:
            last = R

        # The inner steps again, as forward, leaving behind what the way back needs.
        c_s, c_g, a_s, a_g = zeros, zeros, ones, ones
        w_s, w_g, q_s, q_g = zeros, zeros, zeros, zeros
        if KIND != NONE:
            z, w_s, w_g = z_first, w_s_first, w_g_first
        if GATED:
            q_s, q_g = q_s_first, q_g_first
        place = ((t - low) * B + rows).to(tl.int64)  # (BB,)
        tl.debug_barrier()  # threads share the scratch: all must have read the last time step's
        for r in range(1, last + 1):
            if OWN:
                W = W_h + (r - 1) * 2 * H * H
                W_hs, W_hg = halves(W, H, H, H, HP, HP, BB)
                b_s, b_g = vector(b + (r - 1) * 2 * H, H, HP), vector(b + (r - 1) * 2 * H + H, H, HP)
            else:
                b_s, b_g = vector(b, H, HP), vector(b + H, H, HP)
                if not RESIDENT:
                    W_hs, W_hg = halves(W_h, H, H, H, HP, HP, BB)
            mh = h * m if MASKED else h
            Wh_s, Wh_g = times_t(mh, W_hs, BB, PRECISION), times_t(mh, W_hg, BB, PRECISION)
            slot = scratch + ((r - 1) * BB + tl.arange(0, BB))[:, None] * SCRATCH
            item = work + (((r - 1) * M).to(tl.int64) + place)[:, None] * WIDTH
            own = slot + col[None, :]
            tl.store(own, h)
            tl.store(item + col[None, :], mh, mask=keep)
            if KIND != NONE:
                tl.store(own + 3 * HP, w_s)
                tl.store(own + 4 * HP, w_g)
                tl.store(own + 5 * HP, q_s)
                tl.store(own + 6 * HP, q_g)
                tl.store(own + 7 * HP, c_s)
                tl.store(own + 8 * HP, c_g)
                tl.store(own + 9 * HP, a_s)
                tl.store(own + 10 * HP, a_g)
                tl.store(own + 11 * HP, Wh_s)
                tl.store(own + 12 * HP, Wh_g)
                tl.store(slot + 13 * HP + zcol[None, :], z)
            pre_s, a_s, c_s = change(Wh_s, h, w_s, q_s, a_s, c_s, KIND)
            pre_g, a_g, c_g = change(Wh_g, h, w_g, q_g, a_g, c_g, KIND)
            s = tanh(pre_s + b_s + x_s)
            g_hat = tl.sigmoid(pre_g + b_g + x_g)
            x_s, x_g = zeros, zeros
            tl.store(own + HP, s)
            tl.store(own + 2 * HP, g_hat)
            if KIND != NONE:
                tl.store(item + H + col[None, :], s, mask=keep)
                tl.store(item + 2 * H + col[None, :], g_hat, mask=keep)
                tl.store(item + 3 * H + zcol[None, :], z, mask=live[:, None] & (zcol < Z)[None, :])
                tl.store(work + (((r - 1) * M).to(tl.int64) + place) * WIDTH + 3 * H + Z, 1.0, mask=live)
            if ELASTIC:
                is_open = count >= r
                depth_r = tl.full((), 0, tl.int32) + r
                g = tl.where(is_open, b_row - e_alpha * gate_growth(a_row, alpha_t, depth_r), 0.0) * g_hat
            else:
                is_open = keep
                g = g_hat
            h = tl.where(is_open, g * s + (1.0 - g) * h, h)
            if KIND != NONE:
                if r < last:
                    if not RESIDENT:
                        W_zh = matrix(W_zs, 2 * H, Z, H, ZP, HP, BB)
                        W_zg = matrix(W_zs + H, 2 * H, Z, H, ZP, HP, BB)
                        W_zz = matrix(W_z, Z, Z, Z, ZP, ZP, BB)
                        P_s, P_g = halves(P, Z, H, Z, HP, ZP, BB)
                    bz_row = vector(b_z + member * Z, Z, ZP)
                    z = tanh(
                        two_times_t(s, W_zh, g_hat, W_zg, BB, PRECISION) + times_t(z, W_zz, BB, PRECISION) + bz_row
                    )
                    w_s, w_g = times_t(z, P_s, BB, PRECISION), times_t(z, P_g, BB, PRECISION)
                    if GATED:
                        if not RESIDENT:
                            Q_s, Q_g = halves(P_bar, Z, H, Z, HP, ZP, BB)
                        bb_s, bb_g = vector(b_bar, H, HP), vector(b_bar + H, H, HP)
                        q_s = tl.sigmoid(times_t(z, Q_s, BB, PRECISION) + bb_s)
                        q_g = tl.sigmoid(times_t(z, Q_g, BB, PRECISION) + bb_g)

        dc_s, dc_g, da_s, da_g = zeros, zeros, zeros, zeros
        d_alpha_t = zeros
        if last == 0:
            tl.store(d_u + x, zeros.to(d_u.dtype.element_ty), mask=keep)
            tl.store(d_u + x + H, zeros.to(d_u.dtype.element_ty), mask=keep)
        dz_pre = tl.zeros((BB, ZP), tl.float32)  # at the argument of z^{r+1}'s tanh
        tl.debug_barrier()  # … and all must have written this one's
        for k in range(last):
            r = last - k
            slot = scratch + ((r - 1) * BB + tl.arange(0, BB))[:, None] * SCRATCH
            item = work + (((r - 1) * M).to(tl.int64) + place)[:, None] * WIDTH
            own = slot + col[None, :]
            grads = item + GRAD + col[None, :]
            h, s, g_hat = tl.load(own), tl.load(own + HP), tl.load(own + 2 * HP)
            if OWN:
                W = W_h + (r - 1) * 2 * H * H
                W_hs, W_hg = halves(W, H, H, H, HP, HP, BB)
            elif not RESIDENT:
                W_hs, W_hg = halves(W_h, H, H, H, HP, HP, BB)
            if ELASTIC:
                is_open = count >= r
                depth_r = tl.full((), 0, tl.int32) + r
                growth = gate_growth(a_row, alpha_t, depth_r)
                d = tl.where(is_open, b_row - e_alpha * growth, 0.0)
                g = d * g_hat
                dg = tl.where(is_open, dh * (s - h), 0.0)
                ds = tl.where(is_open, dh * g, 0.0)
                dh = tl.where(is_open, dh * (1.0 - g), dh)
                dg_hat = dg * d
                dd = dg * g_hat
                d_growth = -e_alpha * dd
                d_v = d_growth * (growth + 1.0)
                sum_beta += dd
                sum_alpha += d_growth * growth + (depth_r.to(tl.float32) - 1.0) * d_v
                d_alpha_t += depth_r.to(tl.float32) * d_v
            else:
                ds = tl.where(keep, dh * g_hat, 0.0)
                dg_hat = tl.where(keep, dh * (s - h), 0.0)
                dh = tl.where(keep, dh * (1.0 - g_hat), dh)
            if KIND != NONE:
                if not RESIDENT:
                    W_zh = matrix(W_zs, 2 * H, Z, H, ZP, HP, BB)
                    W_zg = matrix(W_zs + H, 2 * H, Z, H, ZP, HP, BB)
                ds += times(dz_pre, W_zh, BB, PRECISION)
                dg_hat += times(dz_pre, W_zg, BB, PRECISION)
            dx_s = ds * (1.0 - s * s)
            dx_g = dg_hat * g_hat * (1.0 - g_hat)
            sum_s += dx_s
            sum_g += dx_g
            if r == 1:
                tl.store(d_u + x, dx_s.to(d_u.dtype.element_ty), mask=keep)
                tl.store(d_u + x + H, dx_g.to(d_u.dtype.element_ty), mask=keep)
            if KIND != NONE:
                w_s, w_g = tl.load(own + 3 * HP), tl.load(own + 4 * HP)
                q_s, q_g = tl.load(own + 5 * HP), tl.load(own + 6 * HP)
                c_s, c_g = tl.load(own + 7 * HP), tl.load(own + 8 * HP)
                a_s, a_g = tl.load(own + 9 * HP), tl.load(own + 10 * HP)
                Wh_s, Wh_g = tl.load(own + 11 * HP), tl.load(own + 12 * HP)
                z = tl.load(slot + 13 * HP + zcol[None, :])
                dWh_s, dh_s, dw_s, dq_s, da_s, dc_s = change_back(
                    dx_s, Wh_s, h, w_s, q_s, a_s, c_s, da_s, dc_s, KIND
                )
                dWh_g, dh_g, dw_g, dq_g, da_g, dc_g = change_back(
                    dx_g, Wh_g, h, w_g, q_g, a_g, c_g, da_g, dc_g, KIND
                )
                dh += dh_s + dh_g
                if not RESIDENT:
                    P_s, P_g = halves(P, Z, H, Z, HP, ZP, BB)
                    W_zz = matrix(W_z, Z, Z, Z, ZP, ZP, BB)
                dz = two_times(dw_s, P_s, dw_g, P_g, BB, PRECISION) + times(dz_pre, W_zz, BB, PRECISION)
                tl.store(grads + 3 * H, dw_s, mask=keep)
                tl.store(grads + 4 * H, dw_g, mask=keep)
                if GATED:
                    if not RESIDENT:
                        Q_s, Q_g = halves(P_bar, Z, H, Z, HP, ZP, BB)
                    dq_s = dq_s * q_s * (1.0 - q_s)
                    dq_g = dq_g * q_g * (1.0 - q_g)
                    tl.store(grads + 5 * H, dq_s, mask=keep)
                    tl.store(grads + 6 * H, dq_g, mask=keep)
                    dz += two_times(dq_s, Q_s, dq_g, Q_g, BB, PRECISION)
                dz_pre = dz * (1.0 - z * z)
                if r > 1:
                    # One inner step up, where it meets the s, ĝ and z it was made from.
                    above = item - M.to(tl.int64) * WIDTH + GRAD + 7 * H + zcol[None, :]
                    tl.store(above, dz_pre, mask=live[:, None] & (zcol < Z)[None, :])
                else:
                    sum_z += dz
            else:
                dWh_s, dWh_g = dx_s, dx_g
            tl.store(grads, dWh_s, mask=keep)
            tl.store(grads + H, dWh_g, mask=keep)
            dmh = two_times(dWh_s, W_hs, dWh_g, W_hg, BB, PRECISION)
            dh += dmh * m if MASKED else dmh
        if ELASTIC:
            du_a = d_alpha_t * alpha_t * (1.0 - alpha_t)
            tl.store(d_u + x + 2 * H, du_a.to(d_u.dtype.element_ty), mask=keep)
            tl.store(work + place[:, None] * WIDTH + GRAD + 2 * H + col[None, :], du_a, mask=keep)
            if not RESIDENT:
                W_a = matrix(W_ah, H, H, H, HP, HP, BB)
            dmh = times(du_a, W_a, BB, PRECISION)
            dh += dmh * m if MASKED else dmh

    tl.store(d_h + state, dh, mask=present)
    total_row = sums + program * (4 * HP + ZP) + col
    tl.store(total_row, tl.sum(sum_s, axis=0))
    tl.store(total_row + HP, tl.sum(sum_g, axis=0))
    tl.store(total_row + 2 * HP, tl.sum(sum_alpha, axis=0))
    tl.store(total_row + 3 * HP, tl.sum(sum_beta, axis=0))
    tl.store(sums + program * (4 * HP + ZP) + 4 * HP + zcol, tl.sum(sum_z, axis=0))
