"""The quick answer's interval covers the figure of all requests as often as it says."""

import numpy as np
import pytest

from cascade_sim.live import figures
from cascade_sim.live.session import Session, Way
from worlds.tiny_market import run_phases, tiny_scenario
from worlds.whatif_runs import measured_run

pytestmark = pytest.mark.drill

MEASURES = ("expected_revenue_per_request", "revenue_per_request", "expected_ctr", "cpc", "rcs")
SETTINGS, BLOCKS = 300, 16


def settings(generator):
    """A random setting of one to three knobs."""
    knobs = {
        "auction.reserve_cpc": f"{generator.uniform(0.2, 1.2):.3f}",
        "auction.squashing": f"{generator.uniform(0.4, 1.4):.2f}",
        "cascade.slots": str(generator.integers(1, 4)),
        "cascade.pre_ranking.size": str(generator.integers(5, 50)),
        "cascade.pre_ranking.model": str(generator.choice(["ltr", "distill-pre"])),
        "cascade.pre_ranking.bid": "opt",
        "auction.pricing": "first",
    }
    chosen = generator.choice(list(knobs), size=generator.integers(1, 4), replace=False)
    return tuple(f"{path}={knobs[path]}" for path in chosen)


def test_quick_intervals_cover_the_value_of_all_requests(tmp_path):
    """Every setting has its own sample: of one sample, errors of like settings would be alike."""
    scenario = tiny_scenario("phases.evaluate=10240")
    session = Session(
        measured_run(run_phases(scenario, tmp_path / "study", tmp_path / "cache"), tmp_path / "run")
    )
    generator, base, all_blocks = (
        np.random.default_rng(1),
        session.arm(Way(session.baseline)),
        session.blocks(True),
    )
    list(session.measured(base, all_blocks))
    hits = {name: [] for name in MEASURES}
    for _ in range(SETTINGS):
        arm = session.arm(Way(session.baseline, settings(generator)))
        list(session.measured(arm, all_blocks))
        sample = generator.choice(session.n_blocks, BLOCKS, replace=False).tolist()
        quick, whole = (
            figures.measures(
                session, *([session.pages(side)[i] for i in blocks] for side in (arm, base)), blocks, MEASURES
            )
            for blocks in (sample, list(all_blocks))
        )
        for name in MEASURES:
            interval, value = quick[name]["lift"], whole[name]["lift"]["value"]
            if interval["high"] > interval["low"]:  # of a knob that this measure does not feel
                hits[name].append(interval["low"] <= value <= interval["high"])
    assert all(len(found) > 100 for found in hits.values())
    everything = np.concatenate([hits[name] for name in MEASURES])
    assert 0.93 <= everything.mean() <= 0.97, {name: np.mean(found) for name, found in hits.items()}
