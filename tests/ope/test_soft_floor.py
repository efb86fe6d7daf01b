"""Randomised logs of a platform with a soft floor: what they charge, and what is asked of them."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim import SEMANTICS, off_policy
from cascade_sim.auction import MICROS
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import serve
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.foundation.progress import Progress
from cascade_sim.ope.log import PARAMETERS, SLATES, parameter_tables, slate_tables, write_logs
from cascade_sim.scenario.file import dump_scenario
from cascade_sim.storage.folder import json_text
from cascade_sim.storage.model_store import ModelStore
from worlds.randomised_logs import logged, small_scenario

N = 256


def soft(arm, floor):
    return replace(arm, pricing="soft_floor", parameters={"soft_floor": floor})


def parameter_rows(arm):
    sim = logged().sim
    return parameter_tables(sim, sim.arrivals.block(PARAMETERS, 0, N), arm)[0]


def middle_floor():
    """Half of what is shown is bid above it."""
    return float(np.median(parameter_rows(logged().arm)["bid"]))


def test_the_log_of_the_parameters_charges_by_the_soft_floor():
    """The rule changes no page, only prices: so the second-price log of the same parameters says what is
    due.
    """
    floor = middle_floor()
    second, found = parameter_rows(logged().arm), parameter_rows(soft(logged().arm, floor))
    for name in ("request", "slot", "ad", "bid"):
        assert found[name].tolist() == second[name].tolist()
    bid = found["bid"] * MICROS
    is_below = found["bid"] < floor
    due = np.where(is_below, bid, np.maximum(second["cpc_micros"], floor * MICROS))
    assert np.all(np.abs(found["cpc_micros"] - due) <= 1)
    assert min(is_below.sum(), (~is_below).sum()) > 100
    assert np.any(found["cpc_micros"] > second["cpc_micros"] + 1)


@pytest.mark.parametrize(("floor", "twin"), [(1e6, "first"), (0.0, "gsp")])
def test_a_soft_floor_above_all_bids_logs_first_prices_and_one_of_0_second_prices(floor, twin):
    found, plain = (
        parameter_rows(soft(logged().arm, floor)),
        parameter_rows(replace(logged().arm, pricing=twin)),
    )
    assert {name: rows.tolist() for name, rows in found.items()} == {
        name: rows.tolist() for name, rows in plain.items()
    }


def test_drawn_pages_cost_the_list_price_whatever_the_rule():
    sim, arm = logged().sim, logged().arm
    block = sim.arrivals.block(SLATES, 0, N)
    tables = [slate_tables(sim, block, given) for given in (arm, soft(arm, middle_floor()))]
    for plain, found in zip(*tables, strict=True):
        assert {name: rows.tolist() for name, rows in found.items()} == {
            name: rows.tolist() for name, rows in plain.items()
        }


@pytest.fixture(scope="module", params=["middle", "beyond all bids"])
def run(request, tmp_path_factory):
    """A run of the market with a soft floor, its models those of the one without."""
    floor = middle_floor() if request.param == "middle" else 1000.0
    path = tmp_path_factory.mktemp("soft") / "run"
    path.mkdir()
    scenario = small_scenario("auction.pricing=soft_floor", f"auction.soft_floor={floor!r}")
    (path / "scenario.yaml").write_text(dump_scenario(scenario))
    (path / "manifest.json").write_text(json_text({"semantics": SEMANTICS, "status": "complete"}))
    (path / "metrics.json").write_text(json_text({"arms": {}}))
    for name, module in logged().modules.items():
        if "(" not in name:
            ModelStore(path).export(module, path / "models" / f"{name}.safetensors")
    opened = reopen(path)
    write_logs(opened.sim, opened.arm(), path, Progress(quiet=True))
    return path


def test_the_truth_of_a_launch_is_that_of_serving_the_logged_requests_with_it(run):
    answer = off_policy(run, {"auction.reserve_cpc": 0.62})
    (asked,) = answer.answers.values()
    opened = reopen(run)
    sim, arm = opened.sim, replace(opened.arm(), reserve_cpc=0.62)
    assert arm.pricing == "soft_floor"
    total, n = 0.0, sim.scenario.off_policy.requests
    for index in range(-(-n // sim.scenario.traffic.block)):
        block = sim.arrivals.block(PARAMETERS, index, n)
        decision = serve(block, arm, sim.platform)
        result = outcome(block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
        total += (result.expected_clicks * decision.cpc_micros / MICROS).sum()
    revenue = asked["rewards"]["revenue"]
    assert revenue["truth"]["value"] == pytest.approx(total / n, rel=1e-9)
    answered = [row for row in revenue["estimators"].values() if row["verdict"] != "refuse"]
    assert answered and all(row["estimate"]["value"] > 0 for row in answered)
