import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import eirehn


@pytest.fixture(autouse=True)
def _kernels():
    torch.compiler.reset()
    with eirehn.use_backend("auto"):
        yield


@pytest.mark.slow
@torch.no_grad()
def test_packed_sequences_and_resets_run_uncompiled():
    layer = eirehn.EIREHN(2, 3, dtype=torch.float64)
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    reset = torch.tensor([[False, True]] * 5)
    cases = ((pack_sequence([x[:, 0], x[:3, 1]]), {}), (x, {"reset": reset}))

    def model(x, **options):
        out, h_n, depth = layer(x, return_depth=True, **options)
        return 2 * out.data, h_n, depth

    compiled, whole = (torch.compile(model, backend="aot_eager", fullgraph=each) for each in (False, True))
    for given, options in cases:
        torch.compiler.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="to compile it as one graph, pad the sequences"):
            whole(given, **options)
        torch.testing.assert_close(compiled(given, **options), model(given, **options), rtol=0, atol=0)
    torch.testing.assert_close(whole(x[:1], reset=reset[:1]), model(x[:1], reset=reset[:1]))  # needs no cut
