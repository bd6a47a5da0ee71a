"""What people may give a model, and what `predict`, `predict_proba` and `depths` return, against `run`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from eirehn.models import Scaling, SequenceModel, SequenceNetwork, inputs

LENGTHS = [3, 7, 1, 5]
SCALING = Scaling((5.0, -2.0, 0.0), (2.0, 3.0, 1.0), (10.0, 20.0), (2.0, 3.0))


def make(
    kind: str = "EIREHN", *, last: bool = True, scaling: Scaling | None = None, outputs: int = 2
) -> SequenceModel:
    torch.manual_seed(0)
    network = SequenceNetwork(kind, 4, num_layers=2, max_depth=3, pooling="mean")
    return SequenceModel(network, 3, outputs, last=last, scaling=scaling)


def drawn() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(length, 3)) for length in LENGTHS]


def by_hand(model: SequenceModel, x: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The prediction and the mean depth of one sequence, standardised in NumPy."""
    scaling = model.scaling or Scaling((0.0,) * 3, (1.0,) * 3, (0.0,), (1.0,))
    inner = torch.from_numpy(((x - scaling.mean) / scaling.scale).astype(np.float32))[None]
    model.scaling, kept = None, model.scaling
    try:
        with torch.no_grad():
            outcome = model.run(inner, **options)
    finally:
        model.scaling = kept
    prediction = outcome.prediction[0].double().numpy() * scaling.target_scale + scaling.target_mean
    return prediction, outcome.depth[:, 0].double().mean(0).numpy()


@pytest.mark.parametrize("scaling", [None, SCALING], ids=["raw", "scaled"])
@pytest.mark.parametrize("last", [True, False], ids=["last", "each step"])
@pytest.mark.parametrize("most", [None, 1])
def test_sequences_of_unequal_lengths(scaling: Scaling | None, last: bool, most: int | None) -> None:
    model, x = make(last=last, scaling=scaling), drawn()
    padded = np.full((4, 7, 3), np.nan)  # the padding is not read
    for row, each in zip(padded, x, strict=True):
        row[: len(each)] = each
    expected = [by_hand(model, each, max_depth=most) for each in x]
    given = [
        (x, None),
        (tuple(map(torch.from_numpy, x)), None),
        *((values, lengths) for values in (padded, torch.from_numpy(padded)) for lengths in kinds_of(LENGTHS)),
    ]
    for values, lengths in given:
        numbers = model.predict(values, lengths, max_depth=most)
        depths = model.depths(values, lengths, max_depth=most)
        for row, (prediction, depth) in enumerate(expected):
            np.testing.assert_allclose(numbers[row], prediction, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(depths[row], depth)
        assert isinstance(numbers, np.ndarray if last else list)


def kinds_of(lengths: list[int]) -> list[Any]:
    return [lengths, np.array(lengths), torch.tensor(lengths), torch.tensor(lengths, dtype=torch.int32)]


def test_classes_and_their_probabilities() -> None:
    model, x = make(outputs=3), drawn()
    model.classes = ("rest", "run", "walk")
    logits = np.stack([by_hand(model, each)[0] for each in x])
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(x), expected, rtol=1e-5)
    assert model.predict(x).tolist() == [model.classes[at] for at in logits.argmax(1)]
    assert model.predict(x[0]) == model.classes[logits[0].argmax()]
    model.classes = (7, 8, 10)
    assert model.predict(x).dtype.kind == "i"
    model.classes = ()
    with pytest.raises(ValueError, match="this one predicts numbers"):
        model.predict_proba(x)


def test_one_number_for_each_sequence() -> None:
    model, x = make(outputs=1), np.zeros((5, 4, 3))
    assert model.predict(x).shape == (5,)
    assert model.predict(x[0]).shape == ()
    assert make(outputs=2).predict(x).shape == (5, 2)
    assert make(outputs=1, last=False).predict(x).shape == (5, 4, 1)
    assert make(outputs=1, last=False).predict(x[0]).shape == (4, 1)
    assert model.depths(x).shape == (5, 4)
    assert model.depths(x[0].tolist()).shape == (4,)


