"""Resets inside a sequence, against a loop over time steps and against each episode alone."""

import pytest
import torch
from helpers.systems import KINDS, draw, joined, largest_error, loss_of, make, oracle_run, parts
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils.rnn import pack_sequence

import eirehn

T, B = 7, 5


@pytest.fixture(autouse=True, scope="module", params=["reference", "auto"])
def _backend(request, _plain_path):
    with eirehn.use_backend(request.param):
        yield


def resets():
    """None of sample 0, all of sample 1, the first step of sample 2 alone, some of the others."""
    found = torch.rand(T, B, generator=torch.Generator().manual_seed(3)) < 0.3
    found[:, 0], found[:, 1], found[:, 2] = False, True, torch.arange(T) == 0
    found[0, 3], found[0, 4] = False, True
    return found


def by_steps(layer, x, hx, reset):
    """The cells, one time step after the other."""
    data, lasts, depths, costs = x, [], [], []
    for index, cell in enumerate(layer.cells):
        state = tuple(part[index] for part in parts(hx))
        outs, depth, cost = [], [], []
        for t in range(T):
            state = tuple(torch.where(reset[t][:, None], 0.0, part) for part in state)
            given = state if isinstance(hx, tuple) else state[0]
            state, n, c = cell(data[t], given, return_depth=True, return_cost=True)
            state = parts(state)
            outs.append(state[0])
            depth.append(n)
            cost.append(c)
        data = torch.stack(outs)
        lasts.append(torch.cat(state, -1))
        depths.append(torch.stack(depth))
        costs.append(torch.stack(cost))
    return data, torch.stack(lasts), torch.stack(depths), torch.stack(costs)


@pytest.mark.parametrize("name", KINDS)
def test_against_a_loop_over_the_cells(name):
    layer = make(name, 2, 3, num_layers=2)
    x, h0 = draw(layer, T, B)
    reset = resets()
    found = []
    for run in (lambda *given: by_steps(layer, *given, reset), lambda *given: call(layer, *given, reset=reset)):
        leaves = [each.clone().requires_grad_() for each in (x, *parts(h0))]
        layer.zero_grad()
        out, h_n, depth, cost = run(leaves[0], tuple(leaves[1:]) if isinstance(h0, tuple) else leaves[1])
        loss_of(out, joined(h_n), cost).backward()
        gradients = [each.grad for each in (*leaves, *layer.parameters()) if each.requires_grad]
        found.append([out, joined(h_n), depth, cost, *gradients])
    assert torch.equal(found[0][2], found[1][2])
    assert largest_error(found[1], found[0]) < 1e-11


def call(layer, x, hx, **options):
    return layer(x, hx, return_depth=True, return_cost=True, **options)


def episodes_of(reset, sample):
    begins = sorted({0, *reset[:, sample].nonzero()[:, 0].tolist()})
    return list(zip(begins, [*begins[1:], T], strict=True))


def alone(layer, x, hx, reset):
    """Each episode by a call of its own, through torch's layers, too: `out` and the last states."""
    out, last = torch.empty(T, B, 2 * layer.hidden_size, dtype=x.dtype), [part.clone() for part in parts(hx)]
    for b in range(B):
        episodes = episodes_of(reset, b)
        for k, (begin, end) in enumerate(episodes):
            state = [torch.zeros_like(part[:, b : b + 1]) for part in parts(hx)]
            for part, own in zip(parts(hx), state, strict=True):
                if k == 0 and not reset[0, b]:
                    own[::2] = part[::2, b : b + 1]
                if k == len(episodes) - 1:
                    own[1::2] = part[1::2, b : b + 1]
            given = tuple(state) if isinstance(hx, tuple) else state[0]
            found, h_n = layer(x[begin:end, b : b + 1], given)
            out[begin:end, b] = found[:, 0]
            for whole, part in zip(last, parts(h_n), strict=True):
                if k == len(episodes) - 1:
                    whole[::2, b] = part[::2, 0]
                if k == 0:
                    whole[1::2, b] = part[1::2, 0]
    return out, torch.cat(last, -1)


@pytest.mark.parametrize("name", ["EIREHN-paper", "ACT-LSTM", "LSTM", "GRU"])
@torch.no_grad()
def test_a_bidirectional_layer_reads_each_episode_by_itself(name):
    options = {"bidirectional": True, "dtype": torch.float64}
    if hasattr(eirehn, name):
        layer = getattr(eirehn, name)(2, 3, **options)
        x, h0, *c0 = (torch.randn(*size, dtype=torch.float64) for size in ((T, B, 2), (2, B, 3), (2, B, 3)))
        h0, single = (h0, *c0) if name == "LSTM" else h0, layer.to_torch()
    else:
        layer = single = make(name, 2, 3, **options)
        x, h0 = draw(layer, T, B)
    reset = resets()
    out, h_n = layer(x, h0, reset=reset)
    expected = alone(single, x, h0, reset)
    assert largest_error((out, joined(h_n)), expected) < 1e-12
    swapped = eirehn.LSTM(2, 3, batch_first=True, **options) if name == "LSTM" else make("RHN", 2, 3, **options)
    swapped.batch_first = True
    out, h_n = swapped(x.transpose(0, 1), reset=reset.t())
    for b in range(B):  # unbatched, from zeros
        unbatched, last = swapped(x[:, b], reset=reset[:, b])
        assert largest_error((unbatched, joined(last)), (out[b], joined(h_n)[:, b])) < 1e-12


