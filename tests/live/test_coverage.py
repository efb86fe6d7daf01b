"""The quick answer's interval covers the figure of all requests as often as it says."""

import numpy as np
import pytest

from drills.live_coverage import coverage


@pytest.mark.drill
def test_quick_intervals_cover_the_value_of_all_requests(tmp_path):
    hits = coverage(tmp_path, None, 300)
    assert all(len(found) > 100 for found in hits.values())
    everything = np.concatenate(list(hits.values()))
    assert 0.93 <= everything.mean() <= 0.97, {name: np.mean(found) for name, found in hits.items()}
