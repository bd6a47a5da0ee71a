"""The operator, and torch's machinery around it: compile, export, function transforms, double backward."""

import pytest
import torch
from helpers.quick import quick
from helpers.systems import FUSED, draw, largest_error, make, run
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence

import eirehn
from eirehn.ops.dispatch import backend_for
from eirehn.ops.operator import recurrence, recurrence_backward
from eirehn.ops.reference import unfused
from eirehn.ops.weights import Arguments, Weights, weights_of


@pytest.fixture(autouse=True)
def _cpu_kernels(_plain_path):
    with eirehn.use_backend("cpu"):
        yield


def same(found, exact, tolerance=1e-11):
    return largest_error(found, exact) <= tolerance


def agrees(layer, x, h0, **options):
    fast = run(layer, x, h0, **options)
    with eirehn.use_backend("reference"):
        return same(fast, run(layer, x, h0, **options))


@pytest.mark.parametrize("name", quick("RHN", "EIREHN-paper", "EIREHN-scaling", of=FUSED))
def test_layers_of_every_form_use_it(name):
    layer = make(name, 2, 5, num_layers=2, bidirectional=True, dropout=0.3, input_dropout=0.2, hidden_dropout=0.3)
    x, h0 = draw(layer, 6, 4)
    assert backend_for(layer.cells[0], x) == "cpu"
    assert agrees(layer, x, h0)
    assert agrees(layer, x, h0, max_depth=2)
    lengths = [3, 6, 1, 4]
    assert agrees(layer, x, h0, pack=lambda x: pack_padded_sequence(x, lengths, enforce_sorted=False))


@pytest.mark.parametrize("name", quick("RHN", of=["RHN", "EIREHN-paper"]))
def test_gradcheck(name):
    layer = make(name, 2, 3, **({"depth": 3} if name == "RHN" else {"max_depth": 3}))
    x, h0 = draw(layer, 2, 2)
    names = [key for key, _ in layer.named_parameters()]
    inputs = [x, h0, *(p.detach().clone() for p in layer.parameters())]

    def call(x, h0, *values):
        results = functional_call(layer, dict(zip(names, values, strict=True)), (x, h0), {"return_cost": True})
        return results[0], results[2]

    inputs = [each.requires_grad_() for each in inputs]
    assert torch.autograd.gradcheck(call, inputs, eps=1e-6, atol=1e-7)
    assert torch.autograd.gradgradcheck(call, inputs, eps=1e-6, atol=1e-6)


def arguments(name, *, mask=False):
    layer = make(name, 2, 3)
    cell = layer.cells[0]
    x, h0 = draw(layer, 3, 2)
    tensors = [cell.project(x.flatten(0, 1)), h0[0], None, *weights_of(cell, cell.constants())]
    if mask:
        tensors[2] = torch.full_like(h0[0], 1.5)
    leaves = [None if each is None else each.detach()[None].clone().requires_grad_() for each in tensors]
    kind = name.partition("-")[2] or "none"
    return (*leaves, [2, 2, 2], kind, cell.resolve_depth(None), False, "cpu")


@pytest.mark.parametrize("name", quick("RHN", "EIREHN-paper", of=FUSED))
def test_opcheck(name):
    given = arguments(name)
    torch.library.opcheck(recurrence, given)
    tensors = [None if each is None else each.detach() for each in given[:15]]
    out, _ = recurrence(*tensors, *given[15:])
    torch.library.opcheck(recurrence_backward, (*tensors, out, torch.randn_like(out), *given[15:]))


@pytest.mark.parametrize("name", FUSED)
def test_the_plain_form_of_the_operator(name):
    *tensors, sizes, kind, depth, reverse, _ = arguments(name, mask=True)
    results = recurrence(*tensors, sizes, kind, depth, reverse, "cpu")
    plain = unfused(Arguments(*tensors[:3], Weights(*tensors[3:]), sizes, kind, depth, reverse))
    assert same(results, plain)


