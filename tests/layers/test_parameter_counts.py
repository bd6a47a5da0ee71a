"""Our networks have the paper's parameter counts: the strongest evidence that they are the paper's networks."""

import pytest
import torch
from torch import nn

import eirehn
from eirehn.experiments.results import published

PAPER = published()


def trainable(*modules):
    return sum(p.numel() for module in modules for p in module.parameters() if p.requires_grad)


def build(model, inputs, hidden, *, layers=1, **options):
    return getattr(eirehn, model)(inputs, hidden, layers, **options)


@pytest.mark.parametrize("row", PAPER["synthetic_mse_e3"], ids=lambda row: f"{row['model']}-{row['hidden']}")
def test_synthetic(row):
    network = build(row["model"], 2, row["hidden"])  # RHN at its default depth of 5
    assert trainable(network, nn.Linear(row["hidden"], 2)) == row["parameters"]


@pytest.mark.parametrize(
    "row", PAPER["har_accuracy_percent"], ids=lambda row: f"{row['model']}-{row['hidden']}-{row['depth']}"
)
def test_har(row):
    """Two layers, but one of EI-REHN; a linear map of the 9 channels beside the first; six classes."""
    model, hidden = row["model"], row["hidden"]
    options = {"depth": row["depth"]} if row["depth"] else {}
    network = build(model, 9, hidden, layers=1 if model == "EIREHN" else 2, **options)
    assert trainable(network, nn.Linear(9, hidden), nn.Linear(hidden, 6)) == row["parameters_exact"]


def language_model(network, hidden):
    """A tied embedding of 10,000 words and the bias of the softmax."""
    return trainable(network) + 10_000 * hidden + 10_000


def test_ptb():
    table = PAPER["ptb_test_perplexity_by_depth_hidden_1200"]
    for depth, millions in zip(table["RHN"]["depth"], table["RHN"]["parameters_millions"], strict=True):
        network = eirehn.RHN(1200, 1200, depth=depth, device="meta")
        assert round(language_model(network, 1200) / 1e6, 1) == millions
    network = eirehn.EIREHN(1200, 1200, hyper_size=600, device="meta")
    assert round(language_model(network, 1200) / 1e6, 1) == table["EIREHN"]["parameters_millions"]
    assert round(language_model(network, 1200) / 1e6, 2) == 25.34
    network = eirehn.EIREHN(1000, 1000, hyper_size=500, device="meta")
    assert round(language_model(network, 1000) / 1e6) == 19


def test_the_counts_by_formula():
    """Section by section, so that two mistakes cannot cancel."""
    X, H, Z = 3, 5, 4
    cell = eirehn.EIREHNCell(X, H, hyper_size=Z)
    size = {name: p.numel() for name, p in cell.named_parameters()}
    assert size["W_ah"] + size["W_ax"] + size["b_a"] == H * (H + X + 1)
    assert size["alpha_hat"] + size["beta_hat"] == 2 * H
    assert size["W_zh"] + size["W_zg"] + size["W_z"] + size["b_z"] == 2 * H * Z + Z * Z + Z
    assert size["s_0"] + size["g_0"] + size["z_0"] == 2 * H + Z
    assert size["P"] == 2 * H * Z
    assert size["P_bar"] + size["b_bar"] == 2 * H * Z + 2 * H
    assert size["W_h"] + size["W_x"] + size["b"] == 2 * (H * H + H * X + H)
    hyper = 2 * H * Z + Z * Z + Z + 2 * H + Z
    base = trainable(eirehn.SREHNCell(X, H))
    for update, extra in {
        "paper": hyper + 4 * H * Z + 2 * H,
        "bounded": hyper + 4 * H * Z + 2 * H,
        "recursive": hyper + 4 * H * Z + 2 * H,
        "additive": hyper + 2 * H * Z,
        "scaling": hyper + 2 * H * Z,
        "outer": hyper + 6 * H * Z + 2 * H,
        "none": 0,
    }.items():
        assert trainable(eirehn.EIREHNCell(X, H, hyper_size=Z, weight_update=update)) == base + extra, update


@pytest.mark.parametrize("model", ["RNN", "GRU", "LSTM"])
def test_one_bias_freezes_the_second_bias(model):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[model]
    module = eirehn.one_bias(getattr(nn, model)(2, 5, 2, bidirectional=True))
    assert trainable(module) == 2 * gates * 5 * (2 + 5 + 1) + 2 * gates * 5 * (10 + 5 + 1)
    frozen = [p for name, p in module.named_parameters() if name.startswith("bias_hh")]
    assert len(frozen) == 4
    assert all(not p.requires_grad and not p.any() for p in frozen)


def test_one_bias_trains_one_bias():
    """An Elman network by hand: tanh(W_ih x + b + W_hh h), before and after a step of training."""
    torch.manual_seed(0)
    module = eirehn.one_bias(nn.RNN(2, 3))
    x = torch.randn(4, 1, 2)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(2):
        h = torch.zeros(3)
        for step in x[:, 0]:
            h = torch.tanh(module.weight_ih_l0 @ step + module.bias_ih_l0 + module.weight_hh_l0 @ h)
        out, _ = module(x)
        torch.testing.assert_close(out[-1, 0], h)
        optimizer.zero_grad()
        out.sum().backward()
        optimizer.step()
    assert not module.bias_hh_l0.any()
