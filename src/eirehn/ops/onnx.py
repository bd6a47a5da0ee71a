"""`eirehn::scan` in ONNX, for `torch.onnx.export`: time is a Scan, and the inner steps of an elastic gate or of ACT
are a Loop, which stops when no sequence of the batch takes another.

The gate is computed as `d^r = max(β − m^r, 0)` with `m^r = e^α (e^v − 1)` and `v = α (r−1) + α_t r`. From one inner
step to the next `m^{r+1} = m^r f + e^α (f − 1)` with `f = e^{α + α_t} = m^1 + e^α`, a sum of positive numbers. In
single precision its error is about `1e-7 e^α`, as that of ONNX Runtime's sigmoid in α_t is 3e-8.
"""

# No postponed annotations here: onnxscript reads a signature off them.
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import INT64, evaluator
from onnxscript.function_libs.torch_lib.registration import torch_op
from onnxscript.function_libs.torch_lib.tensor_typing import TFloat

from .exported import TORCH, blank

DOUBLE, BOOL, LONG = ir.DataType.DOUBLE, ir.DataType.BOOL, ir.DataType.INT64
ACCEPTED = (ir.DataType.FLOAT, DOUBLE)
GATES = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 3, 1, 2]}
"""The order of torch's gates in ONNX."""
_numbers = itertools.count()  # a name must not appear twice in a file, in none of its graphs

Value = Any  # an ir.Value
Values = tuple[Value, ...]
Weights = Mapping[str, Value]


