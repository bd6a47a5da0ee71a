"""Estimators as users put them to work."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from helpers.toys import LEARN, QUICK, sequences, signs
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import eirehn.sklearn.base
from eirehn._internal.checks import UnstableTraining
from eirehn.sklearn import ElasticClassifier, ElasticRegressor

SMALL: dict[str, Any] = {"hidden_size": 8, "max_depth": 2}
# Python's filters of warnings are shared by all threads, and one that ends its own puts back those of another's.
THREADS = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def test_classes_of_sequences_of_any_length() -> None:
    x, others = sequences(120), sequences(60, seed=1)
    model = ElasticClassifier(**LEARN).fit(x, signs(x))
    assert model.score(others, signs(others)) > 0.9
    chances = model.predict_proba(others)
    np.testing.assert_allclose(chances.sum(1), 1.0, rtol=1e-12)
    assert (model.classes_[chances.argmax(1)] == model.predict(others)).all()


def test_what_a_table_had_is_forgotten() -> None:
    """By the next fit, of sequences of other lengths."""
    x = np.stack(sequences(12, equal=True))
    for again in (x[:, :4, :1], list(x[:, :4, :1])):
        model = ElasticClassifier(**QUICK).fit(x[:, :, 0], signs(list(x)))
        assert model.n_features_in_ == 6
        model.fit(again, signs(list(x)))
        assert not hasattr(model, "n_features_in_")
        assert len(model.predict(x[:2, :3, 0])) == 2


@pytest.mark.parametrize(("kind", "pooling"), [("EIREHN", "mean"), ("EIREHN", "last"), ("LSTM", "last")])
def test_each_sequence_gives_what_it_gives_alone(kind: str, pooling: str) -> None:
    x = sequences()
    settings = {**QUICK, "kind": kind, "pooling": pooling, "bidirectional": True, "members": 2}
    model = ElasticClassifier(**settings).fit(x, signs(x))
    together, depths = model.predict_proba(x), model.depths(x)
    for row, each in enumerate(x):
        np.testing.assert_allclose(model.predict_proba(each[None]), together[row : row + 1], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(model.depths(each[None])[0], depths[row])
        assert len(depths[row]) == len(each)


def test_numbers_in_their_own_units() -> None:
    x, others = sequences(150), sequences(50, seed=1)
    y, truth = ([1e4 * each[:, 0].mean() for each in part] for part in (x, others))
    model = ElasticRegressor(**LEARN).fit(x, y)
    assert model.score(others, truth) > 0.8
    assert model.predict(others).shape == (50,)
    several = ElasticRegressor(**QUICK).fit(x, np.stack([y, y], 1)).predict(others)
    assert several.shape == (50, 2)


def test_one_array_a_list_and_a_table_are_one() -> None:
    x = sequences(equal=True)
    y = signs(x)
    model = ElasticClassifier(**QUICK).fit(np.stack(x), y)
    expected = model.predict_proba(np.stack(x))
    tensor = torch.from_numpy(np.stack(x))
    for same in (x, tuple(x), tensor.requires_grad_(), np.stack(x).tolist(), np.array([*x, None], object)[:-1]):
        np.testing.assert_allclose(model.predict_proba(same), expected, rtol=1e-5, atol=1e-7)
    table = np.stack(x)[:, :, 0]
    one = ElasticClassifier(**QUICK).fit(table, y)
    for same in (table[:, :, None], list(table[:, :, None])):
        np.testing.assert_allclose(one.predict_proba(same), one.predict_proba(table), rtol=1e-5, atol=1e-7)
    uneven = [[1.0, 2.0], [3.0, 4.0, 5.0]]
    assert one.predict(uneven).shape == (2,)
    half = tensor.detach().bfloat16()
    np.testing.assert_array_equal(model.predict_proba(half), model.predict_proba(half.float().numpy()))


def test_the_callers_random_numbers_are_left_alone() -> None:
    x = sequences()
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    expected = np.random.rand(), torch.rand(1)  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    ElasticClassifier(**QUICK).fit(x, signs(x))
    assert (np.random.rand(), torch.rand(1)) == expected  # noqa: NPY002


def test_members_are_averaged() -> None:
    x = sequences()
    model = ElasticClassifier(**QUICK, members=3).fit(x, signs(x))
    together = model.predict_proba(x)
    chances = []
    for member in list(model.members_):
        model.members_ = [member]
        chances.append(model.predict_proba(x))
    np.testing.assert_allclose(together, np.mean(chances, 0), rtol=1e-12)
    assert not np.allclose(chances[0], chances[1])


@THREADS
def test_clone_search_pipeline_and_jobs() -> None:
    x = sequences(24, equal=True)
    y, stack = signs(x), np.stack(x)
    model = clone(ElasticClassifier(**QUICK))
    search = GridSearchCV(model, {"hidden_size": np.array([3, 5]), "members": [1, 2]}, cv=2).fit(x, y)
    assert search.best_params_["hidden_size"] in (3, 5)
    assert search.predict(x).shape == (24,)
    pipe = make_pipeline(StandardScaler(), ElasticRegressor(**QUICK))
    assert pipe.fit(stack[:, :, 0], stack[:, 0, 1]).predict(stack[:, :, 0]).shape == (24,)
    expected = cross_val_score(model, stack, y, cv=2)
    with joblib.parallel_backend("threading"):
        np.testing.assert_array_equal(cross_val_score(model, stack, y, cv=2, n_jobs=2), expected)


@THREADS
def test_threads_do_not_share_their_draws() -> None:
    """The same random state gives the same bits in each."""
    x = np.stack(sequences(24, equal=True))
    settings = {**QUICK, "dropout": 0.5, "epochs": 20}
    expected = ElasticClassifier(**settings).fit(x, signs(list(x))).predict_proba(x)
    fits = joblib.Parallel(4, backend="threading")(
        joblib.delayed(ElasticClassifier(**settings).fit)(x, signs(list(x))) for _ in range(8)
    )
    for model in fits:
        np.testing.assert_array_equal(model.predict_proba(x), expected)


@pytest.mark.slow
def test_early_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences are held out, the best epoch on them is kept, and a training that gets no better ends."""
    x = sequences(60)
    settings = {**LEARN, "epochs": 500, "learning_rate": 0.05, "patience": 5, "early_stopping": True}
    told: list[int] = []
    monkeypatch.setattr(
        eirehn.sklearn.base, "_display", lambda verbose: nullcontext(lambda event: told.append(event.epoch))
    )
    model = ElasticClassifier(**settings, validation_fraction=0.25).fit(x, signs(x))
    assert 30 <= max(told) < 200  # the rate rises for 25
    assert model.score(x, signs(x)) > 0.8
    with pytest.raises(ValueError, match="validation_fraction must be above 0"):
        ElasticClassifier(**{**settings, "validation_fraction": 0.0}).fit(x, signs(x))


