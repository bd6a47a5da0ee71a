import os

import pytest
import torch
from hypothesis import settings

import eirehn

# Triton's kernels run in its interpreter where there is no GPU; it must know before it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# One thread a worker: the tensors are tiny, and the tests run side by side.
torch.set_num_threads(1)
settings.register_profile("ci", max_examples=40, deadline=None, derandomize=True)
settings.register_profile("dev", max_examples=15, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection_modifyitems(items):
    """Tests of the GPU kernels and of trainings on a GPU, for `make test-gpu`: those with cuda or triton in their
    path; some run without a GPU, too, in an interpreter or an emulation."""
    for item in items:
        if "cuda" in item.nodeid or "triton" in item.nodeid:
            item.add_marker("gpu")


@pytest.fixture(autouse=True, scope="module")
def _plain_path():
    """Tests are of the equations unless they say otherwise: the kernels are compared with them."""
    with eirehn.use_backend("reference"):
        yield


@pytest.fixture(scope="session")
def language_run(tmp_path_factory):
    """The run of a small language model that has learned its text."""
    from helpers.language import small_language_recipe, written

    from eirehn.training.trainer import train

    folder = tmp_path_factory.mktemp("language")
    with eirehn.use_backend("auto"):
        train(small_language_recipe(written(folder)), folder / "run")
    return folder / "run"