class Graph:
    """Makes the nodes of a graph: `op.Add(a, b)`."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.nodes: list[ir.Node] = []

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        return partial(self._node, kind)

    def _node(self, kind: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        values = [self.number(each) if isinstance(each, float) else each for each in inputs]
        node = ir.Node("", kind, values, ir.convenience.convert_attributes(attributes), num_outputs=outputs)
        for output in node.outputs:
            output.name = _name()
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def number(self, value: Any, dtype: Any = None) -> Value:
        """A constant, of the dtype of the weights by default."""
        return self.Constant(value=ir.tensor(np.asarray(value, (dtype or self.dtype).numpy())))

    def integers(self, *values: int) -> Value:
        return self.number(values, LONG)

    def product(self, x: Value, weight: Value) -> Value:
        """`W x` for all time steps at once."""
        return self.MatMul(x, self.Transpose(weight, perm=[1, 0]))

    def parts(self, x: Value, count: int) -> Values:
        found = self.Split(x, axis=-1, num_outputs=count, outputs=count)
        return found if count > 1 else (found,)

    def piece(self, x: Value, begin: int, end: int, axis: int = 0) -> Value:
        return self.Slice(x, *(self.integers(each) for each in (begin, end, axis)))


def _name() -> str:
    return f"eirehn_{next(_numbers)}"


def _input(dtype: Any) -> Value:
    return ir.Value(name=_name(), type=ir.TensorType(dtype))


def over_time(
    op: Graph,
    step: Callable[[Graph, Value, Values], Values],
    state: Value,
    inputs: Values,
    reverse: bool,
    hidden: int,
) -> Values:
    """The last state, and the outputs and perhaps depths that follow it in `step(op, state, inputs)`, of all time
    steps."""
    body, first = Graph(op.dtype), _input(op.dtype)
    own = tuple(_input(op.dtype) for _ in inputs)
    results = step(body, first, own)
    for result, size in zip(results, (state.shape[1], hidden, None), strict=False):  # ONNX Runtime asks for shapes
        result.shape = ir.Shape([None] if size is None else [None, size])
        result.dtype = LONG if size is None else op.dtype
    count = len(results) - 1
    graph = ir.Graph([first, *own], list(results), nodes=body.nodes, name=_name())
    options = {
        "num_scan_inputs": len(inputs),
        "scan_input_directions": [int(reverse)] * len(inputs),
        "scan_output_directions": [int(reverse)] * count,
    }
    return op.Scan(state, *inputs, body=graph, outputs=1 + count, **options)  # type: ignore[no-any-return]


def loop(
    op: Graph, most: int, goes_on: Value, step: Callable[[Graph, Value, Values], Values], *carried: Any
) -> Values:
    """The last of values that `step(op, index, values)` changes, at `most` so many times and while its first result
    is true. `carried` are pairs of a value and its dtype."""
    body, own = Graph(op.dtype), [_input(dtype) for _, dtype in carried]
    index, condition = _input(LONG), _input(BOOL)
    index.shape = condition.shape = ir.Shape([])
    results = step(body, index, tuple(own))
    graph = ir.Graph([index, condition, *own], list(results), nodes=body.nodes, name=_name())
    values = [value for value, _ in carried]
    found = op.Loop(op.number(most, LONG), goes_on, *values, body=graph, outputs=len(values))
    return found if len(values) > 1 else (found,)


@torch_op("eirehn::scan", trace_only=True)
def eirehn_scan(
    x: TFloat, state: TFloat, parameters: Sequence[TFloat], cell: str, max_depth: int, reverse: bool
) -> tuple[TFloat, TFloat, INT64]:
    """As `exported.scan`."""
    dtype: Any = state.dtype
    if dtype not in ACCEPTED:
        raise ValueError(f"ONNX export takes float32 and float64 weights, got {dtype}: convert the model first")
    op, about = Graph(dtype), json.loads(cell)
    if about["kind"] in TORCH:
        results = _torch_layer(op, about, x, state, parameters, reverse)
    else:
        p = dict(zip(blank(cell)[1], parameters, strict=True))
        results = SYSTEMS[about["kind"]](op, about, p, x, state, max_depth, reverse)
    recorder: Any = evaluator.default()  # the exporter's own
    recorder.nodes.extend(op.nodes)
    return results


def _steps_and_batch(op: Graph, x: Value) -> Value:
    return op.Shape(x, start=0, end=2)


def _torch_layer(
    op: Graph, about: dict[str, Any], x: Value, state: Value, parameters: Sequence[Value], reverse: bool
) -> Values:
    kind, hidden = about["kind"], about["hidden_size"]
    order = GATES[kind]
    ordered = []
    for each in parameters:
        gates = [op.piece(each, index * hidden, (index + 1) * hidden) for index in order]
        ordered.append(op.Unsqueeze(op.Concat(*gates, axis=0), op.integers(0)))
    W, R, b = ordered
    first = op.parts(op.Unsqueeze(state, op.integers(0)), 2 if kind == "LSTM" else 1)
    options = {"hidden_size": hidden, "direction": "reverse" if reverse else "forward"}
    if kind == "GRU":
        options["linear_before_reset"] = 1
    biases = op.Concat(b, op.Sub(b, b), axis=1)
    given = (x, W, R, biases, None, *first)
    out, *last = op._node(kind, *given, outputs=1 + len(first), **options)
    depth = op.Expand(op.number(1, LONG), _steps_and_batch(op, x))
    last_state = op.Squeeze(op.Concat(*last, axis=-1), op.integers(0))
    return op.Squeeze(out, op.integers(1)), last_state, depth


def _highway(
    op: Graph, about: dict[str, Any], p: Weights, x: Value, state: Value, max_depth: int, reverse: bool
) -> Values:
    """RHN and SRHN, of fixed depth."""
    own = about["kind"] == "RHNCell"
    at = [op.number(r if own else 0, LONG) for r in range(max_depth)]
    weights = [
        (op.Gather(p["W_h"], r, axis=0), op.Gather(p["b"], r, axis=0)) if own else (p["W_h"], p["b"]) for r in at
    ]
    u = op.Add(op.product(x, p["W_x"]), weights[0][1])

    def step(op: Graph, h: Value, inputs: Values) -> Values:
        for r, (W_h, b) in enumerate(weights):
            s, t = _activations(op, op.Gemm(h, W_h, inputs[0] if r == 0 else b, transB=1))
            h = _mixed(op, s, t, h)
        return h, op.Identity(h)

    last, out = over_time(op, step, state, (u,), reverse, about["hidden_size"])
    return out, last, op.Expand(op.number(max_depth, LONG), _steps_and_batch(op, x))


def _activations(op: Graph, pre: Value) -> Values:
    s, g = op.parts(pre, 2)
    return op.Tanh(s), op.Sigmoid(g)


def _mixed(op: Graph, s: Value, g: Value, h: Value) -> Value:
    """`g s + (1 − g) h`."""
    return op.Add(h, op.Mul(g, op.Sub(s, h)))


def _elastic(
    op: Graph, about: dict[str, Any], p: Weights, x: Value, state: Value, max_depth: int, reverse: bool
) -> Values:
    """SREHN and EIREHN."""
    kind = about.get("weight_update", "none")
    alpha, beta = op.Min(op.Softplus(p["alpha_hat"]), 87.0), op.Sigmoid(p["beta_hat"])  # (H,), e^α is finite
    growth = op.Exp(alpha)
    less = op.Sub(growth, 1.0)
    u = op.Add(op.product(x, p["W_x"]), p["b"])  # (T, B, 2H)
    u_a = op.Add(op.product(x, p["W_ax"]), p["b_a"])  # (T, B, H)
    z: Values = ()
    change: Values = ()
    if kind != "none":
        starts = [op.Unsqueeze(p[name], op.integers(0)) for name in ("s_0", "g_0", "z_0")]
        W_zs = op.Concat(p["W_zh"], p["W_zg"], axis=1)
        z = (_hyper_step(op, p, W_zs, op.Concat(*starts[:2], axis=1), starts[2]),)  # (1, Z)
        change = _change(op, kind, p, z[0])

    def gate(op: Graph, m: Value) -> Value:
        return op.Relu(op.Sub(beta, m))

    def goes_on(op: Graph, d: Value) -> Value:  # a NaN does not stop the other sequences
        return op.Not(op.LessOrEqual(op.ReduceSum(d, keepdims=0), 0.0))

    def inner(op: Graph, h: Value, d: Value, u_x: Value, now: Values, kept: Values) -> tuple[Value, Value, Values]:
        """The state, `[s; ĝ]` and what the weight update keeps, after an inner step; `u_x` contains the bias."""
        if kind == "none":
            pre = op.Gemm(h, p["W_h"], u_x, transB=1)
        else:
            pre, kept = _changed(op, kind, op.Gemm(h, p["W_h"], transB=1), h, now, kept)
            pre = op.Add(pre, u_x)
        s, g = _activations(op, pre)
        both = op.Concat(s, g, axis=-1) if kind != "none" else pre
        return _mixed(op, s, op.Mul(d, g), h), both, kept

    def step(op: Graph, h: Value, inputs: Values) -> Values:
        u_x, u_a = inputs
        alpha_t = op.Sigmoid(op.Gemm(h, p["W_ah"], u_a, transB=1))
        m = op.Mul(growth, op.Sub(op.Exp(alpha_t), 1.0))
        h, both, kept = inner(op, h, gate(op, m), u_x, change, ())
        if max_depth == 1:
            return h, op.Identity(h)
        factor, term = op.Add(m, growth), op.Mul(growth, op.Add(m, less))
        m = op.Add(op.Mul(m, factor), term)
        hyper = () if kind == "none" else (both, *z, *kept)

        def another(op: Graph, _: Value, values: Values) -> Values:
            h, m, d, *hyper = values
            now: Values = ()
            kept: Values = ()
            if kind != "none":
                both, z_r, kept = hyper[0], hyper[1], tuple(hyper[2:])
                z_r = _hyper_step(op, p, W_zs, both, z_r)
                now = _change(op, kind, p, z_r)
            h, both, kept = inner(op, h, d, p["b"], now, kept)
            m = op.Add(op.Mul(m, factor), term)
            d = gate(op, m)
            return goes_on(op, d), h, m, d, *(() if kind == "none" else (both, z_r, *kept))

        d = gate(op, m)
        own = [(each, op.dtype) for each in (h, m, d, *hyper)]
        h = loop(op, max_depth - 1, goes_on(op, d), another, *own)[0]
        return h, op.Identity(h)

    last, out = over_time(op, step, state, (u, u_a), reverse, about["hidden_size"])
    # The depth again, from all states at once; it disappears from the file if nobody asks for it.
    first = op.Unsqueeze(state, op.integers(0))
    if reverse:
        before = op.Concat(op.piece(out, 1, 1 << 62), first, axis=0)
    else:
        before = op.Concat(first, op.piece(out, 0, -1), axis=0)
    alpha_t = op.Cast(op.Sigmoid(op.Add(op.product(before, p["W_ah"]), u_a)), to=DOUBLE)
    alpha = op.Cast(alpha, to=DOUBLE)
    limit = op.Log(op.Add(op.Cast(beta, to=DOUBLE), op.Exp(alpha)))
    root = op.ReduceMax(op.Div(limit, op.Add(alpha, alpha_t)), op.integers(-1), keepdims=0)  # (T, B), `gate_root`
    opened = op.Sub(op.Ceil(root), op.number(1, DOUBLE))
    return out, last, op.Cast(op.Min(opened, op.number(max_depth, DOUBLE)), to=LONG)


def _hyper_step(op: Graph, p: Weights, W_zs: Value, both: Value, z: Value) -> Value:
    """`z^r`, from `[s; ĝ]^{r-1}` (B, 2H) and `z^{r-1}`."""
    return op.Tanh(op.Gemm(both, W_zs, op.Gemm(z, p["W_z"], p["b_z"], transB=1), transB=1))


def _change(op: Graph, kind: str, p: Weights, z: Value) -> Values:
    """What z alone says of the change of the weights: `w`, or `u` and `v`, and the gate `ḡ`."""
    names = ("P_u", "P_v") if kind == "outer" else ("P",)
    found = [op.Gemm(z, p[name], transB=1) for name in names]
    if kind == "bounded":
        found[0] = op.Tanh(found[0])
    if "P_bar" in p:
        found.append(op.Sigmoid(op.Gemm(z, p["P_bar"], p["b_bar"], transB=1)))
    return tuple(found)


def _changed(op: Graph, kind: str, Wh: Value, h: Value, now: Values, kept: Values) -> tuple[Value, Values]:
    """`Ŵ^r h` from `W h` as in cells/weight_update.py, and what the update keeps; `kept` is empty at r = 1."""
    if kind == "scaling":
        return op.Add(Wh, op.Mul(now[0], Wh)), ()
    if kind == "outer":
        return _outer(op, Wh, h, now, kept)
    hh = op.Concat(h, h, axis=-1)
    if kind == "additive":
        c = op.Add(kept[0], now[0]) if kept else now[0]
        return op.Add(Wh, op.Mul(c, hh)), (c,)
    w, g_bar = now
    if kind == "paper":
        before = op.Add(Wh, op.Mul(kept[0], hh)) if kept else Wh
        return _mixed(op, before, g_bar, op.Mul(w, hh)), (op.Add(kept[0], w) if kept else w,)
    a = op.Mul(g_bar, kept[0]) if kept else g_bar
    c = _mixed(op, kept[1], g_bar, w) if kept else op.Sub(w, op.Mul(g_bar, w))
    return op.Add(op.Mul(a, Wh), op.Mul(c, hh)), (a, c)


def _outer(op: Graph, Wh: Value, h: Value, now: Values, kept: Values) -> tuple[Value, Values]:
    """With all changes so far, u and v (B, 2, r, H)."""
    halves = op.integers(0, 2, 1, -1)
    u, v, g_bar = now
    u, v = op.Reshape(u, halves), op.Reshape(v, halves)  # (B, 2, 1, H)
    column = op.Unsqueeze(h, op.integers(1, -1))  # (B, 1, H, 1)

    def times(u: Value, v: Value) -> Value:
        found = op.ReduceSum(op.Mul(u, op.MatMul(v, column)), op.integers(2), keepdims=0)  # (B, 2, H)
        return op.Reshape(found, op.integers(0, -1))

    before = op.Add(Wh, times(*kept)) if kept else Wh
    batch = op.Concat(op.Shape(h, start=0, end=1), op.integers(2, 1, 1), axis=0)
    own = tuple(op.Expand(each, batch) for each in (u, v))
    past = tuple(op.Concat(*pair, axis=2) for pair in zip(kept, own, strict=True)) if kept else own
    return _mixed(op, before, g_bar, times(u, v)), past


def _act(
    op: Graph, about: dict[str, Any], p: Weights, x: Value, state: Value, max_depth: int, reverse: bool
) -> Values:
    """ACT; p, the halting probability, and its sum are in float32 at least."""
    size = about["input_size"]
    W_x, flag = (op.piece(p["cell.weight_ih"], *each) for each in ((0, size, 1), (size, size + 1, 1)))
    u = op.Add(op.product(x, W_x), p["cell.bias_ih"])
    first = op.Add(u, op.Squeeze(flag, op.integers(1)))

    def step(op: Graph, state: Value, inputs: Values) -> Values:
        def another(op: Graph, index: Value, values: Values) -> Values:
            state, mean, spent, running, depth = values
            u = op.Where(op.Equal(index, op.number(0, LONG)), inputs[1], inputs[0])
            state = TRANSITIONS[about["cell"]](op, u, state, p["cell.weight_hh"], p["cell.bias_hh"])
            h = op.parts(state, 2)[0] if about["cell"] == "LSTM" else state
            chance = op.Sigmoid(op.Gemm(h, p["w_p"], p["b_p"], transB=1))  # (B, 1)
            total = op.Add(spent, chance)
            below = op.Less(total, 1 - about["epsilon"])  # a NaN halts
            more = op.And(below, op.Less(index, op.number(max_depth - 1, LONG)))
            weight = op.Where(more, chance, op.Sub(1.0, spent))
            mean = op.Where(running, op.Add(mean, op.Mul(weight, state)), mean)
            depth = op.Add(depth, op.Cast(running, to=LONG))
            running = op.And(running, more)
            goes_on = op.Cast(op.ReduceMax(op.Cast(running, to=LONG), keepdims=0), to=BOOL)
            return goes_on, state, mean, total, running, depth

        nothing = op.Sub(state, state)
        batch = op.Concat(op.Shape(state, start=0, end=1), op.integers(1), axis=0)
        spent, count = op.Expand(op.number(0.0), batch), op.Expand(op.number(0, LONG), batch)
        running = op.Expand(op.number(True, BOOL), batch)
        own = ((state, op.dtype), (nothing, op.dtype), (spent, op.dtype), (running, BOOL), (count, LONG))
        _, mean, _, _, depth = loop(op, max_depth, op.number(True, BOOL), another, *own)
        out = op.parts(mean, 2)[0] if about["cell"] == "LSTM" else op.Identity(mean)
        return mean, out, op.Squeeze(depth, op.integers(1))

    last, out, depth = over_time(op, step, state, (u, first), reverse, about["hidden_size"])
    return out, last, depth


def _rnn(op: Graph, u: Value, h: Value, W: Value, b: Value) -> Value:
    return op.Tanh(op.Add(u, op.Gemm(h, W, b, transB=1)))


def _gru(op: Graph, u: Value, h: Value, W: Value, b: Value) -> Value:
    (u_r, u_z, u_n), (h_r, h_z, h_n) = op.parts(u, 3), op.parts(op.Gemm(h, W, b, transB=1), 3)
    r, z = op.Sigmoid(op.Add(u_r, h_r)), op.Sigmoid(op.Add(u_z, h_z))
    return _mixed(op, h, z, op.Tanh(op.Add(u_n, op.Mul(r, h_n))))


def _lstm(op: Graph, u: Value, state: Value, W: Value, b: Value) -> Value:
    h, c = op.parts(state, 2)
    i, f, g, o = op.parts(op.Add(u, op.Gemm(h, W, b, transB=1)), 4)
    c = op.Add(op.Mul(op.Sigmoid(f), c), op.Mul(op.Sigmoid(i), op.Tanh(g)))
    return op.Concat(op.Mul(op.Sigmoid(o), op.Tanh(c)), c, axis=-1)


TRANSITIONS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
SYSTEMS = {
    "RHNCell": _highway,
    "SRHNCell": _highway,
    "SREHNCell": _elastic,
    "EIREHNCell": _elastic,
    "ACTCell": _act,
}
