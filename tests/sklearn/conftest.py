import pytest

import eirehn

pytest.importorskip("sklearn")


@pytest.fixture(autouse=True, scope="module")
def _plain_path():
    """Estimators are tested on the path that users get."""
    with eirehn.use_backend("auto"):
        yield
