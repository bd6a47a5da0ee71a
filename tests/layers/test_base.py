"""The contract of nn.LSTM, as properties that hold for every system, by the plain path and by the kernels."""

import numpy as np
import pytest
import torch
from helpers.systems import ELASTIC, HIGHWAY, KINDS, SYSTEMS, draw, joined, make, oracle_run, parts
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import eirehn

systems = st.sampled_from(list(SYSTEMS))
small = st.integers(1, 5)
seeds = st.integers(0, 10**6)
layouts = st.fixed_dictionaries({"num_layers": st.integers(1, 3), "bidirectional": st.booleans()})


@pytest.fixture(autouse=True, scope="module", params=["reference", "auto"])
def _backend(request, _plain_path):
    with eirehn.use_backend(request.param):
        yield


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


@given(systems, small, small, layouts, st.booleans(), seeds)
def test_batch_first_only_swaps_axes(name, steps, batch, layout, packed, seed):
    layer = make(name, 2, 3, seed=seed, **layout)
    x, h0 = draw(layer, steps, batch)
    runs = []
    for swapped in (False, True):
        layer.batch_first = swapped
        given = x.transpose(0, 1) if swapped else x
        if packed:  # its rows lie the same way
            lengths = [1 + (2 + 3 * k) % steps for k in range(batch)]
            given = pack_padded_sequence(given, lengths, batch_first=swapped, enforce_sorted=False)
        runs.append(layer(given, h0, return_depth=True, return_cost=True))
    (out, h_n, depth, cost), swapped = runs
    assert torch.equal(swapped[0].data, out.data if packed else out.transpose(0, 1))
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


@pytest.mark.parametrize("name", HIGHWAY)
@pytest.mark.parametrize("lengths", [[6, 6, 6], [6, 4, 1]], ids=["equal", "packed"])
@pytest.mark.parametrize("probabilities", [(0.4, 0.3), (1.0, 1.0)], ids=["some", "all"])
def test_dropout_of_the_matrix_products_against_the_oracle(name, lengths, probabilities):
    """Its masks, which replaying the generator gives, are those of the sequences, kept over time and depth."""
    layer = make(name, 4, 5, input_dropout=probabilities[0], hidden_dropout=probabilities[1])
    x, h0 = draw(layer, 6, 3)

    def run():
        torch.manual_seed(11)
        if lengths[-1] == 6:
            return layer(x, h0)[0]
        return pad_packed_sequence(layer(pack_padded_sequence(x, lengths), h0)[0])[0]

    trained = run()
    layer.eval()
    plain = run()
    torch.manual_seed(11)
    sizes = zip((4, 5), probabilities, strict=True)
    masks = [nn.functional.dropout(torch.ones(3, size, dtype=x.dtype), each) for size, each in sizes]
    for out, (x_mask, h_mask) in ((trained, masks), (plain, (None, None))):
        expected = oracle_run(name, layer, 0, x, h0[0], x_mask=x_mask, h_mask=h_mask, lengths=lengths)
        np.testing.assert_allclose(out.detach(), expected.out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_dropout_between_layers(name):
    """Spares the input of the first layer, and inference."""
    layer = make(name, 2, 3, num_layers=2, dropout=0.5)
    lower, upper = make(name, 2, 3), make(name, 3, 3)
    lower.cells[0].load_state_dict(layer.cells[0].state_dict())
    upper.cells[0].load_state_dict(layer.cells[1].state_dict())
    x, _ = draw(layer, 4, 2)
    assert not torch.equal(layer(x)[0], layer.eval()(x)[0])
    close(layer(x)[0], upper(lower(x)[0])[0])
    layer.train().dropout = 1.0
    silent, h_n = layer(x)
    close(silent, upper(torch.zeros(4, 2, 3, dtype=x.dtype))[0])
    close(joined(h_n)[:1], joined(lower(x)[1]))


def test_dropout_of_a_single_layer_warns_as_torch_does():
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last recurrent layer"):
        eirehn.EIREHN(2, 3, dropout=0.5)


def test_an_empty_batch_gives_an_empty_result():
    out, h_n, depth = make("EIREHN-paper", 2, 3)(torch.zeros(4, 0, 2, dtype=torch.float64), return_depth=True)
    assert out.shape == (4, 0, 3)
    assert h_n.shape == (1, 0, 3)
    assert depth.shape == (1, 4, 0)


@pytest.mark.parametrize("name", ELASTIC)
@pytest.mark.parametrize("seed", range(5))
def test_deeper_changes_no_bit_of_the_results(name, seed):
    """Nor the gradients, but for the kernels' sums, which they take in blocks whose size goes by max_depth."""
    layer = make(name, 2, 3, seed=seed)
    x, h0 = draw(layer, 4, 5)
    needed = min(int(layer.depth_bound().max()), 60)
    runs = []
    for depth in (needed, needed + 7):
        layer.zero_grad()
        results = layer(x, h0, max_depth=depth, return_depth=True, return_cost=True)
        (results[0].sum() + results[3].sum()).backward()
        runs.append((results, [parameter.grad for parameter in layer.parameters()]))
    (shallow, below), (deep, beyond) = runs
    if layer.depth_bound().max() <= 60:
        assert all(torch.equal(left, right) for left, right in zip(shallow, deep, strict=True))
        for left, right in zip(below, beyond, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-13)
