"""Members of an ensemble under vmap: one call of the CPU kernels, the same numbers as one by one."""

import copy

import pytest
import torch
from helpers.quick import quick
from helpers.systems import FUSED, draw, largest_error, loss_of, make, run
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import eirehn
from eirehn.ops import cpu
from eirehn.ops.cpu import runtime


@pytest.fixture(autouse=True)
def _poisoned_kernels(_plain_path, monkeypatch):
    monkeypatch.setattr(runtime, "poison", True)
    with eirehn.use_backend("cpu"):
        yield


def ensemble(name, members=3, hidden=5, **options):
    """The members, their stacked parameters, and the module to call with them."""
    layers = [make(name, 2, hidden, seed=seed, **options) for seed in range(members)]
    parameters, _ = stack_module_state(layers)
    return layers, parameters, copy.deepcopy(layers[0]).to("meta")


def inputs(layers, steps, batch):
    """One batch and one initial state for each member: (M, T, B, X) and (M, 1, B, H)."""
    drawn = [draw(layer, steps, batch, seed=seed) for seed, layer in enumerate(layers)]
    return [torch.stack(each).requires_grad_() for each in zip(*drawn, strict=True)]


def call_of(frame, **options):
    def call(parameters, x, h0):
        return functional_call(frame, parameters, (x, h0), {"return_depth": True, "return_cost": True, **options})

    return call


def close(found, exact):
    return largest_error([found], [exact]) <= 1e-11


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("batch", quick(4, of=[1, 4, 20]))
def test_members_with_inputs_of_their_own(name, batch):
    layers, parameters, frame = ensemble(name, num_layers=2, bidirectional=True)
    x, h0 = inputs(layers, 6, batch)
    stacked = vmap(call_of(frame))(parameters, x, h0)
    out, h_n, _, cost = stacked
    sum(loss_of(out[index], h_n[index], cost[index]) for index in range(3)).backward()
    found = [*stacked, x.grad, h0.grad, *(each.grad for each in parameters.values())]
    for index, layer in enumerate(layers):
        with eirehn.use_backend("reference"):
            alone = run(layer, x[index].detach(), h0[index].detach())
        assert largest_error([each[index] for each in found], alone) <= 1e-11


def test_what_members_share_gets_the_sum_of_their_gradients():
    layers, parameters, frame = ensemble("EIREHN-paper")
    x, h0 = (each.requires_grad_() for each in draw(layers[0], 4, 3))
    out = vmap(call_of(frame), in_dims=(0, None, None))(parameters, x, h0)[0]
    found = torch.autograd.grad(out.square().sum(), (x, h0))
    with eirehn.use_backend("reference"):
        expected = torch.autograd.grad(sum(layer(x, h0)[0].square().sum() for layer in layers), (x, h0))
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))


def test_one_model_over_a_stack_of_inputs():
    layer = make("EIREHN-paper", 2, 5)
    x, h0 = inputs([layer] * 3, 4, 3)
    out = vmap(lambda x, h0: layer(x, h0)[0], in_dims=(1, 0))(x.transpose(0, 1), h0)
    found = torch.autograd.grad(out.square().sum(), (x, *layer.parameters()))
    with eirehn.use_backend("reference"):
        alone = torch.stack([layer(x[index], h0[index])[0] for index in range(3)])
        expected = torch.autograd.grad(alone.square().sum(), (x, *layer.parameters()))
    assert close(out, alone)
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))


def test_members_along_the_last_axis():
    layers, parameters, frame = ensemble("EIREHN-paper")
    x, h0 = draw(layers[0], 4, 3)
    last = {key: value.detach().movedim(0, -1).contiguous().requires_grad_() for key, value in parameters.items()}
    vmap(call_of(frame), in_dims=(-1, None, None))(last, x, h0)[0].square().sum().backward()
    vmap(call_of(frame), in_dims=(0, None, None))(parameters, x, h0)[0].square().sum().backward()
    assert all(close(last[key].grad.movedim(-1, 0), parameters[key].grad) for key in parameters)


