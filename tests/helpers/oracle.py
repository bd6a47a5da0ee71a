"""NumPy float64 oracle for RHN, SRHN, SREHN, EIREHN and ACT, from the equations alone.

Slow on purpose: one sample, one time step, one inner step at a time, and the weight matrix of every
sample is really built, so that it checks the element-wise shortcut of the implementation. Equation
numbers are those of the paper (Park & Yoo); it shares no code with `src`.

`np.diag(a) @ W` and `W @ np.diag(m)` multiply by explicit zeros, so a NaN or infinite *weight* spreads to
other units here; NaN in the input, the state or the gate parameters behaves as the equations say.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Params = Mapping[str, npt.NDArray[Any]]


class Result(NamedTuple):
    """Outputs (T,B,H), final state (B,H) or (B,S), inner steps (T,B) and their cost (T,B)."""

    out: Array
    h_n: Array
    depth: npt.NDArray[np.int64]
    cost: Array


class Weight(NamedTuple):
    """W^r = base + change, kept apart because dropout masks the input of the base alone."""

    base: Array
    change: Array


def softplus(a: Array) -> Array:
    """log(1 + e^a), written so that it does not overflow."""
    return np.maximum(a, 0.0) + np.log1p(np.exp(-np.abs(a)))


def sigm(a: Array) -> Array:
    """1 / (1 + e^-a), written so that it does not overflow."""
    return np.exp(-softplus(-a))


def elastic_gate(alpha: Array, beta: Array, alpha_t: Array, r: int) -> Array:
    """Eq. 11: d^r = max(beta + e^alpha - e^((alpha + alpha_t) r), 0). NaN stays NaN."""
    return np.maximum(beta + np.exp(alpha) - np.exp((alpha + alpha_t) * r), 0.0)


def depth_bound(alpha: Array, beta: Array) -> Array:
    """Eq. 15 per unit: floor(log(beta + e^alpha) / alpha). Float, since a vanishing alpha gives inf."""
    return np.floor(np.log(beta + np.exp(alpha)) / alpha)


def highway(
    system: str,
    p: Params,
    x: npt.ArrayLike,
    h0: npt.ArrayLike,
    *,
    max_depth: int,
    weight_update: str = "paper",
    lengths: Sequence[int] | None = None,
    x_mask: npt.ArrayLike | None = None,
    h_mask: npt.ArrayLike | None = None,
) -> Result:
    """h[t] = S(h[t-1], x[t]) (Eq. 1) for a batch x (T,B,X) of sequences that start at h0 (B,H)."""
    p, x, h0 = _float64(p), np.asarray(x, np.float64), np.asarray(h0, np.float64)
    steps, batch, _ = x.shape
    x_mask = np.ones_like(x[0]) if x_mask is None else np.asarray(x_mask, np.float64)
    h_mask = np.ones_like(h0) if h_mask is None else np.asarray(h_mask, np.float64)
    result = _empty(steps, batch, h0.shape[1], h0.shape[1])
    for b in range(batch):
        h = h0[b]
        for t in range(steps if lengths is None else lengths[b]):
            if system in ("RHN", "SRHN"):
                h = rhn_step(system, p, x[t, b], h, max_depth, x_mask[b], h_mask[b])
                depth, cost = max_depth, float(max_depth)
            else:
                update = weight_update if system == "EIREHN" else "none"
                h, depth, cost = rehn_step(update, p, x[t, b], h, max_depth, x_mask[b], h_mask[b])
            result.out[t, b], result.depth[t, b], result.cost[t, b] = h, depth, cost
        result.h_n[b] = h
    return result


def rhn_step(system: str, p: Params, x: Array, h: Array, max_depth: int, x_mask: Array, h_mask: Array) -> Array:
    """Eqs. 6-8 with the coupled carry gate c = 1 - t; SRHN has one W_h and b for all depths."""
    size = h.size
    for r in range(1, max_depth + 1):
        w = p["W_h"][r - 1] if system == "RHN" else p["W_h"]
        bias = p["b"][r - 1] if system == "RHN" else p["b"]
        pre = w @ (h_mask * h) + bias
        if r == 1:
            pre = pre + p["W_x"] @ (x_mask * x)
        s, transform = np.tanh(pre[:size]), sigm(pre[size:])
        h = transform * s + (1 - transform) * h
    return h


def rehn_step(
    update: str, p: Params, x: Array, h: Array, max_depth: int, x_mask: Array, h_mask: Array
) -> tuple[Array, int, float]:
    """Algorithm 1 (Eqs. 9-22): h[t], the depth R_t and the cost, the largest root r of d^r = 0 over the units,
    which above R = max_depth + 1 grows as R (1 + log(r / R))."""
    size = h.size
    halves = slice(0, size), slice(size, 2 * size)
    alpha, beta = softplus(p["alpha_hat"]), sigm(p["beta_hat"])  # Eqs. 13, 12
    alpha_t = sigm(p["W_ah"] @ (h_mask * h) + p["W_ax"] @ (x_mask * x) + p["b_a"])  # Eq. 14

    weights = [Weight(p["W_h"][rows], np.zeros((size, size))) for rows in halves]
    z = np.zeros(0)
    if update != "none":
        s, g_hat, z = p["s_0"], p["g_0"], p["z_0"]

    with np.errstate(invalid="ignore"):  # of a NaN gate
        root = np.max(np.logaddexp(np.log(beta), alpha) / (alpha + alpha_t))
    cost = min(root, max_depth + 1) + (max_depth + 1) * max(np.log(root / (max_depth + 1)), 0.0)
    depth = 0
    for r in range(1, max_depth + 1):
        d = elastic_gate(alpha, beta, alpha_t, r)
        if r > 1:
            d = np.where(np.isnan(d), 0.0, d)
        # At r = 1 a NaN is not equal to zero, hence open: the unit turns NaN instead of hiding the fault.
        if np.all(d == 0):
            break
        if update != "none":
            z = np.tanh(p["W_zh"] @ s + p["W_zg"] @ g_hat + p["W_z"] @ z + p["b_z"])  # Eq. 18
        pre = []
        for i, rows in enumerate(halves):
            used, weights[i] = weight_step(update, p, rows, z, weights[i])
            w_r = used.base @ np.diag(h_mask) + used.change
            a = w_r @ h + p["b"][rows]
            if r == 1:
                a = a + p["W_x"][rows] @ (x_mask * x)
            pre.append(a)
        s, g_hat = np.tanh(pre[0]), sigm(pre[1])  # Eqs. 16, 22
        g = d * g_hat  # Eq. 10
        h = np.where(d == 0, h, g * s + (1 - g) * h)  # Eq. 9
        depth = r
    return h, depth, float(cost)


def weight_step(update: str, p: Params, rows: slice, z: Array, last: Weight) -> tuple[Weight, Weight]:
    """Eqs. 17-22 for the residual or the gate: the matrix that meets h^{r-1} at step r, and W^r to carry on.

    paper, outer    used g_bar W^{r-1} + (1 - g_bar) dW^r, carried W^{r-1} + dW^r
    recursive       used and carried g_bar W^{r-1} + (1 - g_bar) dW^r
    bounded         the same, with dW^r = diag(tanh(P z^r)) in place of diag(P z^r)
    additive        used and carried W^{r-1} + dW^r
    scaling         used diag(1 + P z^r) W, carried W
    """
    base, change = last
    if update == "none":
        return last, last
    if update == "scaling":
        return Weight(np.diag(1 + p["P"][rows] @ z) @ base, change), last
    outer = update == "outer"
    delta = np.outer(p["P_u"][rows] @ z, p["P_v"][rows] @ z) if outer else np.diag(p["P"][rows] @ z)  # Eqs. 19, 20
    if update == "bounded":
        delta = np.tanh(delta)  # zero beside the diagonal stays zero
    added = Weight(base, change + delta)  # Eq. 17
    if update == "additive":
        return added, added
    g_bar = sigm(p["P_bar"][rows] @ z + p["b_bar"][rows])  # Eq. 21
    gated = Weight(np.diag(g_bar) @ base, np.diag(g_bar) @ change + np.diag(1 - g_bar) @ delta)  # Eq. 22
    return gated, gated if update in ("recursive", "bounded") else added


def act(
    kind: str,
    p: Params,
    x: npt.ArrayLike,
    s0: npt.ArrayLike,
    *,
    epsilon: float,
    max_depth: int,
    lengths: Sequence[int] | None = None,
) -> Result:
    """Adaptive Computation Time (Graves 2016) around a torch cell; s0 (B,S) with S = 2H, [h; c], for LSTM.

    `depth` is N(t) and `cost` the ponder N(t) + R(t). The mean-field state is carried to the next time step.
    """
    p, x, s0 = _float64(p), np.asarray(x, np.float64), np.asarray(s0, np.float64)
    steps, batch, _ = x.shape
    size = p["W_hh"].shape[1]
    result = _empty(steps, batch, size, s0.shape[1])
    for b in range(batch):
        s = s0[b]
        for t in range(steps if lengths is None else lengths[b]):
            states, weights = act_step(kind, p, x[t, b], s, epsilon, max_depth)
            s = sum((w * state for w, state in zip(weights, states, strict=True)), np.zeros_like(s))
            result.out[t, b] = s[:size]
            result.depth[t, b] = len(states)
            result.cost[t, b] = len(states) + weights[-1]
        result.h_n[b] = s
    return result


def act_step(
    kind: str, p: Params, x: Array, s: Array, epsilon: float, max_depth: int
) -> tuple[list[Array], list[float]]:
    """The states s^1..s^N of one time step and their weights p^1..p^{N-1}, R."""
    size = p["W_hh"].shape[1]
    states: list[Array] = []
    weights: list[float] = []
    for n in range(1, max_depth + 1):
        flag = 1.0 if n == 1 else 0.0
        s = cell(kind, p, np.append(x, flag), s)
        states.append(s)
        halt = float(sigm(p["w_p"] @ s[:size] + p["b_p"][0]))
        if n == max_depth or sum(weights) + halt >= 1 - epsilon:
            weights.append(1 - sum(weights))
            break
        weights.append(halt)
    return states, weights


def cell(kind: str, p: Params, x: Array, s: Array) -> Array:
    """torch's RNN, GRU (r, z, n) and LSTM (i, f, g, o) cells with one bias, on the input side."""
    size = p["W_hh"].shape[1]
    h = s[:size]
    from_x = p["W_ih"] @ x + p["b"]
    from_h = p["W_hh"] @ h
    if kind == "RNN":
        return np.tanh(from_x + from_h)
    if kind == "GRU":
        (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(from_x, 3), np.split(from_h, 3)
        r, z = sigm(x_r + h_r), sigm(x_z + h_z)
        n = np.tanh(x_n + r * h_n)
        return (1 - z) * n + z * h
    i, f, g, o = np.split(from_x + from_h, 4)
    c = sigm(f) * s[size:] + sigm(i) * np.tanh(g)
    return np.concatenate([sigm(o) * np.tanh(c), c])


def _float64(p: Params) -> dict[str, Array]:
    return {name: np.asarray(value, np.float64) for name, value in p.items()}


def _empty(steps: int, batch: int, size: int, state: int) -> Result:
    """Zeros, which is also what the steps beyond a sequence's length hold."""
    return Result(
        out=np.zeros((steps, batch, size)),
        h_n=np.zeros((batch, state)),
        depth=np.zeros((steps, batch), np.int64),
        cost=np.zeros((steps, batch)),
    )
