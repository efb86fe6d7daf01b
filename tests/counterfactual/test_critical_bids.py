"""Critical bids against serving again with other bids, one impression at a time."""

import csv
import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from answers.section_text import says
from answers.told import tells
from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import serve
from cascade_sim.cli import main
from cascade_sim.counterfactual.critical_bids import (
    critical_bid_section,
    critical_bids,
    min_passing_bids,
    of_block,
)
from cascade_sim.diagnostics.trace import MOST, explain_ad, find_request, from_stage, min_passing_bid
from cascade_sim.foundation.progress import Progress
from cascade_sim.study.results import combine_seeds
from worlds.tiny_market import tiny_scenario
from worlds.traced_run import as_run_folder

N = 24  # requests of a block that are looked at


@pytest.fixture(scope="module")
def arms(study):
    return study.evaluation.arms


def soft(arm, floor):
    return replace(arm, pricing="soft_floor", parameters={"soft_floor": floor})


def variants(arms):
    """The market's arm under every rule that touches bids."""
    base = arms["logloss"]
    squashed = replace(base.last.fusion, pctr=0.5)
    return {
        "ocpc": base,
        "rule none": replace(base, bid_rule="none"),
        "target_cpa": replace(base, bid_rule="target_cpa"),
        "bid none": arms["pctr_only"],
        "pre-ranking by opt-bid": base.with_stage(0, bid="opt"),
        "CPC reserve": replace(base, reserve_cpc=0.8),
        "CPC reserve known to pre-ranking": replace(base.with_stage(0, bid="opt"), reserve_cpc=0.8),
        "score floor": replace(base, score_floor=0.05),
        "both reserves, ranker": replace(arms["ranker"], reserve_cpc=0.7, score_floor=0.04),
        "squashing": base.with_stage(-1, fusion=squashed),
        "one below the slots": base.with_stage(0, size=base.slots + 1),
        "everyone passes": base.with_stage(0, size=base.retrieval.size),
        "vcg": replace(base, pricing="vcg"),
        "first": replace(base, pricing="first"),
        "soft floor": soft(base, 0.9),
        "soft floor beyond all bids": soft(base, 1e6),
        "soft floor, reserve": replace(soft(base, 1.0), reserve_cpc=0.8),
        "random": arms["random"],
        "bid_only": arms["bid_only"],
    }


NAMES = [
    *("ocpc", "rule none", "target_cpa", "bid none", "pre-ranking by opt-bid", "CPC reserve"),
    *("CPC reserve known to pre-ranking", "score floor", "both reserves, ranker", "squashing"),
    *("one below the slots", "everyone passes", "vcg", "first", "soft floor", "soft floor beyond all bids"),
    *("soft floor, reserve", "random", "bid_only"),
]


@pytest.fixture(scope="module")
def block(study):
    return study.sim.arrivals.block("evaluate", 0, 500).take(slice(0, N))


def brute_force(block, arm, platform, decision, row, slot):
    """(local, cascade) of one impression in micro-units, by deciding again with `serve`.

    The whole block each time: beside other requests a net's predictions may differ in the last bit.
    """
    ad = int(decision.win_set[row, slot])

    def keeps(used):
        def passes(micros):
            changed = replace(platform, bids=platform.bids.with_bid(ad, micros / MICROS))
            return ad in serve(block, used, changed).win_set[row, : slot + 1]

        return passes

    guess = int(platform.bids.init_bid[ad] * MICROS)
    local = min_passing_bid(keeps(from_stage(arm, 1, decision.competitive_set)), guess)
    return local, min_passing_bid(keeps(arm), guess)


EVERY_THIRD = [pytest.param(name, marks=pytest.mark.drill if n % 3 else ()) for n, name in enumerate(NAMES)]


@pytest.mark.parametrize("name", EVERY_THIRD)
def test_both_critical_bids_are_those_of_serving_again(study, arms, block, name):
    arm, platform = variants(arms)[name], study.sim.platform
    decision = serve(block, arm, platform)
    found = of_block(block, arm, platform, decision)
    assert len(found) == (decision.win_set >= 0).sum() > 20
    for i in np.random.default_rng(3).choice(len(found), 10, replace=False):
        row = int(found.request[i] - block.requests[0])
        local, cascade = brute_force(block, arm, platform, decision, row, int(found.slot[i]))
        assert (local, cascade) == (found.local_micros[i], found.cascade_micros[i])


@pytest.mark.parametrize("index", [3, 200, 321])
def test_in_the_last_slot_they_are_the_bids_that_trace_says_would_win(study, arms, index):
    arm, sim = arms["logloss"], study.sim
    request = find_request(sim, index)
    decision = serve(request.block, arm, sim.platform)
    ad = int(decision.win_set[request.row, -1])
    told = explain_ad(sim, request, arm, decision, ad)["bids"]
    found = of_block(request.block, arm, sim.platform, decision)
    at = np.flatnonzero((found.request == request.id) & (found.ad == ad))[0]
    assert found.local_micros[at] == round(told["auction"] * MICROS)
    assert found.cascade_micros[at] == round(told["cascade"] * MICROS)