@pytest.mark.parametrize("name", ["EIREHN-paper", "ACT-LSTM", "GRU"])
@torch.no_grad()
def test_resets_at_the_first_step_alone_replace_the_state(name):
    layer = eirehn.GRU(2, 3, dtype=torch.float64) if name == "GRU" else make(name, 2, 3)
    x = torch.randn(T, B, 2, dtype=torch.float64)
    h0 = torch.full((1, B, 3), torch.nan, dtype=torch.float64)
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[0] = True
    expected = layer(x)
    for steps in (T, 1):
        out, _ = layer(x[:steps], (h0, h0) if name == "ACT-LSTM" else h0, reset=reset[:steps])
        torch.testing.assert_close(out, expected[0][:steps], rtol=0, atol=1e-12)
    reset[0] = False
    assert torch.equal(layer(x, reset=reset)[0], expected[0])


def test_episodes_of_a_sequence_share_its_dropout():
    layer = make("EIREHN-paper", 4, 5, input_dropout=0.4, hidden_dropout=0.3)
    x, _ = draw(layer, T, B)
    reset = resets()
    torch.manual_seed(11)
    out, _ = layer(x, reset=reset)
    torch.manual_seed(11)
    masks = [nn.functional.dropout(torch.ones(B, size, dtype=x.dtype), p) for size, p in ((4, 0.4), (5, 0.3))]
    for b in range(B):
        own = {"x_mask": masks[0][b : b + 1], "h_mask": masks[1][b : b + 1]}
        for begin, end in episodes_of(reset, b):
            given = x[begin:end, b : b + 1], torch.zeros(1, 5, dtype=x.dtype)
            expected = oracle_run("EIREHN-paper", layer, 0, *given, **own, lengths=[end - begin])
            assert largest_error((out[begin:end, b],), (torch.from_numpy(expected.out)[:, 0],)) < 1e-11


@pytest.mark.parametrize("kind", [eirehn.EIREHN, eirehn.LSTM])
def test_errors(kind):
    layer, x, reset = kind(2, 3, batch_first=True), torch.randn(B, T, 2), resets().t()
    shape = r"reset must have the shape \[5, 7\] of the time and batch axes of input, got "
    for wrong, error, message in (
        (reset.t(), ValueError, shape + r"\[7, 5\]"),
        (reset[0], ValueError, shape + r"\[7\]"),
        (
            reset.float(),
            TypeError,
            r"reset should be a bool Tensor, got: torch.float32; convert it",
        ),
        (True, TypeError, "reset should be a Tensor, got: bool"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            layer(x, reset=wrong)
    with pytest.raises(ValueError, match=r"^reset is for padded input, got a PackedSequence: pad it"):
        layer(pack_sequence([x[0], x[1]]), reset=reset)
    with pytest.raises(ValueError, match=r"^the values of reset must be known before the layer runs"):
        vmap(lambda reset: layer(x, reset=reset)[0])(torch.stack([reset, reset]))


def test_vmap_and_grad_with_the_same_resets_for_all():
    layer, reset = make("EIREHN-paper", 2, 3), resets()
    x = torch.randn(2, T, B, 2, dtype=torch.float64)
    stacked = vmap(lambda each: layer(each, reset=reset)[0])(x)
    found = grad(lambda p: functional_call(layer, p, (x[0],), {"reset": reset})[0].sum())(
        dict(layer.named_parameters())
    )
    layer(x[0], reset=reset)[0].sum().backward()
    for each, out in zip(x, stacked, strict=True):
        torch.testing.assert_close(out, layer(each, reset=reset)[0], rtol=0, atol=1e-12)
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", [eirehn.EIREHN, eirehn.GRU])
def test_export_takes_single_steps(kind):
    layer, x, reset = kind(2, 3), torch.randn(T, B, 2), resets()
    with pytest.raises(ValueError, match=r"^the values of reset must be known .* one time step at a time$"):
        torch.export.export(layer, (x,), {"reset": reset})
    x, h0, reset = torch.randn(1, B, 2), torch.randn(1, B, 3), reset[:1].clone()
    step = torch.export.export(layer, (x, h0), {"reset": ~reset}).module()
    torch.testing.assert_close(step(x, h0, reset=reset), layer(x, h0, reset=reset))
