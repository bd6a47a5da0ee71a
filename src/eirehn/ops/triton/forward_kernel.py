"""The whole sequence of one tile of samples in one program, forward."""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.
# ruff: noqa: SIM102, SIM108, SIM109
# An `if` on a constexpr is decided by the compiler: it stands alone, so that it is not mixed with one on data.

import triton
import triton.language as tl

from .pieces import (
    BOUNDED,
    NONE,
    PAPER,
    RECURSIVE,
    change,
    gate_growth,
    halves,
    matrix,
    open_steps,
    steps_of,
    tanh,
    times_t,
    two_times_t,
    vector,
)


@triton.jit
def step_inputs(
    u,
    batch_sizes,
    offsets,
    t,
    T,
    rows,
    col,
    H: tl.constexpr,
    U: tl.constexpr,
    ELASTIC: tl.constexpr,
):
    """What a time step reads: its packed rows, which samples are still running, and their projected inputs."""
    t = tl.minimum(tl.maximum(t, 0), T - 1)
    size = tl.load(batch_sizes + t)
    n = tl.load(offsets + t) + rows  # (BB,)
    live = rows < size
    keep = live[:, None] & (col < H)[None, :]  # (BB, HP)
    x = u + n[:, None] * U + col[None, :]
    u_s = tl.load(x, mask=keep, other=0.0).to(tl.float32)
    u_g = tl.load(x + H, mask=keep, other=0.0).to(tl.float32)
    if ELASTIC:
        u_a = tl.load(x + 2 * H, mask=keep, other=0.0).to(tl.float32)
    else:
        u_a = u_s
    return n, live, keep, u_s, u_g, u_a