def test_the_variants_are_all_asked_about(arms):
    assert list(variants(arms)) == NAMES


def test_the_gap_is_never_negative_and_the_bid_always_suffices(study, arms):
    gaps = {}
    for name, arm in variants(arms).items():
        found = critical_bids(study.sim, arm, 200)
        assert np.all(found.gap_micros >= 0) and np.all(found.local_micros >= 1)
        assert np.all(found.cascade_micros <= np.ceil(found.init_bid * MICROS))
        gaps[name] = (found.gap_micros > 0).mean()
    assert gaps["ocpc"] > 0.02 and gaps["one below the slots"] > gaps["ocpc"]
    for name in ("bid none", "everyone passes", "both reserves, ranker"):
        assert gaps[name] == 0  # pre-ranking ignores bids, drops nobody, or agrees with ranking


@pytest.mark.parametrize(
    "name", ["ocpc", "rule none", "target_cpa", "CPC reserve", "score floor", "squashing"]
)
def test_with_gsp_the_cpc_is_the_local_critical_bid_on_the_scale_of_the_auction(study, arms, name):
    """p <= f * local <= p + f micro-units; the charge is p to the nearest, at most the bid's whole ones."""
    found = critical_bids(study.sim, variants(arms)[name], 500)
    above = found.factor * found.local_micros - found.cpc_micros  # micro-units
    assert np.all(above >= -0.5 - 1e-6)
    assert np.all(above <= found.factor + 1 + 1e-6)
    assert (found.factor != 1).any() == (name != "rule none")


def test_vcg_charges_no_more_and_first_price_no_less_than_the_critical_bid(study, arms):
    vcg, first = (critical_bids(study.sim, variants(arms)[name], 500) for name in ("vcg", "first"))
    assert np.all(vcg.cpc_micros <= vcg.factor * vcg.local_micros + 1)
    assert (vcg.cpc_micros < 0.9 * vcg.factor * vcg.local_micros).mean() > 0.2
    assert np.all(first.cpc_micros >= first.factor * (first.local_micros - 1) - 1)


def test_a_soft_floor_charges_the_bid_below_it_and_else_the_critical_bid_or_the_floor(study, arms):
    """First price and second price in one list; to the micro-unit that rounding leaves open."""
    floor = 0.9
    found = critical_bids(study.sim, variants(arms)["soft floor"], 500)
    bid, kept = found.factor * found.init_bid * MICROS, found.factor * found.local_micros
    is_below = bid < floor * MICROS
    assert min(is_below.sum(), (~is_below).sum()) > 50
    assert np.all(np.abs(found.cpc_micros - bid)[is_below] <= 1)
    asked = np.maximum(kept, floor * MICROS)
    assert np.all(np.abs(found.cpc_micros - asked)[~is_below] <= found.factor[~is_below] + 1)
    assert (found.cpc_micros[~is_below] > floor * MICROS + 1).any()


class ByTheId:
    """A size rule that knows two sizes: odd requests get the smaller one."""

    def __init__(self, small, large):
        self.small, self.large = small, large

    def sizes(self, requests, pre_score):
        return np.where(requests % 2 == 1, self.small, self.large)


def test_a_size_that_a_rule_chose_stays_as_it_was(study, arms, block):
    """Each request of its own size; the answer is that of an arm with this size for all."""
    base, platform = arms["logloss"], study.sim.platform
    arm = base.with_stage(0, size=12, size_rule=ByTheId(6, 12))
    found = of_block(block, arm, platform, serve(block, arm, platform))
    for size, is_odd in ((6, 1), (12, 0)):
        plain = base.with_stage(0, size=size)
        same = of_block(block, plain, platform, serve(block, plain, platform))
        ours, theirs = (x.request % 2 == is_odd for x in (found, same))
        assert found.cascade_micros[ours].tolist() == same.cascade_micros[theirs].tolist()
        assert found.local_micros[ours].tolist() == same.local_micros[theirs].tolist()


def test_every_step_is_found_at_once():
    steps = np.array([1, 2, 17, 999_999, 1_000_000, 123_456_789, 10**12])
    assert min_passing_bids(lambda bid: bid * MICROS >= steps - 0.25, len(steps)).tolist() == steps.tolist()
    assert min_passing_bids(lambda bid: np.zeros(1, bool), 1).tolist() == [MOST]
    assert min_passing_bids(lambda bid: bid > 0, 0).tolist() == []


