import pytest

import eirehn


@pytest.fixture(autouse=True, scope="module")
def _plain_path():
    """Experiments are tested on the path that users get."""
    with eirehn.use_backend("auto"):
        yield
