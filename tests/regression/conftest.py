"""The plain market of these tests: its folder, its sums and its baseline file."""

import pytest

from worlds.guarded_market import plain_baseline, plain_home, plain_measured


@pytest.fixture(scope="module")
def home():
    return plain_home()


@pytest.fixture(scope="module")
def measured():
    return plain_measured()


@pytest.fixture(scope="module")
def file():
    return plain_baseline()
