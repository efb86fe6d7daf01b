"""The figures of a live page are there for every parameter; how large they are is not tested."""

from cascade_sim.bench.live import live_text, measure
from worlds.whatif_runs import measured_run


def test_every_parameter_is_turned_on_some_requests_and_on_all(study, tmp_path):
    found = measure(measured_run(study, tmp_path / "run"))
    assert found["requests"] == 500 and found["trace_ms"]["n"] == 20
    assert {"auction.reserve_cpc", "cascade.slots", "bidding.rule"} <= set(found["by_parameter"])
    text = live_text(found)
    assert "all 500" in text and all(path in text for path in found["by_parameter"])
