"""Other traffic of the same world: where it begins, and that it is compared unpaired."""

import numpy as np

from cascade_sim.revenue.baseline import read_baseline
from cascade_sim.revenue.check import check_revenue
from cascade_sim.revenue.text import verdict_text
from worlds.guarded_market import measure_plain


def test_other_requests_of_the_same_world_are_compared_unpaired_and_need_not_be_as_many(file, home):
    other = measure_plain(home, "phases.evaluate=1024", stretch=3)
    verdict = check_revenue(read_baseline(file), other)
    assert not verdict.is_paired and verdict.passed
    assert all(finding.has_moved for finding in verdict.findings)
    assert "unpaired" in verdict_text(verdict)


def test_the_first_stretch_of_other_traffic_is_the_usual_one_and_later_ones_do_not_overlap(sim):
    from cascade_sim.revenue.serving import OtherTraffic

    n = sim.scenario.phases.evaluate
    usual = sim.arrivals.block("evaluate", 0, n)
    first, second = (OtherTraffic(sim, 1, stretch) for stretch in (0, 1))
    np.testing.assert_array_equal(first.block("evaluate", 0, n).requests, usual.requests)
    np.testing.assert_array_equal(first.block("evaluate", 0, n).users, usual.users)
    size = sim.scenario.traffic.block
    blocks = -(-n // size)
    assert second.first_request("evaluate") == usual.requests[0] + blocks * size
    assert second.block("evaluate", 0, n).requests[0] == second.first_request("evaluate")
    assert len(second.block("evaluate", blocks - 1, n)) == n - (blocks - 1) * size
    np.testing.assert_array_equal(
        second.block("log", 1, n).requests, sim.arrivals.block("log", 1, n).requests
    )
