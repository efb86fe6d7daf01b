"""Three machines of which one is killed, once; tests/drills/many_machines.py does it in earnest."""

import subprocess
import sys

import pytest

from drills.many_machines import may_unshare
from places import TESTS

pytestmark = pytest.mark.drill


@pytest.mark.skipif(not may_unshare(), reason="host names of one's own need the right to `unshare -n -u`")
def test_three_machines_of_which_one_is_killed_leave_the_same_bytes_as_this_one():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cascade_sim[ray]'")
    script = str(TESTS / "drills" / "many_machines.py")
    words = [sys.executable, script, "--kills", "1", "--works", "0", "1", "--seeds", "2"]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "world seed-3 died three times" in found.stdout
