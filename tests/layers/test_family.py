"""What the single layers add: dead units, initial values, options."""

import copy

import pytest
import torch
from helpers.systems import ELASTIC, KINDS, SYSTEMS, draw, make
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import eirehn


@pytest.fixture(autouse=True, scope="module", params=["reference", "auto"])
def _backend(request, _plain_path):
    with eirehn.use_backend(request.param):
        yield


@pytest.mark.parametrize("name", ELASTIC)
def test_dead_units(name):
    layer = make(name, 2, 4, num_layers=2, bidirectional=True)
    x, h0 = draw(layer, 5, 3)
    assert layer.dead_units(x, h0).shape == (4,)
    with torch.no_grad():
        for cell in layer.cells:
            cell.b_a.fill_(-5.0)
            cell.W_ah.mul_(0.01)
            cell.W_ax.mul_(0.01)
        layer.cells[1].b_a[:3] = 50.0
        layer.cells[2].b_a[:] = 50.0
    lengths = [5, 2, 4]
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    for input in (x, packed):
        assert layer.dead_units(input, h0).tolist() == [0.0, 0.75, 1.0, 0.0]
    assert layer.training


def test_dead_units_looks_at_the_states_the_network_really_reaches():
    """Deep inner steps carry unit 0 to where it opens unit 1; capped at depth one they would not."""
    layer = make("SREHN", 1, 2, num_layers=1, max_depth=30)
    cell = layer.cells[0]
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.alpha_hat.fill_(-4.0)
        cell.beta_hat.fill_(5.0)
        cell.b[:2] = 3.0  # s ≈ 1
        cell.b[2:] = -2.0  # ĝ = 0.12: slow
        cell.b_a[0] = -9.0
        cell.b_a[1] = 9.0
        cell.W_ah[1, 0] = -20.0  # unit 1 is shut unless unit 0 is above about a half
    x = torch.zeros(2, 1, 1, dtype=torch.float64)
    out, _ = layer(x)
    assert out[1, 0, 1] != 0  # it moved
    assert layer.dead_units(x).tolist() == [0.0]
    assert layer.dead_units(x[:1]).tolist() == [0.5]


def test_dead_units_ignores_dropout_and_leaves_the_modes_alone():
    layer = make("SREHN", 2, 3, num_layers=2, dropout=1.0, input_dropout=1.0, hidden_dropout=1.0)
    x, h0 = draw(layer, 4, 3)
    layer.cells[0].eval()
    share = layer.dead_units(x, h0)
    assert layer.training
    assert not layer.cells[0].training
    assert torch.equal(share, layer.eval().dead_units(x, h0))


def test_dead_units_reads_the_state_before_each_step():
    """A unit whose gate only opens for the initial state of one short sequence, in reverse, is alive."""
    layer = make("SREHN", 1, 1, bidirectional=True)
    with torch.no_grad():
        for cell in layer.cells:
            cell.W_ax.zero_()
            cell.W_ah.fill_(-100.0)
            cell.b_a.fill_(50.0)
    x = torch.zeros(3, 2, 1, dtype=torch.float64)
    packed = pack_padded_sequence(x, [3, 1])
    h0 = torch.zeros(2, 2, 1, dtype=torch.float64)
    assert layer.dead_units(packed, h0).tolist() == [1.0, 1.0]
    h0[1, 1] = 1.0
    assert layer.dead_units(packed, h0).tolist() == [1.0, 0.0]


def dying(**options):
    layer = eirehn.EIREHN(2, 3, **options)
    layer.reset_parameters(decay_bias=50.0)
    return layer


def test_a_layer_dead_at_the_start_of_training_warns_once(recwarn):
    layer = dying()
    x = torch.randn(4, 2, 2)
    with pytest.warns(UserWarning, match=r"all units of cell\(s\) \[0\] are dead") as caught:
        layer(x)
    assert caught[0].filename == __file__
    recwarn.clear()
    layer(x)
    assert not recwarn
    layer.reset_parameters(decay_bias=50.0)
    with pytest.warns(UserWarning, match="are dead"):
        layer(x)


def test_one_dead_cell_of_several_is_named():
    layer = eirehn.EIREHN(2, 3, num_layers=2)
    layer.cells[1].reset_parameters(decay_bias=50.0)
    with pytest.warns(UserWarning, match=r"all units of cell\(s\) \[1\] are dead"):
        layer(torch.randn(4, 2, 2))


@pytest.mark.filterwarnings("ignore:.*are dead")
@pytest.mark.parametrize("batch", [2, 0])
def test_a_dead_or_empty_batch_has_gradients_of_zero(batch):
    layer = dying()
    layer(torch.randn(4, batch, 2))[0].sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in layer.parameters())


def test_no_warning_at_inference_or_for_a_living_layer(recwarn):
    dying().eval()(torch.randn(4, 2, 2))
    with torch.no_grad():
        dying()(torch.randn(4, 2, 2))
    eirehn.EIREHN(2, 3)(torch.randn(4, 2, 2))
    assert not recwarn