@pytest.mark.parametrize("at_once", [{"AT_ONCE": 2}, {"STEPS_AT_ONCE": 8}])
def test_predictions_come_in_batches(at_once: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = make(), drawn()
    whole, run, sizes = model.predict(x), model.run, []
    for name, value in at_once.items():
        monkeypatch.setattr(inputs, name, value)
    monkeypatch.setattr(model, "run", lambda x, **options: sizes.append(tuple(x.shape[:2])) or run(x, **options))
    np.testing.assert_allclose(model.predict(x), whole, rtol=1e-5)
    assert sizes == ([(2, 7), (2, 5)] if "AT_ONCE" in at_once else [(1, 3), (1, 7), (1, 1), (1, 5)])


def test_a_model_in_training_stays_in_training() -> None:
    model = make().train()
    model.predict(drawn())
    assert model.training


@pytest.mark.parametrize("kind", ["EIREHN", "LSTM", "ACT"])
@pytest.mark.parametrize("last", [True, False], ids=["last", "each step"])
def test_one_sequence_is_a_batch_of_one(kind: str, last: bool) -> None:
    model, x = make(kind, last=last), torch.randn(6, 3)
    whole, one = model.run(x[None], with_cost=True), model.run(x, with_cost=True)
    torch.testing.assert_close(one.prediction, whole.prediction[0])
    torch.testing.assert_close(one.cost, whole.cost[:, 0])
    assert one.depth.equal(whole.depth[:, 0])
    torch.testing.assert_close(
        model(x[3:], model.run(x[:3]).state), model.run(x[None, 3:], model.run(x[None, :3]).state).prediction[0]
    )


def test_a_call_takes_what_predict_takes() -> None:
    """And it has gradients."""
    model, x = make(scaling=SCALING), drawn()
    prediction = model(x)
    np.testing.assert_allclose(prediction.detach().numpy(), model.predict(x), rtol=1e-6)
    assert prediction.requires_grad
    torch.testing.assert_close(model(x[1]), prediction[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(x[1][None]), prediction[1:2], rtol=1e-5, atol=1e-5)
    tensor = torch.from_numpy(x[1])[None]
    torch.testing.assert_close(model(tensor, lengths=[7]), prediction[1:2], rtol=1e-5, atol=1e-5)
    raw = make()
    torch.testing.assert_close(raw(x[1].astype(np.float32)), raw(torch.from_numpy(x[1]).float()))


def nan_at(row: int, step: int) -> np.ndarray:
    x = np.zeros((2, 4, 3))
    x[row, step, 1] = np.nan
    return x


WRONG: list[tuple[Any, Any, str]] = [
    (np.zeros((2, 4, 2)), None, r"^expected 3 channels \(x, y, z\), got 2$"),
    (np.zeros((4, 2)), None, r"^expected 3 channels \(x, y, z\), got 2$"),
    ([np.zeros((4, 3)), np.zeros((5, 4))], None, r"^expected 3 channels \(x, y, z\), got 4$"),
    (np.zeros(3), None, r"x must be \(B, T, X\), \(T, X\), or a list of sequences \(T, X\), got shape \(3,\)"),
    (np.zeros((1, 2, 4, 3)), None, r"got shape \(1, 2, 4, 3\)"),
    ([], None, r"got shape \(0,\)"),
    (np.zeros((0, 4, 3)), None, r"x must have sequences and time steps, got shape \(0, 4, 3\)"),
    ("walk", None, "x must be numbers"),
    ([["a", "b", "c"]], None, "x must be numbers"),
    (nan_at(1, 2), None, "x contains NaN or infinity: sequence 1, step 2, column 1"),
    (nan_at(1, 2), [4, 3], "x contains NaN or infinity: sequence 1, step 2, column 1"),
    ([*nan_at(1, 2)], None, "x contains NaN or infinity: sequence 1, step 2, column 1"),
    (np.full((2, 4, 3), 1e300), None, "x has values that are too large for single precision"),
    (np.zeros((2, 4, 3)), [4], r"lengths must be whole numbers, one for each of 2 sequences, .* shape \(1,\)"),
    (np.zeros((2, 4, 3)), [4.0, 3.0], "lengths must be whole numbers, .* got torch.float"),
    (np.zeros((2, 4, 3)), [4, 5], "lengths must be from 1 to the number of time steps, 4, got 5"),
    (np.zeros((2, 4, 3)), [0, 4], "lengths must be from 1 to the number of time steps, 4, got 0"),
    (np.zeros((2, 4, 3)), "ab", "lengths must be whole numbers"),
    ([np.zeros((4, 3)), np.zeros((5, 3))], [4, 5], "lengths are for padded sequences"),
]


@pytest.mark.parametrize(("x", "lengths", "message"), WRONG)
def test_mistakes(x: Any, lengths: Any, message: str) -> None:
    model = make()
    model.signals = ("x", "y", "z")
    for method in (model.predict, model.depths):
        with pytest.raises(ValueError, match=message):
            method(x, lengths)


@pytest.mark.parametrize(
    ("x", "lengths", "message"),
    [
        (torch.zeros(2, 4, 2), None, "^expected 3 channels, got 2$"),
        (torch.zeros(3), None, r"got shape \(3,\)"),
        (torch.zeros(4, 3), [4], "lengths are for a batch of sequences"),
        (
            torch.zeros(2, 4, 3),
            torch.tensor([4, 5]),
            "lengths must be from 1 to the number of time steps, 4, got 5",
        ),
        (np.zeros((2, 4, 2)), None, "^expected 3 channels, got 2$"),
    ],
)
def test_mistakes_in_a_call(x: Any, lengths: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()(x, lengths=lengths)