def test_weights_of_classes_move_the_answer() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 3))
    y = (random.random(120) < 0.2).astype(int)  # nothing to learn but how frequent a class is
    settings = {**LEARN, "hidden_size": 4, "epochs": 10}
    shares = {}
    for weight in (None, "balanced", {0: 1.0, 1: 100.0}):
        model = ElasticClassifier(**settings, class_weight=weight).fit(x, y)
        shares[str(weight)] = model.predict_proba(x)[:, 1].mean()
    assert shares["None"] < 0.35
    assert 0.35 < shares["balanced"] < 0.65
    assert shares["{0: 1.0, 1: 100.0}"] > 0.65


def test_a_depth_penalty_takes_inner_steps_away() -> None:
    x = sequences(60, equal=True)
    settings = {**LEARN, "learning_rate": 0.03}
    free, penalised = (
        ElasticClassifier(**settings, depth_penalty=penalty).fit(x, signs(x)) for penalty in (0.0, 3.0)
    )
    assert np.mean(penalised.depths(x)) < np.mean(free.depths(x)) - 0.1
    assert free.depths(np.stack(x)).shape == (60, 6)


def test_predictions_by_fewer_inner_steps() -> None:
    x = sequences(20)
    y = np.array([each[:, 0].mean() for each in x])
    model = ElasticRegressor(**QUICK, members=2).fit(x, y)
    whole = model.predict(x)
    stopped = model.predict(x, max_depth=np.int64(1))
    for each, value in zip(x, stopped, strict=True):
        given = torch.from_numpy(each[None].astype(np.float32))
        alone = [member(given, max_depth=1).detach()[0, 0].double() for member in model.members_]
        assert value == pytest.approx(float(sum(alone)) / 2, rel=1e-5)
    assert not np.allclose(stopped, whole, rtol=1e-4)
    np.testing.assert_array_equal(model.predict(x, max_depth=2), whole)
    assert max(depth.max() for depth in model.depths(x, max_depth=1)) == 1
    classes = ElasticClassifier(**QUICK).fit(x, signs(x))
    likely = classes.predict_proba(x, max_depth=1).argmax(1)
    np.testing.assert_array_equal(classes.predict(x, max_depth=1), classes.classes_[likely])
    assert not np.allclose(classes.predict_proba(x, max_depth=1), classes.predict_proba(x))
    with pytest.raises(ValueError, match="max_depth must be"):
        model.predict(x, max_depth=0)
    with pytest.raises(ValueError, match=r"early needs a network with several inner steps"):
        ElasticRegressor(**{**QUICK, "max_depth": 1}, early=0.5).fit(x, y)
    with pytest.raises(ValueError, match="exceed the network's depth of 2, got 3"):
        ElasticRegressor(**QUICK, kind="RHN").fit(x, y).predict(x, max_depth=3)
    with pytest.raises(ValueError, match="LSTM has no inner steps"):
        ElasticRegressor(**QUICK, kind="LSTM").fit(x, y).predict(x, max_depth=1)


