"""Verdicts in words."""

import re
from dataclasses import replace

import pytest

from answers.told import tells
from cascade_sim.analysis.statistics.moves import RelativeChange
from cascade_sim.regression.baseline import read_baseline
from cascade_sim.regression.check import check_revenue
from cascade_sim.regression.text import needed_requests, percent, verdict_text
from worlds.guarded_market import measure_plain


def test_a_tolerance_that_noise_hides_is_warned_of_with_the_requests_it_needs(file, home):
    other = measure_plain(home, stretch=2)
    text = verdict_text(check_revenue(read_baseline(file), other, tolerances=["rpm=0.5%"], metrics=["rpm"]))
    (warning,) = [line for line in text.splitlines() if line.startswith("warning: production rpm")]
    assert re.search(r"tolerance is 0\.500 %.*needs about [\d,]+ requests", warning)
    assert "passed" in text
    # noise falls with the root of the requests: a quarter of the change needs 16 times as many
    assert needed_requests(1000, 0.04, 0.01) == pytest.approx(16_000, rel=0.05)


def test_a_check_of_a_log_asks_for_a_longer_log(file, home):
    verdict = check_revenue(
        read_baseline(file), measure_plain(home, stretch=2), tolerances=["rpm=0.5%"], metrics=["rpm"]
    )
    text = verdict_text(replace(verdict, has_fresh_requests=False))
    assert re.search(r"needs a log of about [\d,]+ requests", text) and "phases.evaluate" not in text


def test_many_such_warnings_are_cut_short_and_what_failed_was_seen(file, home):
    other = measure_plain(home, stretch=2)
    verdict = check_revenue(read_baseline(file), other, tolerances=["0.5%"])
    blunt = [line for line in verdict_text(verdict).splitlines() if line.startswith("warning: ")]
    assert len(verdict.findings) > 4 and len(blunt) == 3 + 1
    assert tells(blunt[-1], "requests", len(verdict.findings) - 3)
    failing = [replace(f, p=0.0, move=RelativeChange(1.0, f.move.se, f.move.df)) for f in verdict.findings]
    assert "warning: " not in verdict_text(replace(verdict, findings=failing))


def test_percents_show_three_digits_that_count():
    assert percent(-0.005) == "−0.500"
    assert percent(0.1234) == "+12.3"
    assert percent(0.0000123, sign=False) == "0.00123"
    assert percent(0.0) == "0.000"


def test_moves_that_cancel_between_groups_are_chance_and_not_rounding(file, measured):
    verdict = check_revenue(read_baseline(file), measured, metrics=["ctr"])
    (finding,) = [finding for finding in verdict.findings if finding.arm == "production"]

    def word(log, se):
        moved = replace(finding, move=RelativeChange(log, se, 255.0), has_changed=True)
        text = verdict_text(replace(verdict, findings=[moved]))
        return (
            next(line for line in text.splitlines() if line.startswith("production")).split("%")[-1].strip()
        )

    assert word(0.0, 0.05) == "not significant"
    assert word(1e-15, 1e-15) == "rounding"


def test_a_market_that_is_not_guarded_is_said_so(file, measured):
    verdict = check_revenue(read_baseline(file), measured)
    assert "market" not in verdict_text(verdict)
    verdict = replace(verdict, is_market_unguarded=True)
    assert "not guarded" in verdict_text(verdict)