def test_a_vmap_inside_another_is_still_one_call(monkeypatch):
    layers, parameters, frame = ensemble("EIREHN-paper")
    x, h0 = inputs(layers, 4, 3)
    calls = []
    original = cpu.Recurrence.forward
    monkeypatch.setattr(
        cpu.Recurrence, "forward", lambda self, **options: calls.append(1) or original(self, **options)
    )
    inner = vmap(call_of(frame), in_dims=(None, 0, 0))
    out = vmap(inner, in_dims=(0, None, None))(parameters, x, h0)[0]
    assert len(calls) == 1
    for member, layer in enumerate(layers):
        for batch in range(3):
            assert close(out[member, batch], layer(x[batch], h0[batch])[0])
    out.square().sum().backward()
    expected = torch.autograd.grad(
        sum(layers[0](x[batch], h0[batch])[0].square().sum() for batch in range(3)), list(layers[0].parameters())
    )
    for key, gradient in zip(parameters, expected, strict=True):
        assert close(parameters[key].grad[0], gradient)


@pytest.mark.parametrize("name", quick(of=["RHN", "EIREHN-paper"]))
def test_gradcheck_and_gradients_of_gradients(name):
    layers, parameters, frame = ensemble(name, members=2, hidden=2)
    x, h0 = inputs(layers, 2, 2)

    def call(x, h0, *values):
        out, _, _, cost = vmap(call_of(frame))(dict(zip(parameters, values, strict=True)), x, h0)
        return out, cost

    values = [each.detach().requires_grad_() for each in parameters.values()]
    assert torch.autograd.gradcheck(call, (x, h0, *values), eps=1e-6, atol=1e-7)
    assert torch.autograd.gradgradcheck(call, (x, h0, *values), eps=1e-6, atol=1e-6)


def test_packed_sequences():
    layers, parameters, frame = ensemble("EIREHN-paper")
    x, h0 = draw(layers[0], 6, 20)
    packed = pack_padded_sequence(x, [6] * 3 + [4] * 14 + [1] * 3)

    def call(parameters, data):
        out = functional_call(frame, parameters, (PackedSequence(data, packed.batch_sizes), h0))[0]
        return out.data

    out = vmap(call, in_dims=(0, None))(parameters, packed.data)
    out.square().sum().backward()
    for index, layer in enumerate(layers):
        with eirehn.use_backend("reference"):
            alone = layer(packed, h0)[0].data
            alone.square().sum().backward()
        assert close(out[index], alone)
        for key, parameter in layer.named_parameters():
            assert close(parameters[key].grad[index], parameter.grad), key


def test_hidden_dropout_of_every_member():
    layers, parameters, frame = ensemble("EIREHN-paper", hidden_dropout=0.5)
    x, h0 = inputs(layers, 4, 3)
    with torch.no_grad():
        out = vmap(call_of(frame), randomness="different")(parameters, x, h0)[0]
        same = vmap(call_of(frame), randomness="same")(parameters, x, h0)[0]
    assert out.isfinite().all()
    assert not torch.equal(out, same)
    frame.eval()
    for each in layers:
        each.eval()
    out = vmap(call_of(frame))(parameters, x, h0)[0]
    assert close(out[1], layers[1](x[1], h0[1])[0])


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_same_bits_twice_and_with_any_number_of_threads():
    layers, parameters, frame = ensemble("EIREHN-paper", hidden=20)  # worth several threads
    x, h0 = (each.float() for each in draw(layers[0], 10, 20))
    parameters = {key: value.detach().float().requires_grad_() for key, value in parameters.items()}

    def bits():
        out = vmap(call_of(frame.float()), in_dims=(0, None, None))(parameters, x, h0)[0]
        return [out, *torch.autograd.grad(out.square().sum(), list(parameters.values()))]

    first = bits()
    for threads in (2, 2, 2, 2, 2, 1):
        torch.set_num_threads(threads)
        assert all(torch.equal(a, b) for a, b in zip(first, bits(), strict=True))


def test_many_gradients_at_once_are_refused_in_words():
    layer = eirehn.EIREHN(2, 3, max_depth=2)
    out = layer(torch.randn(4, 1, 2))[0]
    with pytest.raises(RuntimeError, match="one gradient at a time"):
        torch.autograd.grad(out, list(layer.parameters()), torch.ones(2, 4, 1, 3), is_grads_batched=True)
