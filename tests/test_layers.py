"""The nn.LSTM contract, as properties that hold for every system."""

import copy

import numpy as np
import pytest
import torch
from helpers.systems import ELASTIC, HIGHWAY, KINDS, SYSTEMS, draw, joined, make, oracle_run, parts
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import eirehn
from eirehn.cells import gate

systems = st.sampled_from(list(SYSTEMS))
small = st.integers(1, 5)
seeds = st.integers(0, 10**6)
layouts = st.fixed_dictionaries({"num_layers": st.integers(1, 3), "bidirectional": st.booleans()})


def pick(state, index):
    """The state of sample(s) `index`."""
    picked = tuple(part[:, index] for part in parts(state))
    return picked if isinstance(state, tuple) else picked[0]


def close(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


@given(systems, small, small, small, small, layouts, seeds)
def test_shapes_are_those_of_torch(name, steps, batch, inputs, hidden, layout, seed):
    layer = make(name, inputs, hidden, seed=seed, **layout)
    twin = (nn.LSTM if name == "ACT-LSTM" else nn.GRU)(inputs, hidden, dtype=torch.float64, **layout)
    x, h0 = draw(layer, steps, batch)
    out, h_n, depth, cost = layer(x, h0, return_depth=True, return_cost=True)
    twin_out, twin_h_n = twin(x, h0)
    assert out.shape == twin_out.shape
    assert [part.shape for part in parts(h_n)] == [part.shape for part in parts(twin_h_n)]
    cells = layout["num_layers"] * (2 if layout["bidirectional"] else 1)
    assert depth.shape == cost.shape == (cells, steps, batch)
    assert depth.dtype == torch.int64
    assert cost.dtype == torch.float64


@given(systems, small, small, layouts, seeds)
def test_batch_first_only_swaps_axes(name, steps, batch, layout, seed):
    layer = make(name, 2, 3, seed=seed, **layout)
    x, h0 = draw(layer, steps, batch)
    out, h_n, depth, cost = layer(x, h0, return_depth=True, return_cost=True)
    layer.batch_first = True
    swapped = layer(x.transpose(0, 1), h0, return_depth=True, return_cost=True)
    assert torch.equal(swapped[0], out.transpose(0, 1))
    assert torch.equal(joined(swapped[1]), joined(h_n))
    assert torch.equal(swapped[2], depth.transpose(1, 2))
    assert torch.equal(swapped[3], cost.transpose(1, 2))


@given(systems, small, layouts, st.booleans(), seeds)
def test_unbatched_is_a_batch_of_one(name, steps, layout, batch_first, seed):
    layer = make(name, 2, 3, seed=seed, **layout)
    x, h0 = draw(layer, steps, 1)
    batched = layer(x, h0, return_depth=True, return_cost=True)
    layer.batch_first = batch_first  # ignored without a batch, as torch does
    alone = layer(x[:, 0], pick(h0, 0), return_depth=True, return_cost=True)
    assert torch.equal(alone[0], batched[0][:, 0])
    assert torch.equal(joined(alone[1]), joined(batched[1])[:, 0])
    assert torch.equal(alone[2], batched[2][..., 0])
    assert torch.equal(alone[3], batched[3][..., 0])


@given(systems, st.lists(st.integers(1, 6), min_size=1, max_size=5), layouts, st.booleans(), seeds)
def test_packed_is_each_sequence_alone(name, lengths, layout, sort, seed):
    if sort:
        lengths = sorted(lengths, reverse=True)
    layer = make(name, 2, 3, seed=seed, **layout)
    x, h0 = draw(layer, max(lengths), len(lengths))
    packed = pack_padded_sequence(x, lengths, enforce_sorted=sort)
    out, h_n, depth, cost = layer(packed, h0, return_depth=True, return_cost=True)
    padded, out_lengths = pad_packed_sequence(out)
    assert out_lengths.tolist() == lengths
    for index, length in enumerate(lengths):
        alone = layer(
            x[:length, index : index + 1],
            pick(h0, slice(index, index + 1)),
            return_depth=True,
            return_cost=True,
        )
        close(padded[:length, index], alone[0][:, 0])
        close(joined(h_n)[:, index], joined(alone[1])[:, 0])
        assert torch.equal(depth[:, :length, index], alone[2][..., 0])
        close(cost[:, :length, index], alone[3][..., 0])
        assert not depth[:, length:, index].any()
        assert not cost[:, length:, index].any()


@given(systems, st.lists(st.integers(1, 5), min_size=2, max_size=4), seeds)
def test_nothing_leaks_between_the_sequences_of_a_packed_batch(name, lengths, seed):
    """Poison one sequence after the other, its initial state too: only its own results may show it."""
    layer = make(name, 2, 3, seed=seed, bidirectional=True)
    x, h0 = draw(layer, max(lengths), len(lengths))

    def run(x, h0):
        out, h_n = layer(pack_padded_sequence(x, lengths, enforce_sorted=False), h0)
        return pad_packed_sequence(out)[0], joined(h_n)

    clean = run(x, h0)
    for index in range(len(lengths)):
        poisoned = x.clone()
        poisoned[:, index] = torch.nan
        states = tuple(part.clone() for part in parts(h0))
        for part in states:
            part[:, index] = torch.nan
        dirty = run(poisoned, states if isinstance(h0, tuple) else states[0])
        others = [other for other in range(len(lengths)) if other != index]
        for before, after in zip(clean, dirty, strict=True):
            assert torch.equal(before[:, others], after[:, others])
        assert dirty[0][: lengths[index], index].isnan().all()


@given(systems, st.integers(2, 6), small, st.integers(1, 5), seeds)
def test_chunks_with_carried_state_are_the_whole(name, steps, batch, cut, seed):
    cut = min(cut, steps - 1)
    layer = make(name, 2, 3, seed=seed, num_layers=2)
    x, h0 = draw(layer, steps, batch)
    out, h_n = layer(x, h0)
    first, carried = layer(x[:cut], h0)
    second, last = layer(x[cut:], carried)
    close(torch.cat([first, second]), out)
    close(joined(last), joined(h_n))


@given(systems, small, st.permutations(range(4)), layouts, seeds)
def test_permuting_the_batch_permutes_the_result(name, steps, order, layout, seed):
    layer = make(name, 2, 3, seed=seed, **layout)
    x, h0 = draw(layer, steps, 4)
    out, h_n, depth = layer(x, h0, return_depth=True)
    shuffled = layer(x[:, order], pick(h0, order), return_depth=True)
    close(shuffled[0], out[:, order])
    close(joined(shuffled[1]), joined(h_n)[:, order])
    assert torch.equal(shuffled[2], depth[..., order])


@given(systems, small, small, seeds)
def test_bidirectional_is_two_layers(name, steps, batch, seed):
    both = make(name, 2, 3, seed=seed, bidirectional=True)
    ahead, back = make(name, 2, 3), make(name, 2, 3)
    ahead.cells[0].load_state_dict(both.cells[0].state_dict())
    back.cells[0].load_state_dict(both.cells[1].state_dict())
    x, h0 = draw(both, steps, batch)
    out, h_n, depth = both(x, h0, return_depth=True)
    out_a, h_a, depth_a = ahead(x, pick_cell(h0, 0), return_depth=True)
    out_b, h_b, depth_b = back(x.flip(0), pick_cell(h0, 1), return_depth=True)
    close(out, torch.cat([out_a, out_b.flip(0)], -1))
    close(joined(h_n), torch.cat([joined(h_a), joined(h_b)]))
    assert torch.equal(depth, torch.cat([depth_a, depth_b.flip(1)]))


def pick_cell(state, index):
    picked = tuple(part[index : index + 1] for part in parts(state))
    return picked if isinstance(state, tuple) else picked[0]


@given(systems, small, small, seeds)
def test_stacked_is_one_layer_after_the_other(name, steps, batch, seed):
    stacked = make(name, 2, 3, seed=seed, num_layers=2)
    lower, upper = make(name, 2, 3), make(name, 3, 3)
    lower.cells[0].load_state_dict(stacked.cells[0].state_dict())
    upper.cells[0].load_state_dict(stacked.cells[1].state_dict())
    x, h0 = draw(stacked, steps, batch)
    between, _ = lower(x, pick_cell(h0, 0))
    close(stacked(x, h0)[0], upper(between, pick_cell(h0, 1))[0])


@given(st.sampled_from(ELASTIC), small, small, st.integers(1, 12), seeds)
def test_depth_keeps_its_bounds(name, steps, batch, max_depth, seed):
    layer = make(name, 2, 3, seed=seed, num_layers=2, max_depth=max_depth)
    x, h0 = draw(layer, steps, batch)
    depth = layer(x, h0, return_depth=True)[2]
    assert depth.max() <= max_depth
    bound = layer.depth_bound()
    assert bound.shape == (2, 3)
    assert (depth <= bound.amax(1)[:, None, None]).all()


@given(st.sampled_from(ELASTIC), small, small, st.integers(1, 30), seeds)
def test_deeper_changes_no_bit_once_all_gates_are_shut(name, steps, batch, more, seed):
    """Once with the loop that stops by itself, once with one that may not look and runs on."""
    layer = make(name, 2, 3, seed=seed)
    x, h0 = draw(layer, steps, batch)
    needed = int(layer.depth_bound().max())
    if needed > 60:
        return
    runs = []
    for depth, stops in ((needed, True), (needed + more, False)):
        layer.zero_grad()
        with pytest.MonkeyPatch.context() as patch:
            if not stops:
                patch.setattr(gate, "stops_by_data", lambda _: False)
            results = layer(x, h0, max_depth=depth, return_depth=True, return_cost=True)
        (results[0].sum() + results[3].sum()).backward()
        runs.append((*results, *(parameter.grad for parameter in layer.parameters())))
    assert all(torch.equal(left, right) for left, right in zip(*runs, strict=True))


@pytest.mark.parametrize("name", ELASTIC)
def test_the_loop_ends_when_all_gates_are_shut(name, monkeypatch):
    """Nothing is computed beyond the deepest sample: one look at the gate after the last open inner step."""
    layer = make(name, 2, 3, max_depth=10**9)
    x, h0 = draw(layer, 4, 3)
    looks, original = [], gate.elastic_gate
    monkeypatch.setattr(gate, "elastic_gate", lambda *given: looks.append(given[-1]) or original(*given))
    depth = layer(x, h0, return_depth=True)[2][0]
    deepest = [max(1, int(step.max())) for step in depth]
    assert looks == [r for last in deepest for r in range(1, last + 2)]


def test_act_ends_when_all_have_halted(monkeypatch):
    layer = make("ACT-GRU", 2, 3, max_depth=10**9)
    x, h0 = draw(layer, 4, 3)
    taken, original = [], layer.cells[0].transition
    monkeypatch.setattr(layer.cells[0], "transition", lambda *given: taken.append(1) or original(*given))
    depth = layer(x, h0, return_depth=True)[2][0]
    assert len(taken) == sum(int(step.max()) for step in depth)


@pytest.mark.parametrize("name", ELASTIC)
def test_one_deep_sample_does_not_change_the_others(name):
    """The loop runs to the deepest sample; a sample that ended before keeps its bits."""
    layer = make(name, 2, 3)
    x, h0 = draw(layer, 5, 4)
    full = layer(x, h0, return_depth=True)
    depth = full[2]
    assert (depth.amin(2) < depth.amax(2)).any()
    for index in range(4):
        alone = layer(x[:, index : index + 1], h0[:, index : index + 1], return_depth=True)
        close(full[0][:, index], alone[0][:, 0])
        assert torch.equal(depth[..., index], alone[2][..., 0])


def masks_of(layer, x, seed):
    """Runs a layer in training with dropout, and finds its masks by replaying the generator."""
    torch.manual_seed(seed)
    results = layer(x)
    torch.manual_seed(seed)
    ones = torch.ones(x.size(1), layer.input_size, dtype=x.dtype)
    x_mask = nn.functional.dropout(ones, layer.input_dropout)
    h_mask = nn.functional.dropout(ones.new_ones(x.size(1), layer.hidden_size), layer.hidden_dropout)
    return results, x_mask, h_mask


@pytest.mark.parametrize("name", HIGHWAY)
def test_dropout_of_the_matrix_products_against_the_oracle(name):
    layer = make(name, 4, 5, input_dropout=0.4, hidden_dropout=0.3)
    x, _ = draw(layer, 6, 3)
    (out, _), x_mask, h_mask = masks_of(layer, x, 11)
    assert set(x_mask.unique().tolist()) == {0.0, 1 / 0.6}
    expected = oracle_run(name, layer, 0, x, torch.zeros(3, 5), x_mask=x_mask, h_mask=h_mask)
    np.testing.assert_allclose(out.detach(), expected.out, rtol=0, atol=1e-12)
    layer.eval()
    plain = oracle_run(name, layer, 0, x, torch.zeros(3, 5))
    np.testing.assert_allclose(layer(x)[0].detach(), plain.out, rtol=0, atol=1e-12)


def test_dropout_of_one_cuts_the_products_and_no_more():
    layer = make("SRHN", 2, 3, input_dropout=1.0, hidden_dropout=1.0)
    x, h0 = draw(layer, 1, 2)
    s, t = torch.tanh(layer.cells[0].b[:3]), torch.sigmoid(layer.cells[0].b[3:])
    expected = h0[0]
    for _ in range(4):
        expected = t * s + (1 - t) * expected
    close(layer(x, h0)[0][0], expected)


@pytest.mark.parametrize("name", KINDS)
def test_dropout_between_layers(name):
    layer = make(name, 2, 3, num_layers=2, dropout=0.5)
    x, _ = draw(layer, 4, 2)
    torch.manual_seed(0)
    trained = layer(x)[0]
    layer.eval()
    assert not torch.equal(trained, layer(x)[0])
    layer.train()
    layer.dropout = 1.0
    silent = layer(x)[0]
    upper = make(name, 3, 3)
    upper.cells[0].load_state_dict(layer.cells[1].state_dict())
    close(silent, upper(torch.zeros(4, 2, 3, dtype=x.dtype))[0])


@pytest.mark.parametrize("name", KINDS)
def test_dropout_spares_the_input_of_the_first_layer_and_inference(name):
    layer = make(name, 2, 3, num_layers=2, dropout=1.0)
    x, _ = draw(layer, 4, 2)
    lower = make(name, 2, 3)
    lower.cells[0].load_state_dict(layer.cells[0].state_dict())
    close(joined(layer(x)[1])[:1], joined(lower(x)[1]))
    layer.eval()
    whole = layer(x)[0]
    layer.dropout = 0.0
    assert torch.equal(layer(x)[0], whole)


@pytest.mark.parametrize("name", HIGHWAY)
def test_dropout_masks_belong_to_their_sequences_in_a_packed_batch(name):
    layer = make(name, 4, 5, input_dropout=0.4, hidden_dropout=0.3)
    x, _ = draw(layer, 6, 3)
    lengths = [6, 4, 1]
    torch.manual_seed(11)
    out, _ = layer(pack_padded_sequence(x, lengths))
    _, x_mask, h_mask = masks_of(layer, x, 11)
    expected = oracle_run(
        name, layer, 0, x, torch.zeros(3, 5), x_mask=x_mask, h_mask=h_mask, lengths=np.array(lengths)
    )
    np.testing.assert_allclose(pad_packed_sequence(out)[0].detach(), expected.out, rtol=0, atol=1e-12)


def test_dropout_of_a_single_layer_warns_as_torch_does():
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last recurrent layer"):
        eirehn.EIREHN(2, 3, dropout=0.5)


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


def test_a_packed_batch_counts_samples_first_with_batch_first():
    layer = make("EIREHN-paper", 2, 3)
    x, h0 = draw(layer, 5, 3)
    packed = pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)
    depth, cost = layer(packed, h0, return_depth=True, return_cost=True)[2:]
    layer.batch_first = True
    swapped = layer(packed, h0, return_depth=True, return_cost=True)[2:]
    assert swapped[0].shape == (1, 3, 5)
    assert torch.equal(swapped[0], depth.transpose(1, 2))
    assert torch.equal(swapped[1], cost.transpose(1, 2))


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


def test_a_packed_list_of_sequences():
    layer = make("EIREHN-paper", 2, 3)
    x = [torch.randn(n, 2, dtype=torch.float64) for n in (2, 5, 3)]
    out, h_n = layer(pack_sequence(x, enforce_sorted=False))
    close(h_n[0, 1], layer(x[1])[1][0])
    assert isinstance(out, nn.utils.rnn.PackedSequence)


def test_an_empty_batch_gives_an_empty_result():
    out, h_n, depth = make("EIREHN-paper", 2, 3)(torch.zeros(4, 0, 2, dtype=torch.float64), return_depth=True)
    assert out.shape == (4, 0, 3)
    assert h_n.shape == (1, 0, 3)
    assert depth.shape == (1, 4, 0)


def test_layers_of_version_01_are_unpickled():
    """They called the paper's weight update "printed"."""
    layer = eirehn.EIREHN(2, 3, weight_update="paper")
    layer.cells[0].weight_update = "printed"
    again = copy.deepcopy(layer)  # by way of its state, as pickle does
    assert again.cells[0].weight_update == "paper"
    assert eirehn.EIREHN(2, 3, weight_update="printed").cells[0].weight_update == "paper"
