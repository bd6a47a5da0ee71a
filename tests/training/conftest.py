import pytest
import torch

import eirehn


@pytest.fixture(autouse=True, scope="module")
def _plain_path():
    """Trainings are tested on the path that users get."""
    with eirehn.use_backend("auto"):
        yield


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)
