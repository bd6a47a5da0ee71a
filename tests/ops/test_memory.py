"""Peak memory of training: it grows with T·H, not with the depth."""

import subprocess
import sys
import textwrap

import pytest


def peak_mebibytes(layer, steps):
    """What a forward and backward pass adds to the resident memory of a fresh process."""
    code = f"""
        import resource, torch, eirehn
        torch.set_num_threads(1)
        layer = {layer}
        def train(steps):
            layer(torch.randn(steps, 200, 9))[0].sum().backward()
        train(2)  # kernels are loaded, threads started
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        train({steps})
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True, timeout=600
    )
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts in other units elsewhere")
def test_peak_memory_is_at_most_three_times_that_of_an_lstm():
    lstm = peak_mebibytes("torch.nn.LSTM(9, 48)", 1024)
    deep = peak_mebibytes("eirehn.EIREHN(9, 48, max_depth=10)", 1024)
    shallow = peak_mebibytes("eirehn.EIREHN(9, 48, max_depth=2)", 1024)
    assert deep <= 3 * lstm, (deep, lstm)
    assert deep <= 1.2 * shallow, (deep, shallow)