# fmt: off
# Sizes that change from call to call are not specialized on: each new value would be a new compilation.
@triton.jit(do_not_specialize=["N", "B", "T", "R", "SETS", "nil"])
def forward_kernel(
    u, h0, mask,
    W_h, b, W_ah, alpha, beta, z1, W_zs, W_z, b_z, P, P_bar, b_bar,
    batch_sizes, offsets, out, depth,
    N, B, T, R, SETS, nil,
    H: tl.constexpr, Z: tl.constexpr, HP: tl.constexpr, ZP: tl.constexpr, BB: tl.constexpr, KIND: tl.constexpr,
    ELASTIC: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr, REVERSE: tl.constexpr,
    RESIDENT: tl.constexpr, PRECISION: tl.constexpr,
):
    # fmt: on
    GATED: tl.constexpr = (KIND == PAPER) or (KIND == RECURSIVE) or (KIND == BOUNDED)
    U: tl.constexpr = 3 * H if ELASTIC else 2 * H
    member = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * BB
    rows = first + tl.arange(0, BB)  # (BB,)
    col = tl.arange(0, HP)
    inside = (col < H)[None, :]
    present = (rows < B)[:, None] & inside  # (BB, HP)

    u += member * N * U
    out += member * N * H
    depth += member * N
    W_h += member * SETS * 2 * H * H
    b += member * SETS * 2 * H
    state = (member * B + rows)[:, None] * H + col[None, :]
    h = tl.load(h0 + state, mask=present, other=0.0).to(tl.float32)
    if MASKED:
        m = tl.load(mask + state, mask=present, other=0.0).to(tl.float32)

    if not OWN:
        b_s, b_g = vector(b, H, HP), vector(b + H, H, HP)
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
        bz_row = vector(b_z + member * Z, Z, ZP)
        z_first = vector(z1 + member * Z, Z, ZP) + tl.zeros((BB, ZP), tl.float32)
        # z^1 is one vector for all samples and time steps, and so are w^1 and ḡ^1.
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
        bb_s, bb_g = vector(b_bar, H, HP), vector(b_bar + H, H, HP)
        q_s_first = tl.sigmoid(times_t(z_first, matrix(P_bar, Z, H, Z, HP, ZP, BB), BB, PRECISION) + bb_s)
        q_g_first = tl.sigmoid(times_t(z_first, matrix(P_bar + H * Z, Z, H, Z, HP, ZP, BB), BB, PRECISION) + bb_g)
        if RESIDENT:
            Q_s, Q_g = halves(P_bar, Z, H, Z, HP, ZP, BB)

    steps = steps_of(batch_sizes, first, T)
    t = steps - 1 if REVERSE else steps * 0
    n_next, live_next, keep_next, s_next, g_next, a_next = step_inputs(
        u, batch_sizes, offsets, t, T, rows, col, H, U, ELASTIC
    )
    for i in range(steps):
        n, live, keep, x_s, x_g, u_a = n_next, live_next, keep_next, s_next, g_next, a_next
        # The next step's inputs are asked for now, so that their way from memory hides behind this step.
        t = steps - 2 - i if REVERSE else i + 1
        n_next, live_next, keep_next, s_next, g_next, a_next = step_inputs(
            u, batch_sizes, offsets, t, T, rows, col, H, U, ELASTIC
        )
        if ELASTIC:
            if not RESIDENT:
                W_a = matrix(W_ah, H, H, H, HP, HP, BB)
            mh = h * m if MASKED else h
            alpha_t = tl.sigmoid(times_t(mh, W_a, BB, PRECISION) + u_a)
            count = open_steps(a_row, e_alpha, b_row, alpha_t, keep, R)
            taken = tl.max(count, axis=1)  # (BB,)
            last = tl.max(taken, axis=0)
            tl.store(depth + n, taken.to(tl.int64), mask=live)
        else:
            last = R
        c_s = tl.zeros((BB, HP), tl.float32)
        c_g = tl.zeros((BB, HP), tl.float32)
        a_s = tl.full((BB, HP), 1.0, tl.float32)
        a_g = tl.full((BB, HP), 1.0, tl.float32)
        w_s, w_g, q_s, q_g = c_s, c_g, c_s, c_g
        if KIND != NONE:
            z, w_s, w_g = z_first, w_s_first, w_g_first
        if GATED:
            q_s, q_g = q_s_first, q_g_first
        for r in range(1, last + 1):
            # Zero, but not to the compiler, which would take the loads below out of the loop and the weights with
            # them into registers that are not there.
            again = r * nil * 16
            if OWN:
                W = W_h + (r - 1) * 2 * H * H
                W_hs, W_hg = halves(W, H, H, H, HP, HP, BB)
                b_s, b_g = vector(b + (r - 1) * 2 * H, H, HP), vector(b + (r - 1) * 2 * H + H, H, HP)
            elif not RESIDENT:
                W_hs, W_hg = halves(W_h + again, H, H, H, HP, HP, BB)
            mh = h * m if MASKED else h
            pre_s, a_s, c_s = change(times_t(mh, W_hs, BB, PRECISION), h, w_s, q_s, a_s, c_s, KIND)
            pre_g, a_g, c_g = change(times_t(mh, W_hg, BB, PRECISION), h, w_g, q_g, a_g, c_g, KIND)
            s = tanh(pre_s + b_s + x_s)
            g_hat = tl.sigmoid(pre_g + b_g + x_g)
            x_s = tl.zeros((BB, HP), tl.float32)
            x_g = tl.zeros((BB, HP), tl.float32)
            if ELASTIC:
                is_open = count >= r
                depth_r = tl.full((), 0, tl.int32) + r
                d = tl.where(is_open, b_row - e_alpha * gate_growth(a_row, alpha_t, depth_r), 0.0)
                g = d * g_hat
            else:
                is_open = keep
                g = g_hat
            h = tl.where(is_open, g * s + (1.0 - g) * h, h)
            if KIND != NONE:
                if r < last:
                    if not RESIDENT:
                        W_zh = matrix(W_zs + again, 2 * H, Z, H, ZP, HP, BB)
                        W_zg = matrix(W_zs + again + H, 2 * H, Z, H, ZP, HP, BB)
                        W_zz = matrix(W_z + again, Z, Z, Z, ZP, ZP, BB)
                        P_s, P_g = halves(P + again, Z, H, Z, HP, ZP, BB)
                    z = tanh(
                        two_times_t(s, W_zh, g_hat, W_zg, BB, PRECISION) + times_t(z, W_zz, BB, PRECISION) + bz_row
                    )
                    w_s, w_g = times_t(z, P_s, BB, PRECISION), times_t(z, P_g, BB, PRECISION)
                    if GATED:
                        if not RESIDENT:
                            Q_s, Q_g = halves(P_bar + again, Z, H, Z, HP, ZP, BB)
                        q_s = tl.sigmoid(times_t(z, Q_s, BB, PRECISION) + bb_s)
                        q_g = tl.sigmoid(times_t(z, Q_g, BB, PRECISION) + bb_g)
        tl.store(out + n[:, None] * H + col[None, :], h.to(out.dtype.element_ty), mask=keep)
