"""The mixture of softmaxes against its definition, one word at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from eirehn.mixture import MixtureOfSoftmaxes
from eirehn.models import LanguageModel, Network, SequenceModel

SHARP = {"weight_bound": 1.0}


def by_hand(model: LanguageModel, h: Any, seen: Any = 1.0, kept: Any = 1.0) -> Any:
    """Every p(w), (B, T, V), for outputs `h`: all loops. The masks are of these and of what each softmax reads."""
    assert model.mixture is not None
    V, c = (each.detach().numpy() for each in model.mixture.latents.parameters())
    (U,) = (each.detach().numpy() for each in model.mixture.prior.parameters())
    E = (model.embedding.weight if model.output is None else model.output).detach().numpy()
    b = model.bias.detach().numpy()
    h, kept = h * seen, np.broadcast_to(kept, (*h.shape[:2], len(V)))
    p = np.zeros((*h.shape[:2], len(b)))
    size = E.shape[1]
    for i, t in np.ndindex(*h.shape[:2]):
        weights = [math.exp(U[k] @ h[i, t]) for k in range(len(U))]
        for k, weight in enumerate(weights):
            rows = slice(k * size, (k + 1) * size)
            latent = np.tanh(V[rows] @ h[i, t] + c[rows]) * kept[i, t, rows]
            scores = [math.exp(E[w] @ latent + b[w]) for w in range(len(b))]
            for w, score in enumerate(scores):
                p[i, t, w] += weight / sum(weights) * score / sum(scores)
    return p


def outputs(model: LanguageModel, tokens: torch.Tensor) -> Any:
    return model.network.run(model.body, model.embedding(tokens), None, max_depth=None, with_cost=False)[0]


@pytest.mark.parametrize("kind", ["EIREHN", "LSTM"])
@pytest.mark.parametrize(("size", "count", "tied"), [(None, 2, True), (4, 3, True), (9, 2, True), (4, 3, False)])
def test_by_hand(kind: str, size: int | None, count: int, tied: bool) -> None:
    torch.manual_seed(0)
    network = Network(kind, 6, max_depth=2, mixture=count, embedding_size=size, tied=tied, start=SHARP)
    model = LanguageModel(network, 5).double().eval()
    tokens = torch.randint(0, 5, (3, 7))
    found = model(tokens).exp()
    expected = by_hand(model, outputs(model, tokens).detach().numpy())
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(expected.sum(-1), 1.0, rtol=1e-12)
    assert model.narrowing is None  # its own maps narrow


@pytest.mark.parametrize("by_step", [False, True])
def test_what_is_dropped_by_hand(by_step: bool, masks: dict[float, torch.Tensor]) -> None:
    """In training: a part of the outputs, and a part of what each softmax reads, of each its own."""
    torch.manual_seed(0)
    network = Network(
        "EIREHN",
        6,
        max_depth=2,
        mixture=3,
        embedding_size=4,
        output_dropout=0.5,
        mixture_dropout=0.6,
        step_masks=by_step,
        start=SHARP,
    )
    model = LanguageModel(network, 5).double().train()
    tokens = torch.randint(0, 5, (3, 7))
    found = model(tokens).exp().detach().numpy()
    steps = 7 if by_step else 1
    assert {p: tuple(mask.shape) for p, mask in masks.items()} == {0.5: (3, steps, 6), 0.6: (3, steps, 12)}
    assert all((mask == 0).any() and (mask != 0).any() for mask in masks.values())
    h = outputs(model, tokens).detach().numpy()
    np.testing.assert_allclose(found, by_hand(model, h, masks[0.5].numpy(), masks[0.6].numpy()), rtol=1e-12)
    np.testing.assert_allclose(model.eval()(tokens).exp().detach().numpy(), by_hand(model, h), rtol=1e-12)


def test_with_a_pointer_by_hand() -> None:
    """The mixture is what is left to the vocabulary."""
    torch.manual_seed(0)
    network = Network("LSTM", 6, pointer=2, mixture=3, embedding_size=4, start=SHARP)
    model = LanguageModel(network, 5).double().eval()
    assert model.pointer is not None
    tokens = torch.randint(0, 5, (2, 6))
    h = outputs(model, tokens).detach().numpy()
    expected = by_hand(model, h)
    W, b, s = (each.detach().numpy() for each in (*model.pointer.query.parameters(), model.pointer.sentinel))
    for i, t in np.ndindex(2, 6):
        q = np.tanh(W @ h[i, t] + b)
        shares = {j: math.exp(q @ h[i, j]) for j in range(max(0, t - 1), t + 1)}
        total = sum(shares.values()) + math.exp(q @ s)
        expected[i, t] *= math.exp(q @ s) / total
        for j, share in shares.items():
            expected[i, t, tokens[i, j]] += share / total
    np.testing.assert_allclose(model(tokens).exp().detach().numpy(), expected, rtol=1e-11)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("pointer", [0, 3])
def test_training_by_what_came_alone(members: int, pointer: int) -> None:
    """Losses and gradients are those of the whole mixture, and of what depth costs."""
    from eirehn.training.optimisation import Optimisation
    from eirehn.training.tasks import LanguageModelling

    torch.manual_seed(0)
    network = Network("EIREHN", 5, max_depth=2, mixture=3, pointer=pointer, embedding_size=4, start=SHARP)
    models = [LanguageModel(network, 6).double() for _ in range(members)]
    tokens = torch.randint(0, 6, (members, 3, 9))
    task = LanguageModelling(models, Optimisation(price=0.1))
    assert task.by_target
    found = task.loss((tokens[..., :-1], tokens[..., 1:], 1.0))
    found.backward()
    wanted = torch.zeros((), dtype=torch.float64)
    for model, own in zip(models, tokens, strict=True):
        outcome = model.run(own[:, :-1], with_cost=True)
        assert outcome.cost is not None
        p = outcome.prediction.exp()
        wanted = wanted - p.gather(-1, own[:, 1:, None]).log().mean() + 0.1 * outcome.cost.mean()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    wanted.backward()
    for name, value in zip(task.ensemble.names, task.ensemble.stacked, strict=True):
        gradients = [dict(model.named_parameters())[name].grad for model in models]
        torch.testing.assert_close(value.grad, torch.stack(gradients), rtol=1e-9, atol=1e-13)


def test_more_ranks_than_one_softmax_has() -> None:
    """What it is for. The logarithms that one softmax of E numbers gives to words, over all outputs, have at most
    E + 2 ranks: these, the bias and what norms them. A mixture's have more."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 40, (1, 60))
    ranks = {}
    for count in (1, 3):
        network = Network("LSTM", 20, mixture=count, embedding_size=3, start={"weight_bound": 2.0})
        log_p = LanguageModel(network, 40).double().eval()(tokens).log_softmax(-1)[0]
        ranks[count] = int(torch.linalg.matrix_rank(log_p.detach(), rtol=1e-9))
    assert ranks[1] <= 5 < 30 < ranks[3]


