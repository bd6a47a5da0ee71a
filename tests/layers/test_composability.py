"""The layers inside torch's own machinery."""

import copy

import pytest
import torch
from helpers.quick import quick
from helpers.systems import ELASTIC, KINDS, SYSTEMS, draw, joined, make, parts
from safetensors.torch import load_file, save_file
from torch.func import functional_call, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

import eirehn


def run(layer, x, h0):
    return layer(x, h0, return_depth=True, return_cost=True)


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        assert torch.equal(joined(a), joined(b))


@pytest.mark.parametrize("name", SYSTEMS)
def test_deepcopy_state_dict_and_safetensors(name, tmp_path):
    layer = make(name, 2, 3, num_layers=2, bidirectional=True)
    x, h0 = draw(layer, 4, 3)
    expected = run(layer, x, h0)
    assert_same(run(copy.deepcopy(layer), x, h0), expected)
    save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    for values in (layer.state_dict(), load_file(tmp_path / "layer.safetensors")):
        loaded = make(name, 2, 3, seed=9, num_layers=2, bidirectional=True)
        loaded.load_state_dict(values)
        assert_same(run(loaded, x, h0), expected)


@pytest.mark.parametrize("name", SYSTEMS)
def test_vmap_over_stacked_parameters(name):
    members = [make(name, 2, 3, seed=seed, num_layers=2) for seed in range(3)]
    x, h0 = draw(members[0], 4, 3)
    parameters, buffers = stack_module_state(members)
    frame = copy.deepcopy(members[0]).to("meta")

    def call(parameters, buffers, x):
        return functional_call(frame, (parameters, buffers), (x, h0), {"return_depth": True, "return_cost": True})

    stacked = vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    for index, member in enumerate(members):
        out, h_n, depth, cost = run(member, x, h0)
        torch.testing.assert_close(stacked[0][index], out, rtol=0, atol=1e-12)
        torch.testing.assert_close(joined(stacked[1])[index], joined(h_n), rtol=0, atol=1e-12)
        assert torch.equal(stacked[2][index], depth)
        torch.testing.assert_close(stacked[3][index], cost, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ELASTIC)
def test_gradients_of_stacked_parameters(name):
    members = [make(name, 2, 3, seed=seed) for seed in range(2)]
    x, h0 = draw(members[0], 4, 3)
    parameters, _ = stack_module_state(members)
    frame = copy.deepcopy(members[0]).to("meta")

    def loss(parameters):
        return functional_call(frame, parameters, (x, h0))[0].square().sum()

    stacked = vmap(torch.func.grad(loss))(parameters)
    for index, member in enumerate(members):
        member(x, h0)[0].square().sum().backward()
        for key, parameter in member.named_parameters():
            torch.testing.assert_close(stacked[key][index], parameter.grad, rtol=1e-10, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick("RHN", "EIREHN-paper", of=SYSTEMS))
def test_a_compiled_cell_is_one_graph_with_the_same_bits(name):
    layer = make(name, 2, 3)
    x, h0 = draw(layer, 1, 3)
    state = tuple(part[0] for part in parts(h0)) if isinstance(h0, tuple) else h0[0]
    torch.compiler.reset()
    compiled = torch.compile(layer.cells[0], fullgraph=True, backend="aot_eager")
    assert_same(
        compiled(x[0], state, return_depth=True, return_cost=True),
        layer.cells[0](x[0], state, return_depth=True, return_cost=True),
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's inductor on itself
@pytest.mark.parametrize("name", ["SREHN", "EIREHN-paper"])
def test_a_cell_compiled_by_inductor(name):
    layer = make(name, 2, 3)
    x, h0 = draw(layer, 1, 3)
    torch.compiler.reset()
    compiled = torch.compile(layer.cells[0], fullgraph=True)
    torch.testing.assert_close(compiled(x[0], h0[0]), layer.cells[0](x[0], h0[0]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", quick("EIREHN-paper", of=KINDS))
def test_export(name):
    layer = make(name, 2, 3)
    x, h0 = draw(layer, 3, 2)
    program = torch.export.export(layer, (x, h0))
    expected = layer(x, h0)
    assert_same(program.module()(x, h0), expected)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("options", [{}, {"input_dropout": 0.3, "hidden_dropout": 0.3}], ids=["plain", "dropout"])
def test_gradient_checkpointing(name, options):
    if name.startswith("ACT"):
        options = {}
    layer = make(name, 2, 3, **options)
    x, h0 = draw(layer, 4, 3)
    gradients = []
    for wrapped in (False, True):
        layer.zero_grad()
        torch.manual_seed(0)
        out, _ = checkpoint(layer, x, h0, use_reentrant=False) if wrapped else layer(x, h0)
        out.square().sum().backward()
        gradients.append([p.grad.clone() for p in layer.parameters() if p.requires_grad])
    assert_same(*gradients)


@pytest.mark.parametrize("name", KINDS)
def test_meta_device_gives_shapes(name):
    layer = make(name, 2, 3, num_layers=2, device="meta")
    out, h_n, depth = layer(torch.empty(4, 3, 2, dtype=torch.float64, device="meta"), return_depth=True)
    assert out.shape == (4, 3, 3)
    assert joined(h_n).shape[:2] == (2, 3)
    assert depth.shape == (2, 4, 3)


@pytest.mark.parametrize("name", KINDS)
def test_modules_whose_weights_are_plain_tensors(name):
    """As in the replicas of nn.DataParallel."""
    layer = make(name, 2, 3)
    x, h0 = draw(layer, 3, 2)
    expected = layer(x, h0)
    for module in layer.modules():
        for key in list(module._parameters):
            value = module._parameters.pop(key)
            setattr(module, key, value.detach())
    assert_same(layer(x, h0), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["SREHN", "EIREHN-paper"])
def test_a_traced_layer_runs_to_its_depth(name):
    layer = make(name, 2, 3).eval()
    x, h0 = draw(layer, 3, 2)
    traced = torch.jit.trace(layer, (x, h0), check_trace=False)
    other, _ = draw(layer, 3, 2, seed=5)
    torch.testing.assert_close(traced(other, h0)[0], layer(other, h0)[0], rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["EIREHN", "RHN", "EIREHNCell"])
def test_torchscript_is_refused_in_one_sentence(name):
    layer = getattr(eirehn, name)(2, 3)
    with pytest.raises(TypeError, match=f"^{name} does not support torch.jit.script: use torch.export.export$"):
        torch.jit.script(torch.nn.Sequential(layer))
    if not name.endswith("Cell"):
        with eirehn.use_backend("auto"), pytest.raises(RuntimeError, match=r"use torch\.export\.export$"):
            torch.jit.trace(layer, (torch.randn(3, 2, 2),))


def test_nothing_but_parameters_is_stored():
    layer = eirehn.EIREHN(2, 3, num_layers=2)
    assert set(layer.state_dict()) == {key for key, _ in layer.named_parameters()}
