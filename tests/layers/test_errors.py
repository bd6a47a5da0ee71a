"""Every wrong argument gets an error that names it; torch's own wording where torch has one."""

import math

import pytest
import torch
from helpers.systems import SYSTEMS, make
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import eirehn

LAYERS = [eirehn.EIREHN, eirehn.SREHN, eirehn.SRHN, eirehn.RHN, eirehn.ACT]
BASELINES = [eirehn.RNN, eirehn.GRU, eirehn.LSTM]
FIXED = [eirehn.RHN, eirehn.SRHN, eirehn.RHNCell, eirehn.SRHNCell]
CELLS = [eirehn.EIREHNCell, eirehn.SREHNCell, eirehn.SRHNCell, eirehn.RHNCell, eirehn.ACTCell]


@pytest.mark.parametrize("kind", [*LAYERS, *BASELINES, *CELLS])
@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((-1, 3), ValueError, "input_size must be greater than zero"),
        ((0, 3), ValueError, "input_size must be greater than zero"),
        ((2, 0), ValueError, "hidden_size must be greater than zero"),
        ((2, -5), ValueError, "hidden_size must be greater than zero"),
        ((2.0, 3), TypeError, "input_size should be of type int, got: float"),
        ((2, "3"), TypeError, "hidden_size should be of type int, got: str"),
        ((2, True), TypeError, "hidden_size should be of type int, got: bool"),
    ],
)
def test_sizes(kind, sizes, error, message):
    with pytest.raises(error, match=message):
        kind(*sizes)


@pytest.mark.parametrize("kind", [*LAYERS, *CELLS])
@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), (None, TypeError)]
)
def test_depths(kind, value, error):
    if value is None and kind in FIXED:
        return  # the default
    for name in ("depth", "max_depth") if kind in FIXED else ("max_depth",):
        with pytest.raises(error, match=f"^{name} "):
            kind(2, 3, **{name: value})


@pytest.mark.parametrize("kind", FIXED)
def test_two_names_for_a_fixed_depth(kind):
    torch.manual_seed(0)
    named = kind(2, 3, max_depth=2)
    torch.manual_seed(0)
    other = kind(2, 3, depth=2)
    assert (named.depth, named.max_depth, kind(2, 3).max_depth) == (2, 2, 5)
    x = torch.randn(4, 2)
    for one, two in zip(named(x, return_depth=True), other(x, return_depth=True), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    with pytest.raises(TypeError, match=r"RHNCell: max_depth is another name for depth; give one of them"):
        kind(2, 3, depth=2, max_depth=2)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "dropout") for kind in [*LAYERS, *BASELINES]),
        *((kind, name) for kind in LAYERS[:-1] for name in ("input_dropout", "hidden_dropout")),
    ],
)
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, "half", True, None])
def test_dropout(kind, name, value):
    with pytest.raises(ValueError, match=rf"^{name} should be a number in range \[0, 1\]"):
        kind(2, 3, 2, **{name: value})