def nan_at(row: int, step: int, column: int) -> list[np.ndarray]:
    x = sequences(equal=True)
    x[row][step, column] = np.nan
    return x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (nan_at(3, 2, 1), "sequence 3, step 2, column 1"),
        (np.stack(nan_at(3, 2, 1)), "sequence 3, step 2, column 1"),
        ([*sequences(29), np.zeros((4, 3))], r"as many channels, got \[2, 3\]"),
        ([*sequences(29), np.zeros((0, 2))], r"sequence 29 must be"),
        ([*sequences(29), np.array([["a", "b"]])], r"sequence 29 must be numbers"),
        (np.zeros((30, 0, 2)), "there must be cases, steps and channels"),
        (np.zeros((30, 2, 2, 2)), "dim|expected"),
        (sequences(29), "inconsistent numbers of samples"),
    ],
)
def test_sequences_that_are_none(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ElasticClassifier(**QUICK).fit(x, signs(sequences()))


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "QRNN"},
        {"hidden_size": 0},
        {"epochs": -1},
        {"learning_rate": 0.0},
        {"device": "abacus"},
        {"members": 0},
        {"pooling": "max"},
        {"validation_fraction": 1.0},
        {"early": 1.0},
    ],
)
def test_wrong_settings(settings: dict[str, Any]) -> None:
    x = sequences()
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        ElasticClassifier(**{**QUICK, "early_stopping": True, **settings}).fit(x, signs(x))


def test_frames_of_unequal_lengths() -> None:
    pandas = pytest.importorskip("pandas")
    x = sequences()
    frames = [pandas.DataFrame(each, columns=["a", "b"], index=range(5, 5 + len(each))) for each in x]
    columns, channel = [frame["a"] for frame in frames], [each[:, :1] for each in x]
    for plain, given in ((x, frames), (channel, columns)):
        one, other = (ElasticClassifier(**QUICK).fit(each, signs(x)) for each in (plain, given))
        np.testing.assert_array_equal(one.predict_proba(plain), other.predict_proba(given))


