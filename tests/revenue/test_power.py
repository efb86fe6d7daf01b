"""The measured power of a check: planted changes do what they say, and rates come out as promised."""

import numpy as np
import pytest

from cascade_sim.cli import main
from cascade_sim.revenue.power import ARM, JITTER, PLANTED, has_alarm, served, stretch_blocks, summed
from worlds.guarded_market import write_plain

REQUESTS = 500


@pytest.fixture(scope="module")
def pages(study):
    sim, arm = study.sim, study.evaluation.baseline
    return [served(sim, block, sim.serve(block, arm)) for block in stretch_blocks(sim, 0, REQUESTS)]


@pytest.fixture(scope="module")
def sums(pages):
    return {change.name: summed(pages, change, 0.005, REQUESTS).arms[ARM] for change in PLANTED}


def test_nothing_planted_gives_what_the_evaluation_itself_measured(sums, study):
    from cascade_sim.revenue.blocks import evaluation_blocks

    measured = evaluation_blocks(study.evaluation).arms[study.evaluation.baseline.name]
    for metric, value in sums["nothing"].values.items():
        assert value == pytest.approx(measured.values[metric], rel=1e-12), metric


def test_prices_lower_by_half_a_percent_earn_half_a_percent_less(sums):
    before, after = sums["nothing"].values, sums["every price lower"].values
    # charges are rounded down to a millionth: up to 1e-6 of a price of about 1
    assert after["expected_rpm"] / before["expected_rpm"] == pytest.approx(0.995, abs=3e-6)
    assert after["ctr"] == before["ctr"]


def test_half_price_on_one_request_in_a_hundred_is_half_a_percent_on_average(sums):
    before, after = (sums[name].values for name in ("nothing", "half price on a few requests"))
    assert 0.98 < after["expected_rpm"] / before["expected_rpm"] < 1.0


def test_jitter_moves_single_prices_and_not_their_average(pages, sums):
    jitter = next(change for change in PLANTED if change.name.startswith("each price"))
    before = np.concatenate([page.decision.cpc_micros for page in pages])
    after = np.concatenate([jitter.prices(page, 0.005) for page in pages])
    shown = before > 0
    ratio = after[shown] / before[shown]
    assert np.abs(ratio - 1).max() <= JITTER and np.abs(ratio - 1).max() > 0.9 * JITTER
    assert abs(ratio.mean() - 1) < 4 * JITTER / np.sqrt(3 * shown.sum())


def test_other_luck_moves_clicks_and_not_their_probability(sums):
    before, after = (sums[name].values for name in ("nothing", "other luck of every click"))
    assert after["ctr"] != before["ctr"]
    assert after["expected_ctr"] == before["expected_ctr"]


def test_an_alarm_for_a_loss_must_be_one_of_revenue_and_downwards(pages):
    before = summed(pages, PLANTED[0], 0.005, REQUESTS)
    cut = next(change for change in PLANTED if change.name == "every price lower")
    lower = summed(pages, cut, 0.005, REQUESTS)
    assert has_alarm(before, lower, True, is_paired=True)
    assert not has_alarm(lower, before, True, is_paired=True)  # upwards
    assert has_alarm(lower, before, False, is_paired=True)
    assert not has_alarm(before, before, False, is_paired=True)


def test_the_command_finds_half_a_percent_and_prints_both_rates_with_bands(tmp_path, capsys):
    file = write_plain(tmp_path)
    code = main(["check-power", str(file), "--runs", "20", "--requests", "4096", "--quiet"])
    out = capsys.readouterr().out
    assert "every price lower" in out and "20 of 20" in out and "[83.2%, 100.0%]" in out
    assert "power for 0.5%" in out and "false alarms: at most" in out
    assert code == 0


def test_a_change_far_below_the_noise_is_not_found_and_the_command_says_so(tmp_path, capsys):
    file = write_plain(tmp_path)
    options = ["--change", "0.01%", "--runs", "10", "--requests", "256", "--quiet"]
    assert main(["check-power", str(file), *options]) == 1
    assert main(["check-power", str(file), "--change", "60%"]) == 2
    assert "--change: 60% is not above 0 and at most 50%" in capsys.readouterr().err
