"""The way of layers to the kernels of a GPU, in Triton's interpreter where there is none."""

import pytest
from helpers.gpu_problems import DEVICE, GPU_TESTS
from helpers.quick import quick
from helpers.systems import FUSED, draw, largest_error, moderate, run
from torch.nn.utils.rnn import pack_padded_sequence

import eirehn

pytestmark = GPU_TESTS


@pytest.mark.parametrize("name", quick("RHN", "EIREHN-paper", of=FUSED))
def test_a_layer_by_triton(name):
    layer = moderate(name, 2, 9, bidirectional=True, hidden_dropout=0.2)
    x, h0 = (each.float().to(DEVICE) for each in draw(layer, 3, 4))
    layer.float().to(DEVICE)
    runs = []
    for backend in ("triton", "reference"):
        with eirehn.use_backend(backend):
            runs.append(run(layer, x, h0, lambda x: pack_padded_sequence(x, [3, 2, 2, 1])))
    assert largest_error(*runs) <= 1e-4
