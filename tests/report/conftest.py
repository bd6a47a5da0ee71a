import pytest
from helpers.browser import Browser, find_browser


@pytest.fixture(scope="session")
def browser():
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome on this machine")
    with Browser(program) as started:
        yield started