@pytest.mark.parametrize("name", quick("RHN", "EIREHN-paper", of=FUSED))
def test_torch_compile_sees_one_node(name):
    layer = make(name, 2, 3)
    x, h0 = draw(layer, 4, 5)
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=keep)
    out, h_n = compiled(x, h0)
    assert same((out, h_n), layer(x, h0), 1e-14)
    nodes = [node for graph in graphs for node in graph.graph.nodes if "recurrence" in str(node.target)]
    assert len(nodes) == 1
    torch.compiler.reset()
    trained = torch.compile(layer, fullgraph=True, backend="aot_eager")
    trained(x, h0)[0].square().sum().backward()
    found = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    layer(x, h0)[0].square().sum().backward()
    assert same(found, [p.grad for p in layer.parameters()])


def test_shapes_without_values():
    layer = eirehn.EIREHN(2, 3)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert layer(torch.randn(4, 5, 2))[0].shape == (4, 5, 3)


# torch's forward mode loads its own TorchScript rules, and warns of itself.
jvp_of_torch = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@jvp_of_torch
def test_function_transforms_take_the_plain_path_under_auto_and_are_right():
    layer = make("EIREHN-paper", 2, 3)
    x, h0 = draw(layer, 4, 5)
    parameters = {key: value.detach() for key, value in layer.named_parameters()}
    tangents = {key: torch.randn_like(value) for key, value in parameters.items()}

    def loss(parameters):
        return functional_call(layer, parameters, (x, h0))[0].square().sum()

    with eirehn.use_backend("auto"):
        gradient = torch.func.grad(loss)(parameters)
        _, slope = torch.func.jvp(loss, (parameters,), (tangents,))
    layer(x, h0)[0].square().sum().backward()
    for key, value in layer.named_parameters():
        assert same([gradient[key]], [value.grad])
    expected = sum((value.grad * tangents[key]).sum() for key, value in layer.named_parameters())
    assert slope.item() == pytest.approx(expected.item(), rel=1e-10)
    assert slope.item() != 0


@jvp_of_torch
def test_forward_mode_takes_the_plain_path():
    layer = make("SREHN", 2, 3)
    x, h0 = draw(layer, 2, 2)
    direction = torch.randn_like(x)
    with eirehn.use_backend("auto"), torch.autograd.forward_ad.dual_level():
        dual = layer(torch.autograd.forward_ad.make_dual(x, direction), h0)[0]
        slope = torch.autograd.forward_ad.unpack_dual(dual).tangent.sum()
    x.requires_grad_()
    layer(x, h0)[0].sum().backward()
    assert slope.item() == pytest.approx((x.grad * direction).sum().item(), rel=1e-10)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_signs_that_torch_is_yet_to_turn(batch, grad):
    def negated(*shape):
        value = torch.complex(torch.zeros(shape), torch.randn(shape)).conj().imag
        assert value.is_neg()
        return value

    layer = eirehn.EIREHN(2, 5)
    x, h0 = negated(4, batch, 2), negated(1, batch, 5)
    with torch.set_grad_enabled(grad):
        out, _ = layer(x, h0)
        assert torch.equal(out, layer(x.clone().resolve_neg(), h0.clone().resolve_neg())[0])
    if grad:
        d_out = negated(*out.shape)
        ours = torch.autograd.grad(out, layer.cells[0].W_h, d_out, retain_graph=True)[0]
        assert torch.equal(ours, torch.autograd.grad(out, layer.cells[0].W_h, d_out.resolve_neg())[0])


def test_autocast_runs_the_kernels_in_float32():
    layer = make("EIREHN-paper", 2, 5).float()
    x, h0 = draw(layer, 5, 7)
    full = layer(x.float(), h0.float())[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x.float(), h0.float())[0]
    assert out.dtype == torch.float32
    assert (out - full).abs().mean() < 0.02 * full.abs().mean()
