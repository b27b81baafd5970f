"""The tests of a store, its links and its threads once more, over TLS: the server speaks it on a second port, and the store is asked there."""

import os
import subprocess

import pytest

from support import BUILD
from support.certificates import Authority


@pytest.fixture(name="folder", scope="module")
def certificates():
    """With the names that servers.h wants."""
    with Authority() as ca:
        ca.issue("server")
        yield os.path.dirname(ca.path)


@pytest.mark.parametrize("name", ["cuts", "decide", "holds", "overdraft", "penalties", "places", "splits", "store", "together"])
def test_over_tls(folder, name):
    program = os.path.join(BUILD, "tests/redis", f"redis_{name}")
    done = subprocess.run([program], env={**os.environ, "WEIR_TEST_STORE_TLS": folder}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