def test_initial_values_are_arguments():
    layer = eirehn.EIREHN(2, 3, num_layers=2)
    layer.reset_parameters(
        weight_bound=0.04,
        gate_bias=-2.0,
        alpha=0.3,
        beta_hat=1.5,
        decay_bias=-3.0,
        decay_scale=0.5,
        update_bias=2.0,
    )
    for cell in layer.cells:
        assert cell.W_h.abs().max() <= 0.04
        assert cell.P.abs().max() <= 0.04
        assert 0 < cell.W_ah.abs().max() <= 0.02
        assert cell.W_h.abs().max() > 0.02
        assert cell.b[:3].abs().max() <= 0.04
        assert (cell.b[3:] == -2.0).all()
        assert (cell.b_a == -3.0).all()
        torch.testing.assert_close(nn.functional.softplus(cell.alpha_hat), torch.full((3,), 0.3))
        assert (cell.beta_hat == 1.5).all()
        assert (cell.b_bar == 2.0).all()


def test_scales_of_initial_values():
    """Each multiplies its own part of the same draws, and nothing else."""
    scales = {"input_scale": 30.0, "gate_scale": 6.0, "change_scale": 0.3, "update_scale": 3.0}
    plain, scaled = eirehn.EIREHN(2, 3), eirehn.EIREHN(2, 3)
    for layer, factors in ((plain, {}), (scaled, scales)):
        torch.manual_seed(0)
        layer.reset_parameters(**factors)
    one, other = plain.cells[0], scaled.cells[0]
    parts = {"W_x": 30.0, "P": 0.3, "P_bar": 3.0}
    for name, value in one.named_parameters():
        if name == "W_h":
            torch.testing.assert_close(other.W_h[:3], value[:3], rtol=0, atol=0)
            torch.testing.assert_close(other.W_h[3:], 6.0 * value[3:])
        else:
            torch.testing.assert_close(getattr(other, name), parts.get(name, 1.0) * value)


@pytest.mark.parametrize("name", [name for name in ELASTIC if name != "EIREHN-none"])
def test_the_default_start_is_alive_and_every_parameter_learns(name):
    kind, options = SYSTEMS[name]
    torch.manual_seed(0)
    layer = kind(2, 6, **options)
    x = torch.randn(8, 5, 2)
    assert layer.dead_units(x).item() == 0.0
    out, _ = layer(x)
    out.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


@pytest.mark.parametrize("name", KINDS)
def test_reset_draws_anew(name):
    layer = make(name, 2, 3)
    before = copy.deepcopy(layer.state_dict())
    layer.reset_parameters()
    assert any(not torch.equal(before[key], value) for key, value in layer.state_dict().items())


def test_rhn_starts_with_closed_transform_gates():
    assert (eirehn.RHN(2, 3).cells[0].b[:, 3:] == -2.0).all()
    assert (eirehn.SRHN(2, 3).cells[0].b[3:] == -2.0).all()


def test_a_refused_reset_changes_nothing():
    layer = eirehn.EIREHN(2, 3)
    before = copy.deepcopy(layer.state_dict())
    scales = ("decay_scale", "input_scale", "gate_scale", "change_scale", "update_scale")
    wrongs = [{"alpha": 0.0}, {"update_bias": float("nan")}, {"beta_hat": float("inf")}]
    for wrong in wrongs + [{scale: -1.0} for scale in scales]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            layer.reset_parameters(**wrong)
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())


def test_options_can_be_read_back():
    layer = eirehn.EIREHN(2, 5, max_depth=7, weight_update="recursive")
    assert (layer.max_depth, layer.hyper_size, layer.weight_update) == (7, 3, "recursive")
    assert eirehn.RHN(2, 3, depth=4).depth == 4


def test_an_lstm_s_state_is_like_torch_s():
    layer = make("ACT-LSTM", 2, 3, num_layers=2)
    x, (h, c) = draw(layer, 4, 5)
    out, h_n = layer(x, [h, c])
    assert all(part.is_contiguous() for part in h_n)
    assert torch.equal(out, layer(x, (h, c))[0])


def test_repr_says_what_was_chosen():
    text = repr(eirehn.EIREHN(9, 48, 2, max_depth=4, bidirectional=True, hidden_dropout=0.25, batch_first=True))
    assert "EIREHN(\n  9, 48, num_layers=2, batch_first=True, bidirectional=True, hidden_dropout=0.25" in text
    assert "EIREHNCell(9, 48, max_depth=4, hyper_size=24, weight_update='bounded')" in text


@pytest.mark.parametrize("name", SYSTEMS)
def test_flatten_parameters_does_nothing(name):
    layer = make(name, 2, 3)
    before = copy.deepcopy(layer.state_dict())
    assert layer.flatten_parameters() is None
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())


def test_layers_of_version_01_are_unpickled():
    """They called the paper's weight update "printed"."""
    layer = eirehn.EIREHN(2, 3, weight_update="paper")
    layer.cells[0].weight_update = "printed"
    again = copy.deepcopy(layer)  # by way of its state, as pickle does
    assert again.cells[0].weight_update == "paper"
    assert eirehn.EIREHN(2, 3, weight_update="printed").cells[0].weight_update == "paper"