def test_the_section_says_what_the_impressions_say(study, arms):
    made = critical_bid_section(study.sim, {"logloss": arms["logloss"], "ranker": arms["ranker"]}, 150)
    assert made["requests"] == 150 and set(made["arms"]) == {"logloss", "ranker"}
    found, row = critical_bids(study.sim, arms["logloss"], 150), made["arms"]["logloss"]
    share = found.cascade_micros / MICROS / found.init_bid
    assert row["impressions"] == len(found) and row["pricing"] == "gsp"
    assert row["cascade_mean"]["value"] == pytest.approx(share.mean())
    assert row["cascade_mean"]["low"] < share.mean() < row["cascade_mean"]["high"]
    assert row["cascade_median"]["value"] == pytest.approx(np.median(share), abs=0.01)
    assert row["with_gap"]["value"] == pytest.approx((found.gap_micros > 0).mean())
    assert row["gap"]["value"] == pytest.approx(found.gap_micros.mean() / MICROS)
    assert row["cpc_of_local"]["value"] == pytest.approx(1.0, abs=1e-4)
    assert row["distribution"]["cascade"][-1] == 1.0
    assert row["distribution"]["cascade"][45] == pytest.approx((share <= 0.9).mean())
    assert made["arms"]["ranker"]["with_gap"]["value"] == 0.0
    assert critical_bid_section(study.sim, {"logloss": arms["logloss"]}, 150)["arms"]["logloss"] == row
    json.dumps(made, allow_nan=False)


class Counted(Progress):
    """Keeps its stages."""

    def __init__(self):
        super().__init__(quiet=True)
        self.stages = []

    @contextmanager
    def stage(self, *given):
        with super().stage(*given) as stage:
            self.stages.append(stage)
            yield stage


def test_every_page_is_counted_once_in_the_progress(study, arms):
    """150 requests are a block and a part of the next, in two arms."""
    progress = Counted()
    critical_bid_section(study.sim, {name: arms[name] for name in ("logloss", "ranker")}, 150, progress)
    (stage,) = progress.stages
    assert (stage.name, stage.unit) == ("critical bids", "pages")
    assert stage.done == stage.total == 2 * 150


def test_more_requests_than_there_are_means_all(study, arms):
    made = critical_bid_section(study.sim, {"logloss": arms["logloss"]}, 10**6)
    assert made["requests"] == study.sim.scenario.phases.evaluate


def test_several_worlds_are_combined(study, arms):
    made = critical_bid_section(study.sim, {"logloss": arms["logloss"]}, 60)
    other = critical_bid_section(study.sim, {"logloss": arms["ltr"]}, 60)
    worlds = [{"seed": seed, "critical_bids": part} for seed, part in ((1, made), (2, other))]
    both = combine_seeds(worlds)["critical_bids"]["arms"]["logloss"]
    values = [part["arms"]["logloss"]["gap_share"]["value"] for part in (made, other)]
    assert both["gap_share"]["value"] == pytest.approx(sum(values) / 2)
    assert both["gap_share"]["sd"] > 0
    assert len(both["distribution"]["local"]) == 51


def test_nothing_shown_gives_no_numbers(study, arms):
    dear = replace(arms["logloss"], reserve_cpc=1e6)
    row = critical_bid_section(study.sim, {"dear": dear}, 20)["arms"]["dear"]
    assert row["impressions"] == 0 and row["gap_share"]["value"] is None and row["local_p90"]["value"] is None


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    return as_run_folder(study, tmp_path_factory.mktemp("runs") / "tiny")


def test_the_command_prints_a_table_and_writes_every_impression(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "new" / "bids.csv"
    words = ["--impressions", "300", "--out", str(out), "--arm", "logloss", "--arm", "ranker", "--quiet"]
    assert main(["critical-bids", str(folder), *words]) == 0
    text = capsys.readouterr().out
    assert tells(text, "logloss (baseline)", "ranker") and says(text, "need", "higher bid")
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 600 and {row["arm"] for row in rows} == {"logloss", "ranker"}
    for row in rows:
        assert float(row["cascade"]) - float(row["local"]) == pytest.approx(float(row["gap"]), abs=1e-9)
        assert float(row["cascade"]) <= float(row["init_bid"]) + 1 / MICROS
    assert any(float(row["gap"]) > 0 for row in rows)


def test_the_command_asks_about_every_arm_unless_told(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # wide enough for tables of one block
    assert main(["critical-bids", str(folder), "--impressions", "30", "--quiet"]) == 0
    text = capsys.readouterr().out
    arms = (*tiny_scenario().arms, "random", "bid_only", "pctr_only", "ranker")
    assert all(text.count(f"\n {arm}") == 2 for arm in arms)


def test_a_run_that_logged_other_pages_is_noticed(folder, tmp_path, capsys, monkeypatch):
    from cascade_sim.diagnostics import reopen as replay

    real = replay.logged
    changed = lambda *words: {**real(*words), "cpc_micros": real(*words)["cpc_micros"] + 1}  # noqa: E731
    monkeypatch.setattr(replay, "logged", changed)
    assert main(["critical-bids", str(folder), "--impressions", "30", "--arm", "ltr", "--quiet"]) == 1
    assert tells(capsys.readouterr().err, "other pages", "arm ltr")


def test_an_unknown_arm_and_a_run_that_is_none_are_refused(folder, tmp_path, capsys):
    assert main(["critical-bids", str(folder), "--arm", "loglos"]) == 2
    assert tells(capsys.readouterr().err, "'logloss'?")
    assert main(["critical-bids", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