@pytest.mark.parametrize("kind", [*LAYERS, *BASELINES])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_layers": 0}, ValueError, "num_layers must be greater than zero"),
        ({"num_layers": 1.5}, TypeError, "num_layers should be of type int"),
        ({"batch_first": 1}, TypeError, "batch_first should be of type bool, got: int"),
        ({"bidirectional": "no"}, TypeError, "bidirectional should be of type bool, got: str"),
        ({"dtype": torch.int64}, ValueError, "dtype must be a floating point type, got torch.int64"),
        ({"dtype": "float32"}, TypeError, "dtype should be a torch.dtype, got: str"),
        ({"deep": 3}, TypeError, "unexpected keyword argument 'deep'"),
    ],
)
def test_options(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(2, 3, **options)


OWN = {
    "EIREHN": [
        ({"weight_update": "diagonal"}, ValueError, r"weight_update must be one of paper, .*, got 'diagonal'"),
        ({"weight_update": None}, ValueError, "weight_update must be one of"),
        ({"hyper_size": 0}, ValueError, "hyper_size must be greater than zero"),
        ({"hyper_size": 1.5}, TypeError, "hyper_size should be of type int"),
    ],
    "ACT": [
        ({"cell": "TCN"}, ValueError, "cell must be one of RNN, GRU, LSTM, got 'TCN'"),
        *(({"epsilon": value}, ValueError, "epsilon must be") for value in (-0.1, 1.0, math.nan)),
        *(({name: 0.5}, TypeError, name) for name in ("input_dropout", "hidden_dropout")),
    ],
}


@pytest.mark.parametrize("form", ["", "Cell"])
@pytest.mark.parametrize(
    ("kind", "options", "error", "message"), [(kind, *case) for kind, cases in OWN.items() for case in cases]
)
def test_options_of_one_system(kind, form, options, error, message):
    with pytest.raises(error, match=message):
        getattr(eirehn, kind + form)(2, 3, **options)


@pytest.mark.parametrize(
    ("initial", "error", "message"),
    [
        ({"alpha": 0.0}, ValueError, "alpha must be greater than 0"),
        ({"alpha": -1.0}, ValueError, "alpha must be greater than 0"),
        ({"gate_bias": math.inf}, ValueError, "gate_bias must be finite"),
        ({"beta_hat": math.nan}, ValueError, "beta_hat must be finite"),
        ({"weight_bound": -0.1}, ValueError, "weight_bound must be greater than 0"),
        ({"decay_bias": "low"}, TypeError, "decay_bias should be a number"),
        ({"speed": 1.0}, TypeError, "unexpected keyword argument 'speed'"),
    ],
)
def test_initial_values(initial, error, message):
    with pytest.raises(error, match=message):
        eirehn.EIREHN(2, 3).reset_parameters(**initial)


def float64(*size):
    return torch.zeros(*size, dtype=torch.float64)


def refuses(call, *cases):
    """`cases`: what `call` is given, and its error and message."""
    for given, error, message in cases:
        with pytest.raises(error, match=message):
            call(*given)


@pytest.mark.parametrize("name", SYSTEMS)
def test_inputs(name):
    layer = make(name, 2, 3)
    refuses(
        layer,
        ((float64(2),), ValueError, "Expected input to be 2D or 3D, got 1D instead"),
        ((float64(1, 1, 1, 2),), ValueError, "Expected input to be 2D or 3D, got 4D instead"),
        ((float64(4, 3, 5),), ValueError, r"input.size\(-1\) must be equal to input_size. Expected 2, got 5"),
        ((float64(0, 3, 2),), ValueError, "Expected sequence length to be larger than 0 in RNN"),
        (([[1.0, 2.0]],), TypeError, "input should be a Tensor, got: list"),
    )
    for dtype in (torch.int64, torch.float32, torch.bool, torch.complex64):
        with pytest.raises(ValueError, match=rf"input dtype \({dtype}\) does not match weight dtype"):
            layer(float64(4, 3, 2).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for dtype in (torch.int64, torch.bfloat16):  # the weights are float64, which autocast does not touch
            with pytest.raises(ValueError, match="does not match weight dtype"):
                layer(float64(4, 3, 2).to(dtype))


@pytest.mark.parametrize("name", SYSTEMS)
def test_states(name):
    x = float64(4, 5, 2)

    def state(*size, dtype=torch.float64):
        each = torch.zeros(*size, dtype=dtype)
        return (each, each) if name == "ACT-LSTM" else each

    refuses(
        make(name, 2, 3, num_layers=2),
        ((x, state(1, 5, 3)), ValueError, r"Expected hidden size \(2, 5, 3\), got \[1, 5, 3\]"),
        ((x, state(2, 4, 3)), ValueError, r"Expected hidden size \(2, 5, 3\), got \[2, 4, 3\]"),
        ((x, state(2, 5, 2)), ValueError, r"Expected hidden size \(2, 5, 3\), got \[2, 5, 2\]"),
        ((x, state(2, 3)), ValueError, "For batched 3-D input, hx should also be 3-D but got 2-D tensor"),
        (
            (x[:, 0], state(2, 1, 3)),
            ValueError,
            "For unbatched 2-D input, hx should also be 2-D but got 3-D tensor",
        ),
        ((x[:, 0], state(2, 4)), ValueError, r"Expected hidden size \(2, 3\), got \[2, 4\]"),
        ((x, "zeros"), TypeError, "hx should be a"),
        *(
            ((x, state(2, 5, 3, dtype=dtype)), ValueError, rf"hx dtype \({dtype}\) does not match weight dtype")
            for dtype in (torch.int64, torch.float32, torch.complex128)
        ),
    )


def test_an_lstm_s_state_is_a_pair():
    refuses(
        make("ACT-LSTM", 2, 3),
        ((float64(4, 5, 2), float64(1, 5, 3)), TypeError, r"hx should be a pair of Tensors \(h, c\), got: Tensor"),
        ((float64(4, 5, 2), (float64(1, 5, 3), float64(1, 4, 3))), ValueError, "h and c must have one shape"),
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_caps_at_call_time(name):
    layer = make(name, 2, 3)
    for value in (0, -1):
        with pytest.raises(ValueError, match="max_depth must be greater than zero"):
            layer(float64(4, 5, 2), max_depth=value)
    with pytest.raises(TypeError, match="max_depth should be of type int, got: float"):
        layer(float64(4, 5, 2), max_depth=2.0)


@pytest.mark.parametrize("name", ["RHN", "SRHN"])
def test_a_fixed_depth_cannot_be_exceeded(name):
    with pytest.raises(ValueError, match="max_depth must not exceed the network's depth of 4, got 5"):
        make(name, 2, 3)(float64(4, 5, 2), max_depth=5)


def test_packed_sequences():
    layer = make("EIREHN-paper", 2, 3)
    with pytest.raises(RuntimeError, match="greater than 0"):  # torch refuses to pack it
        pack_padded_sequence(float64(4, 2, 2), [3, 0], enforce_sorted=False)
    for sizes, rows in (([2, 0], 2), ([1, 2], 3), ([2, 1], 5), ([], 0)):
        packed = PackedSequence(float64(rows, 2), torch.tensor(sizes, dtype=torch.int64))
        with pytest.raises(ValueError, match=r"batch_sizes must be positive|sequence length to be larger"):
            layer(packed)
    with pytest.raises(ValueError, match=r"input.size\(-1\) must be equal to input_size"):
        layer(pack_padded_sequence(float64(4, 2, 3), [3, 2]))
    for data in (float64(3), float64(3, 1, 2), torch.tensor(1.0, dtype=torch.float64)):
        with pytest.raises(ValueError, match="input must have 2 dimensions"):
            layer(PackedSequence(data, torch.tensor([2, 1])))
    with pytest.raises(ValueError, match=r"Expected hidden size \(1, 2, 3\), got \[1, 3, 3\]"):
        layer(pack_padded_sequence(float64(4, 2, 2), [3, 2]), float64(1, 3, 3))


@pytest.mark.parametrize("name", SYSTEMS)
def test_cells(name):
    wrong = [(part, part) if name == "ACT-LSTM" else part for part in (float64(5, 4), float64(4, 3))]
    refuses(
        make(name, 2, 3).cells[0],
        ((float64(5, 2), wrong[0]), ValueError, r"Expected hidden size \(5, 3\), got \[5, 4\]"),
        ((float64(5, 2), wrong[1]), ValueError, "Expected hidden size"),
        ((float64(1, 1, 2),), ValueError, "Expected input to be 1D or 2D, got 3D instead"),
        ((float64(3),), ValueError, r"input.size\(-1\) must be equal to input_size. Expected 2, got 3"),
        ((float64(2).long(),), ValueError, "does not match weight dtype"),
        ((None,), TypeError, "input should be a Tensor"),
    )


def test_one_bias():
    with pytest.raises(TypeError, match="one_bias takes a torch RNN, GRU or LSTM, got: Linear"):
        eirehn.one_bias(nn.Linear(2, 3))
    with pytest.raises(ValueError, match="one_bias needs a module with biases"):
        eirehn.one_bias(nn.LSTM(2, 3, bias=False))


@pytest.mark.parametrize("max_depth", [2**62 + 1, 10**30])
def test_more_inner_steps_than_can_be_counted(max_depth: int) -> None:
    layer = eirehn.EIREHN(2, 3)
    with pytest.raises(ValueError, match=r"max_depth must be at most 2\*\*62"):
        layer(torch.zeros(1, 1, 2), max_depth=max_depth)
