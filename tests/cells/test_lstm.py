"""RNN, GRU and LSTM are torch's own, with one bias vector."""

import copy
import pickle

import pytest
import torch
from helpers.systems import joined, parts
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.utils.checkpoint import checkpoint

import eirehn
from eirehn.models import SequenceNetwork
from eirehn.models.body import build_body

NAMES = ["RNN", "GRU", "LSTM"]
names = st.sampled_from(NAMES)
small = st.integers(1, 5)
seeds = st.integers(0, 10**6)
layouts = st.fixed_dictionaries({"num_layers": st.integers(1, 3), "bidirectional": st.booleans()})


def make(name, inputs=2, hidden=3, *, seed=0, **options):
    torch.manual_seed(seed)
    return getattr(eirehn, name)(inputs, hidden, **{"dtype": torch.float64, **options})


def draw(layer, steps, batch, *, seed=1):
    generator = torch.Generator().manual_seed(seed)
    size = (layer.num_layers * (2 if layer.bidirectional else 1), batch, layer.hidden_size)
    states = [torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2)]
    x = torch.randn(steps, batch, layer.input_size, generator=generator, dtype=torch.float64)
    return x, tuple(states) if isinstance(layer, eirehn.LSTM) else states[0]


def close(left, right, tolerance=1e-11):
    torch.testing.assert_close(left, right, rtol=0, atol=tolerance)


FORMS = ["time first", "batch first", "unbatched", "packed", "no state"]


def formed(form, layer, x, h0):
    """The input (T, B, X) and the states as `form` says."""
    layer.batch_first = form in ("batch first", "unbatched")  # without a batch it is ignored, as torch does
    if form == "batch first":
        x = x.transpose(0, 1)
    elif form == "packed":
        x = pack_padded_sequence(x, [1 + (2 + 3 * k) % len(x) for k in range(x.size(1))], enforce_sorted=False)
    elif form == "unbatched":
        x, h0 = x[:, 0], tuple(part[:, 0] for part in h0) if isinstance(h0, tuple) else h0[:, 0]
    return x, None if form == "no state" else h0


def results_of(call, module, x, h0, *leaves):
    """Of a layer: outputs, last states, and the gradients of a sum that weighs each of their numbers differently,
    with respect to `leaves` and the trained parameters of `module`."""
    torch.manual_seed(5)
    out, h_n = call(x, h0)
    found = (out.data if isinstance(out, PackedSequence) else out, *parts(h_n))
    loss = sum((part * torch.linspace(-1, 2, part.numel()).view(part.shape)).sum() for part in found)
    trained = [p for p in module.parameters() if p.requires_grad]
    return *found, *torch.autograd.grad(loss, [*trained, *leaves], allow_unused=True, retain_graph=True)


@given(names, small, small, small, small, layouts, st.sampled_from(FORMS), seeds)
def test_outputs_states_and_gradients_are_those_of_torch(name, steps, batch, inputs, hidden, layout, form, seed):
    layer = make(name, inputs, hidden, seed=seed, **layout)
    leaves = [part.requires_grad_() for each in draw(layer, steps, batch) for part in parts(each)]
    given = formed(form, layer, leaves[0], tuple(leaves[1:]) if name == "LSTM" else leaves[1])
    twin = layer.to_torch()
    assert type(twin) is getattr(nn, name)
    close(results_of(layer, layer, *given, *leaves), results_of(twin, twin, *given, *leaves))


@pytest.mark.parametrize("name", NAMES)
def test_starts_where_torch_starts(name):
    layer = make(name, 50, 64, num_layers=2)
    for _ in range(2):
        for parameter in layer.parameters():
            assert parameter.detach().abs().max() <= 1 / 8
            assert parameter.detach().std() == pytest.approx(1 / 8 / 3**0.5, rel=0.25)
        layer.reset_parameters()
    assert not any(
        bias.any()
        for key, bias in zip(layer._flat_weights_names, layer._flat_weights, strict=True)
        if "bias_hh" in key
    )


@pytest.mark.parametrize("name", NAMES)
def test_weights_go_to_torch_and_back(name):
    layer = make(name, num_layers=2, bidirectional=True, batch_first=True, dropout=0.25).eval()
    twin = layer.to_torch()
    assert repr(twin) == repr(layer)
    assert all(p.requires_grad for p in layer.parameters())
    assert not twin.training
    assert sum(p.numel() for p in twin.parameters() if p.requires_grad) == sum(
        p.numel() for p in layer.parameters()
    )
    again = make(name, seed=5, num_layers=2, bidirectional=True)
    again.load_state_dict(twin.state_dict())
    for key, value in again.state_dict().items():
        assert torch.equal(value, layer.state_dict()[key])


