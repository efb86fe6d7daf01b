"""Exact answers are those of `whatif` to the byte, for every parameter that the page has; quick ones are
close.
"""

from contextlib import suppress

import numpy as np
import pytest

from cascade_sim.cli import main
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.foundation.errors import UserError
from cascade_sim.live import figures
from cascade_sim.live.controls import curve_values, parameters_of
from cascade_sim.live.session import Variant
from cascade_sim.storage.folder import json_text

OTHER = {
    "auction.soft_floor": ("auction.pricing=soft_floor", "auction.soft_floor=0.4"),
    "fusions": ("fusions.soft={pctr: 0.5}", "cascade.ranking.fusion=soft", "cascade.pre_ranking.fusion=soft"),
    "sizes": ("cascade.pre_ranking.sizes={choices: [5, 20], mean: 9}",),
    "bidding.range": ("bidding.rule=ocpc", "bidding.range=0.7"),
    "auction.pricing": ("auction.pricing=vcg",),
}


def words_of(session, parameter):
    """A turn of this parameter that the rules allow."""
    if parameter["path"] in OTHER:
        return OTHER[parameter["path"]]
    values = [value for value in curve_values(parameter) if value != parameter["current"]]
    for value in (*values[len(values) // 2 :], *values):
        words = (f"{parameter['path']}={value}",)
        with suppress(UserError):
            session.turned(Variant(session.baseline, words))
            return words
    raise AssertionError(parameter)


def answered(session, arm, base, blocks):
    return figures.answer(session, session.pages(arm), session.pages(base), blocks)


@pytest.fixture(scope="module")
def turns(session):
    parameters = parameters_of(session, session.baseline)
    assert {parameter["path"] for parameter in parameters} >= {
        *("auction.reserve_cpc", "auction.score_floor", "auction.squashing", "auction.pricing"),
        *("cascade.slots", "cascade.retrieval.size", "cascade.pre_ranking.size", "bidding.rule"),
        *("cascade.pre_ranking.model", "cascade.ranking.model", "cascade.pre_ranking.bid"),
    }
    return [*(words_of(session, parameter) for parameter in parameters), OTHER["fusions"], OTHER["sizes"]]


def whatif(folder, words, arm=None):
    return json_text(what_if_study(folder, words, arm))


def test_the_exact_answer_is_that_of_whatif_to_the_byte_for_every_parameter(client, folder, turns):
    for words in turns:
        found = client.get("/api/exact", params={"run": 0, "set": list(words)})
        assert found.status_code == 200, (words, found.text)
        assert found.text == whatif(folder, words), words


def test_of_another_arm_too_and_of_a_market(client, folder, market):
    words = ["auction.reserve_cpc=0.3"]
    found = client.get("/api/exact", params={"set": words, "arm": "distill-pre"})
    assert found.text == whatif(folder, words, "distill-pre")
    assert client.get("/api/exact", params={"run": 2, "set": words}).text == whatif(market, words)


def test_it_is_the_file_that_the_shown_command_writes(client, folder, tmp_path):
    asked = {"set": ["auction.reserve_cpc=0.3", "cascade.slots=2"]}
    command = client.get("/api/answer", params=asked).json()["command"].split()
    assert command[:5] == ["python", "-m", "cascade_sim", "whatif", str(folder)]
    assert main([*command[3:], "--out", str(tmp_path / "out"), "--quiet"]) == 0
    written = (tmp_path / "out" / "whatif.json").read_text()
    assert client.get("/api/exact", params=asked).text == written


@pytest.mark.drill
def test_on_all_requests_the_quick_figures_are_the_exact_ones_and_their_intervals_alike(session, turns):
    base, blocks, widths = session.arm(Variant(session.baseline)), session.blocks(True), []
    for words in turns:
        arm = session.arm(Variant(session.baseline, words))
        for side in (base, arm):
            list(session.measured(side, blocks))
        found = answered(session, arm, base, blocks)
        exact = session.exact(Variant(session.baseline, words))["points"][0]["metrics"]
        assert found["requests"] == found["of"] == session.n_requests
        for name, entry in found["measures"].items():
            value = exact[name]["value"]
            assert entry["variant"]["value"] == (None if value is None else pytest.approx(value, rel=1e-9)), (
                name
            )
        lead, own = (side["expected_revenue_per_request"]["lift"] for side in (found["measures"], exact))
        assert lead["value"] == pytest.approx(own["value"], abs=1e-12)
        if own["high"] > own["low"]:
            widths.append((lead["high"] - lead["low"]) / (own["high"] - own["low"]))
    assert len(widths) > 8 and 0.75 < np.median(widths) < 1.35  # 50 resamples are few
