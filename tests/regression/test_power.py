"""The measured power of a check: planted changes do what they say, and rates come out as promised."""

import numpy as np
import pytest
from scipy.stats import binom

from answers.told import tells
from cascade_sim.analysis.statistics.moves import most_hits
from cascade_sim.cli import main
from cascade_sim.commands.checks.check_power import runs_hint, verdict_text
from cascade_sim.regression import power
from cascade_sim.regression.power import (
    ARM,
    JITTER,
    LEVEL,
    PLANTED,
    Rate,
    nominal_rates,
    rejects,
    runs_needed,
    served,
    stretch_blocks,
    summed,
)
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
    from cascade_sim.regression.blocks import evaluation_blocks

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


def test_independent_draws_move_clicks_and_not_their_probability(sums):
    before, after = (sums[name].values for name in ("nothing", "independent random numbers of every click"))
    assert after["ctr"] != before["ctr"]
    assert after["expected_ctr"] == before["expected_ctr"]


def test_an_alarm_for_a_loss_must_be_one_of_revenue_and_downwards(pages):
    before = summed(pages, PLANTED[0], 0.005, REQUESTS)
    cut = next(change for change in PLANTED if change.name == "every price lower")
    lower = summed(pages, cut, 0.005, REQUESTS)
    assert rejects(before, lower, True, is_paired=True)
    assert not rejects(lower, before, True, is_paired=True)  # upwards
    assert rejects(lower, before, False, is_paired=True)
    assert not rejects(before, before, False, is_paired=True)


@pytest.mark.drill
def test_the_command_finds_half_a_percent_and_prints_both_rates_with_bands(tmp_path, capsys):
    file = write_plain(tmp_path)
    code = main(["check-power", str(file), "--replications", "20", "--requests", "4096", "--quiet"])
    out = capsys.readouterr().out
    assert "every price lower" in out and "20 of 20" in out and "[83.2%, 100.0%]" in out
    assert out.count(": as promised") == 2
    assert code == 0


def rates(false=(0, 0, 0, 0), found=(20, 20, 20, 20), runs=20):
    """As measured: the last of the false positives over half of the runs, since it takes two stretches
    each.
    """
    return [
        *(Rate(f"no change {i}", False, True, n, runs) for i, n in enumerate(false[:-1])),
        Rate("other requests", False, True, false[-1], runs // 2),
        *(Rate(f"change {i}", True, True, n, runs) for i, n in enumerate(found)),
        Rate("hidden by traffic", True, False, 0, runs // 2),
    ]


@pytest.mark.parametrize(
    ("measured", "power", "alarms"),
    [
        (rates(), True, True),
        (rates(false=(0, 0, 0, 1)), True, True),  # one of ten: chance
        (rates(false=(0, 0, 0, 2)), True, True),
        (rates(false=(0, 0, 0, 3)), True, False),  # three of ten: one in ninety such measurements
        (rates(false=(4, 0, 0, 0)), True, True),
        (rates(false=(5, 0, 0, 0)), True, False),
        (rates(found=(20, 16, 20, 20)), True, True),
        (rates(found=(20, 15, 20, 20)), False, True),
        (rates(false=(60, 0, 0, 0), found=(1000,) * 4, runs=1000), True, True),
        (rates(false=(70, 0, 0, 0), found=(1000,) * 4, runs=1000), True, False),
        (rates(found=(1000, 930, 1000, 1000), runs=1000), False, True),
    ],
)
def test_a_rate_counts_against_the_check_only_outside_the_band_of_chance(measured, power, alarms):
    found, false = nominal_rates(measured)
    assert (found.is_met, false.is_met) == (power, alarms)
    for promise in (found, false):
        low, high = promise.band
        assert 0 <= low <= promise.nominal <= high <= 1
        words = verdict_text(promise, "0.5%")
        assert promise.worst.name in words and f"[{low:.1%}, {high:.1%}]" in words
        assert ("inside the band" in words) == promise.is_met == ("NOT" not in words)


def test_a_check_as_promised_is_found_wanting_in_at_most_one_measurement_of_twenty():
    for runs in (10, 20, 50, 200):
        for is_change in (True, False):
            n = [rate.runs for rate in rates(runs=runs) if rate.is_counted and rate.is_change == is_change]
            kept = 1.0
            for trials in n:
                kept *= binom.cdf(most_hits(0.05, trials, LEVEL / len(n)), trials, 0.05)
            assert 0.95 <= kept < 1


def test_the_exit_code_follows_the_band_and_not_the_bare_rate(tmp_path, capsys, monkeypatch):
    file = write_plain(tmp_path)
    for false, code in (((0, 0, 0, 1), 0), ((0, 0, 0, 6), 1)):
        monkeypatch.setattr(power, "measure_power", lambda *words, false=false, **more: rates(false))
        assert main(["check-power", str(file), "--replications", "20", "--quiet"]) == code
        *_, found, alarms, hint = capsys.readouterr().out.splitlines()
        assert "--replications" in hint
        assert tells(found, "0.5%", "as promised") and tells(alarms, "false positives")
        assert ("other requests" in alarms) and ("outside" in alarms) == bool(code)


def test_a_change_far_below_the_noise_is_not_found_and_the_command_says_so(tmp_path, capsys):
    file = write_plain(tmp_path)
    options = ["--effect-size", "0.01%", "--replications", "10", "--requests", "256", "--quiet"]
    assert main(["check-power", str(file), *options]) == 1
    assert main(["check-power", str(file), "--effect-size", "60%"]) == 2
    assert tells(capsys.readouterr().err, "--effect-size", "60%", "50%")


def test_few_runs_are_told_how_many_make_a_band_of_useful_width():
    few = rates(runs=20)
    needed = runs_needed(few)
    assert needed % 10 == 0 and needed > 20

    def ends_at_a_tenth(runs):
        """The bands of four rates each, one of them over half of the runs."""
        return all(most_hits(0.05, n, 0.05 / 4) <= 0.10 * n for n in (runs, runs // 2))

    assert ends_at_a_tenth(needed) and not ends_at_a_tenth(needed - 10)
    hint = runs_hint(20, nominal_rates(few), needed)
    assert f"--replications {needed}" in hint and "90%" in hint and "10%" in hint
    assert runs_hint(needed, nominal_rates(rates(found=(needed,) * 4, runs=needed)), needed) == ""
    failed = rates(false=(20, 0, 0, 0), found=(0, 20, 20, 20))
    assert runs_hint(20, nominal_rates(failed), needed) == ""  # a verdict that more runs would not change
