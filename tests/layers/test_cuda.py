"""The layers on a GPU, through whichever kernels `auto` takes, against the plain path in float64 on the CPU."""

import copy

import pytest
import torch
from helpers.systems import ELASTIC, FUSED, draw, largest_error, make, run
from torch.nn.utils.rnn import pack_padded_sequence

import eirehn
from eirehn.ops.cuda.machine import chip
from eirehn.ops.dispatch import backend_for

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True, scope="module")
def _kernels(_plain_path):
    with eirehn.use_backend("auto"):
        yield


def start(name, hidden, **options):
    """Initial weights, under which nothing explodes, and gates that stay open: where one is about to shut, as from
    the default initialisation, a rounding decides whether a unit has a gradient."""
    layer = make(name, 5, hidden, **options)
    if name in ELASTIC:
        layer.reset_parameters(alpha=0.05, decay_bias=-4.0, decay_scale=0.1)
    return layer


@pytest.mark.parametrize("hidden", [20, 48, 100, 200, 333])
@pytest.mark.parametrize("name", FUSED)
def test_float32(name, hidden):
    layer = start(name, hidden, num_layers=2, bidirectional=hidden < 100)
    x, h0 = draw(layer, 5, 7)
    with eirehn.use_backend("reference"):
        exact = run(layer, x, h0)
    single = copy.deepcopy(layer).float().cuda()
    assert backend_for(single.cells[0], x.cuda()) == "triton"
    assert largest_error(run(single, x.float().cuda(), h0.float().cuda()), exact) <= 1e-4


@pytest.mark.parametrize("hidden", [48, 200])
def test_packed(hidden):
    layer = start("EIREHN-paper", hidden)
    x, h0 = draw(layer, 6, 4)

    def pack(x):
        return pack_padded_sequence(x, [3, 6, 1, 4], enforce_sorted=False)

    with eirehn.use_backend("reference"):
        exact = run(layer, x, h0, pack)
    single = copy.deepcopy(layer).float().cuda()
    assert largest_error(run(single, x.float().cuda(), h0.float().cuda(), pack), exact) <= 1e-4


@pytest.mark.parametrize("hidden", [48, 200])
@pytest.mark.parametrize("pure", [True, False], ids=["bfloat16", "autocast"])
def test_bfloat16(hidden, pure):
    """Without the cost: in bfloat16 a rounding decides which unit is the deepest, to which its gradient goes."""
    layer = start("EIREHN-paper", hidden).bfloat16().double()  # weights that bfloat16 can hold
    x, h0 = draw(layer, 5, 7)
    x, h0 = x.bfloat16().double(), h0.bfloat16().double()
    with eirehn.use_backend("reference"):
        exact = run(layer, x, h0, with_cost=False)
    half = copy.deepcopy(layer).cuda().to(torch.bfloat16 if pure else torch.float32)
    dtype = torch.bfloat16 if pure else torch.float32
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not pure):
        chosen = backend_for(half.cells[0], x.to(dtype).cuda(), 7)
        able = ["triton", "cuda"] if hidden > 128 and chip(0) else ["triton"]
        assert chosen == able[-1]
        for backend in able:
            with eirehn.use_backend(backend):
                found = run(half, x.to(dtype).cuda(), h0.to(dtype).cuda(), with_cost=False)
            assert found[0].dtype == dtype
            assert (
                largest_error(found, exact) <= 3e-2
            )  # the gradients themselves are rounded to bfloat16 on their way here


def test_an_ensemble_in_one_call():
    members = [start("EIREHN-paper", 20, seed=seed).float().cuda() for seed in range(3)]
    x = torch.randn(6, 5, 5, device="cuda")
    parameters, _ = torch.func.stack_module_state(members)
    frame = copy.deepcopy(members[0]).to("meta")
    out = torch.func.vmap(lambda p: torch.func.functional_call(frame, p, (x,))[0])(parameters)
    out.square().sum().backward()
    for index, member in enumerate(members):
        alone = member(x)[0]
        alone.square().sum().backward()
        torch.testing.assert_close(out[index], alone, rtol=1e-5, atol=1e-6)
        for key, parameter in member.named_parameters():
            torch.testing.assert_close(parameters[key].grad[index], parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("hidden", [20, 200])
def test_a_device_that_is_not_the_current_one(hidden):
    layer = start("EIREHN-paper", hidden).float()
    x = torch.randn(5, 7, 5)
    expected = layer.cuda(0)(x.cuda(0))[0]
    found = layer.cuda(1)(x.cuda(1))[0]
    found.sum().backward()
    torch.testing.assert_close(found.cpu(), expected.cpu())


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # the warm-up runs on a stream of its own
@pytest.mark.parametrize("hidden", [20, 200])
def test_a_captured_graph(hidden):
    layer = start("EIREHN-paper", hidden).float().cuda()
    x = torch.randn(5, 7, 5, device="cuda")

    def step():
        layer.zero_grad(set_to_none=False)
        out = layer(x)[0]
        out.square().sum().backward()
        return out

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    expected = step().clone()
    x.mul_(1.0)
    graph.replay()
    torch.testing.assert_close(captured, expected)