@pytest.mark.parametrize(("start", "bound"), [({}, 1 / 8), ({"weight_bound": 0.01}, 0.01)])
def test_its_first_values(start: dict[str, float], bound: float) -> None:
    """As those of the map that one softmax has: up to 1/√H, or the bound that is given."""
    torch.manual_seed(0)
    mixture = LanguageModel(Network("LSTM", 64, mixture=3, embedding_size=8, start=start), 5).mixture
    assert mixture is not None
    for values in mixture.parameters():
        assert 0.8 * bound < values.abs().max() <= bound


def test_what_it_is_sure_of() -> None:
    """A word that no softmax leaves a number float32 can hold has a logarithm all the same."""
    mixture, out = MixtureOfSoftmaxes(4, 3, 2), torch.randn(2, 5, 4)
    log_p = mixture(out, torch.randn(7, 3), torch.tensor([500.0, 0, 0, 0, 0, 0, 0]))
    torch.testing.assert_close(log_p[..., 0], torch.zeros(2, 5))
    assert ((log_p[..., 1:] < -480) & (log_p[..., 1:] > -520)).all()


def test_few_digits_lose_no_more() -> None:
    """Under autocast the sums over words and softmaxes have all digits of float32."""
    torch.manual_seed(0)
    mixture, out = MixtureOfSoftmaxes(4, 3, 2), torch.randn(2, 5, 4)
    weight, bias = torch.randn(700, 3), torch.randn(700)
    with torch.autocast("cpu", torch.bfloat16):
        log_p = mixture(out, weight, bias)
        some = mixture(out, weight, bias, torch.full((2, 5), 7))
    assert log_p.dtype == some.dtype == torch.float32
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 5), rtol=1e-5, atol=0)
    torch.testing.assert_close(some, log_p[..., 7], rtol=0, atol=0.02)  # each logit has its digits of bfloat16


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"mixture": 0}, ValueError, "mixture must be greater than zero"),
        ({"mixture": 2.0}, TypeError, "mixture should be of type int"),
        ({"mixture_dropout": 0.5}, ValueError, "mixture_dropout is of a mixture"),
        ({"mixture": 2, "mixture_dropout": 1.5}, ValueError, "mixture_dropout"),
    ],
)
def test_what_makes_no_mixture(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Network("LSTM", 4, **options)


def test_only_of_words() -> None:
    with pytest.raises(ValueError, match="mixture and calibrated belong to language models"):
        SequenceModel(Network("LSTM", 4, mixture=2), 3, 2)