@pytest.mark.parametrize("name", NAMES)
def test_two_biases_add_up_to_one(name):
    torch.manual_seed(0)
    twin = getattr(nn, name)(2, 3, 2, bidirectional=True, dtype=torch.float64)
    if name == "GRU":
        with torch.no_grad():
            for key, bias in twin.named_parameters():
                if "bias_hh" in key:
                    bias[6:] = 0.0
    given = {f"body.{key}": value.clone() for key, value in twin.state_dict().items()}
    model = nn.ModuleDict({"body": make(name, num_layers=2, bidirectional=True)})
    assert not any(model.load_state_dict(given))
    for key, value in twin.state_dict().items():
        assert torch.equal(given[f"body.{key}"], value)  # the caller's are left alone
    x, h0 = draw(model["body"], 4, 3)
    close(joined(model["body"](x, h0)[1]), joined(twin(x, h0)[1]))
    del given["body.bias_ih_l0"], given["body.bias_hh_l1"]
    missing, unexpected = model.load_state_dict(given, strict=False)
    assert missing == ["body.bias_ih_l0"]
    assert not unexpected


def test_a_bias_inside_the_reset_gate_cannot_be_added():
    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match=r"bias_hh_l0: GRU has one bias vector.* last third must be zero"):
        make("GRU").load_state_dict(nn.GRU(2, 3, dtype=torch.float64).state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_copies_files_dtypes_and_devices(name, tmp_path):
    layer = make(name, num_layers=2, bidirectional=True)
    x, h0 = draw(layer, 4, 3)
    out = layer(x, h0)[0]
    save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    loaded = make(name, seed=9, num_layers=2, bidirectional=True)
    loaded.load_state_dict(load_file(tmp_path / "layer.safetensors"))
    for other in (
        loaded,
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        layer.to("meta").to_empty(device="cpu"),
    ):
        if other is layer:
            other.load_state_dict(loaded.state_dict())
        assert torch.equal(other(x, h0)[0], out)
    single = layer.float()
    assert single(x.float())[0].dtype == torch.float32
    meta = make(name, device="meta")
    assert meta(torch.empty(4, 3, 2, device="meta", dtype=torch.float64))[0].shape == (4, 3, 3)


@pytest.mark.parametrize("name", NAMES)
def test_functional_call_on_a_frame_without_values(name):
    layer = make(name)
    x, h0 = draw(layer, 4, 3)
    expected = layer(x, h0)[0]
    frame = copy.deepcopy(layer).to("meta")
    assert torch.equal(functional_call(frame, dict(layer.named_parameters()), (x, h0))[0], expected)
    assert torch.equal(layer(x, h0)[0], expected)


@pytest.mark.filterwarnings("ignore:The tensor attribute")  # torch's own layers give it too
@pytest.mark.parametrize("name", NAMES)
def test_export_compilation_and_checkpointing(name):
    layer = make(name)
    x, h0 = draw(layer, 4, 3)
    expected = layer(x, h0)[0]
    close(torch.export.export(layer, (x, h0)).module()(x, h0)[0], expected)
    assert torch.equal(layer(x, h0)[0], expected)
    torch.compiler.reset()
    close(torch.compile(layer, backend="aot_eager")(x, h0)[0], expected)
    assert torch.equal(checkpoint(layer, x, h0, use_reentrant=False)[0], expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_dropout_between_layers_is_torch_s(name, form, bidirectional):
    """On a CPU torch drops there by the same draws: outputs, states and gradients of three layers are the same."""
    layer = make(name, num_layers=3, dropout=0.4, bidirectional=bidirectional)
    layer.layer_by_layer = True
    x, h0 = draw(layer, 5, 3)
    given = formed(form, layer, x.requires_grad_(), h0)
    twin = layer.to_torch()
    found = results_of(layer, layer, *given, x)
    close(found, results_of(twin, twin, *given, x))
    out = layer.eval()(*given)[0]
    assert not torch.equal(out.data if form == "packed" else out, found[0])


@pytest.mark.parametrize("name", NAMES)
def test_dropout_between_layers_with_weights_from_elsewhere(name):
    """As trainings give them: to a frame without values."""
    layer = make(name, num_layers=3, dropout=0.4)
    layer.layer_by_layer = True
    frame = copy.deepcopy(layer).to("meta")
    given = draw(layer, 5, 3)

    def call(*given):
        return functional_call(frame, dict(layer.named_parameters()), given)

    for ours, theirs in zip(results_of(call, layer, *given), results_of(layer, layer, *given), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_between_layers_of_a_network_is_not_left_to_cudnn(name, monkeypatch):
    """Whose draws cannot be recorded. A layer that is nobody's is torch's own."""
    dropped, original = [], torch.nn.functional.dropout

    def dropout(x, p):
        dropped.append((tuple(x.shape), p))
        return original(x, p)

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    layer = build_body(SequenceNetwork(name, 3, num_layers=3, dropout=0.4), 2).double()
    x, h0 = draw(layer, 5, 2)
    layer(x.transpose(0, 1), h0)
    assert dropped == [((5, 2, 3), 0.4)] * 2  # whichever axis is first, as torch does on a CPU
    make(name, num_layers=3, dropout=0.4)(x, h0)
    layer.eval()(x.transpose(0, 1), h0)
    assert len(dropped) == 2


@pytest.mark.parametrize("name", NAMES)
def test_function_transforms(name):
    """torch.func.grad is torch's own, and vmap is refused in plain words."""
    layer = make(name, num_layers=2)
    x, h0 = draw(layer, 4, 3)
    parameters = {key: value.detach() for key, value in layer.named_parameters()}
    found = torch.func.grad(lambda own: functional_call(layer, own, (x, h0))[0].square().sum())(parameters)
    layer(x, h0)[0].square().sum().backward()
    for key, parameter in layer.named_parameters():
        close(found[key], parameter.grad)
    layers = [make(name, seed=seed) for seed in range(2)]
    stacked, _ = stack_module_state(layers)
    with pytest.raises(
        RuntimeError, match=f"vmap cannot run {name}, which is torch's own: call one model at a time"
    ):
        vmap(lambda own: functional_call(layers[0], own, (x,)))(stacked)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
@pytest.mark.parametrize("there", [True, False], ids=["as it is", "a CPU without such instructions"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "dropout": 0.5}], ids=["torch's", "layer by layer"])
def test_autocast_on_any_cpu(name, options, dtype, there, monkeypatch):
    if not there:
        monkeypatch.setattr("eirehn.cells.lstm._autocasts", lambda: False)
    layer = make(name, **options, dtype=torch.float32).eval()
    layer.layer_by_layer = True
    x, hx = draw(layer, 4, 3)
    x = x.float()
    hx = tuple(part.float() for part in hx) if name == "LSTM" else hx.float()
    expected, _ = layer(x, hx)
    with torch.autocast("cpu", dtype):
        out, h_n = layer(x.to(dtype), hx)
        layer.train()(x, hx)[0].float().sum().backward()
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=4 * rounding)
    assert joined(h_n).shape == joined(hx).shape
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_errors(name):
    """Those of all layers, from the same checks; of each a few."""
    call = make(name, num_layers=2)
    x, wrong = torch.zeros(4, 3, 2, dtype=torch.float64), torch.zeros(2, 4, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=f"{name}: Expected input to be 2D or 3D, got 1D instead"):
        call(x[0, 0])
    with pytest.raises(ValueError, match="does not match weight dtype"):
        call(x.float())
    with pytest.raises((ValueError, RuntimeError), match="Expected sequence length to be larger than 0 in RNN"):
        call(x[:0])
    with pytest.raises(ValueError, match=r"Expected hidden size \(2, 3, 3\), got \[2, 4, 3\]"):
        call(x, (wrong, wrong) if name == "LSTM" else wrong)
    with pytest.raises(TypeError, match="hx should be a"):
        call(x, "zeros")


@pytest.mark.parametrize("name", NAMES)
def test_no_second_bias_and_no_projection(name):
    for option in ("bias", "proj_size", "nonlinearity"):
        with pytest.raises(TypeError, match=option):
            getattr(eirehn, name)(2, 3, **{option: 0})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name):
    """cuDNN takes the constant zero with the weights, as one piece of memory: it warns where they are not."""
    layer = make(name, num_layers=2, bidirectional=True, dtype=torch.float32).cuda()
    x, _ = draw(layer, 5, 3)
    x = x.float().cuda()
    out = layer(x)[0]
    torch.testing.assert_close(out, layer.to_torch()(x)[0], rtol=0, atol=1e-6)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