@pytest.mark.parametrize("make", [ElasticClassifier, ElasticRegressor])
def test_what_is_held_out_is_not_standardised_by(make: Any) -> None:
    """A sum of powers of two says which they are."""
    x = 2.0 ** np.arange(30)[:, None, None]
    y = np.array(["a", "b", "b"] * 10) if make is ElasticClassifier else x[:, 0, 0] ** 2
    scaling = make(**QUICK, early_stopping=True, validation_fraction=0.3).fit(x, y).members_[0].scaling
    rows = [row for row in range(30) if round(scaling.mean[0] * 21) >> row & 1]
    assert len(rows) == 21
    np.testing.assert_allclose(scaling.mean, x[rows, 0].mean(0), rtol=1e-12)
    np.testing.assert_allclose(scaling.scale, x[rows, 0].std(0), rtol=1e-12)
    if make is ElasticRegressor:
        np.testing.assert_allclose(scaling.target_mean, [y[rows].mean()], rtol=1e-12)
        np.testing.assert_allclose(scaling.target_scale, [y[rows].std()], rtol=1e-12)


def test_predictions_come_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = sequences()
    model = ElasticClassifier(**QUICK).fit(x, signs(x))
    whole = model.predict_proba(x)
    monkeypatch.setattr(eirehn.models.inputs, "AT_ONCE", 7)
    np.testing.assert_allclose(model.predict_proba(x), whole, rtol=1e-5, atol=1e-6)


def test_data_that_do_not_fit() -> None:
    """Values too large, weights that are none, and other channels than those fitted."""
    x = sequences()
    y, plain = signs(x), {**QUICK, "standardise": False}
    wrong = [
        (ElasticClassifier(**QUICK), [each * 1e300 for each in x], y, "too large to standardise"),
        (ElasticClassifier(**plain), [each * 1e39 for each in x], y, "X has values that are too large"),
        (ElasticRegressor(**QUICK), x, np.arange(30) * 1e300, "too large to standardise"),
        (ElasticRegressor(**plain), x, np.arange(30) * 1e39, "y has values that are too large"),
    ]
    for weights in ((1, -1), (0, 0), (float("nan"), 1)):
        model = ElasticClassifier(**QUICK, class_weight=dict(zip(("above", "below"), weights, strict=True)))
        wrong.append((model, x, y, "class_weight must be finite, at least 0"))
    for model, inputs, target, said in wrong:
        with pytest.raises(ValueError, match=said):
            model.fit(inputs, target)
    model = ElasticClassifier(**QUICK).fit(x, y)
    for method in (model.predict, model.predict_proba, model.depths):
        with pytest.raises(ValueError, match="X has values that are too large"):
            method([each * 1e300 for each in x])
    with pytest.raises(ValueError, match="X has 1 channels, but ElasticClassifier is expecting 2"):
        model.predict([each[:, :1] for each in x])


def test_trainings_that_diverge_say_so() -> None:
    """Also where all weights are finite, if large, and predictions are not."""
    x = np.random.default_rng(0).normal(size=(48, 30, 2))
    for settings in ({"learning_rate": 1e30, "weight_decay": 1e30}, {"learning_rate": 1e5}):
        model = ElasticClassifier(epochs=4, random_state=1, **settings)
        with pytest.warns(UnstableTraining), pytest.raises(ValueError, match="the training diverged"):
            model.fit(x, x[:, :, 0].mean(1) > 0)


def test_without_scikit_learn() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import eirehn; import eirehn.sklearn"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "sklearn is not installed: pip install 'eirehn[sklearn]'" in ended.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # of the checks' own data
@parametrize_with_checks([ElasticClassifier(**SMALL, epochs=20), ElasticRegressor(**SMALL, epochs=80)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)
