"""The drill of half-open connections, with few of them: a person is answered, and the others are let go."""

import pytest

from cascade_sim import import_logs
from drills.half_open import drill
from worlds.small_log import small_log

pytestmark = pytest.mark.drill


@pytest.mark.parametrize("descriptors", [None, 64])
def test_a_person_is_answered_while_others_hang(tmp_path, descriptors):
    import_logs(small_log(60).write(tmp_path / "log"), tmp_path / "market", quiet=True)
    found = drill(tmp_path / "market", 120, 3.0, descriptors)
    assert found["answered"] == found["asked"] > 2
    assert found["half_open_at_the_end"] <= (100 if descriptors is None else 16)
    assert found["after"]["descriptors"] <= found["before"]["descriptors"] + 2
    assert found["stderr_bytes"] < 1000
