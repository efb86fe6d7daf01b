"""Launches on many short logs of a small world, compared with serving them again at the fixed parameters."""

import numpy as np
import pytest

from cascade_sim.analysis.off_policy.coverage import expected_band
from cascade_sim.environments.arrivals import Arrivals
from cascade_sim.ope.estimates import (
    estimate,
    estimates,
    expected_rewards,
    launch_evidence,
    lift_of,
    parameter_evidence,
)
from cascade_sim.ope.log import (
    decision_forecast,
    parameter_log,
    parameter_tables,
    randomiser,
    serve_parameters,
)
from cascade_sim.scenario.targets import Target
from worlds.randomised_logs import logged

LOGS, REQUESTS, AT_ONCE = 80, 1000, 8
REWARD = "clicks"
DEARER = Target("dearer", {"reserve_cpc": 0.85})


@pytest.fixture(scope="module")
def answered():
    """{estimator: [(value, lift) of each log]}, and the true value and lift."""
    world = logged()
    sim, arm, law = world.sim, world.arm, randomiser(world.scenario)
    traffic = world.scenario.traffic.model_copy(update={"block": AT_ONCE * REQUESTS})
    arrivals, effects = Arrivals(sim.world, traffic), sim.platform.slot_effects
    found, earned, start = {}, 0.0, 0.0
    for index in range(LOGS // AT_ONCE):
        block = arrivals.block("off_policy", index, LOGS * REQUESTS)
        log = parameter_log([parameter_tables(sim, block, arm)], arm.slots)
        none = {parameter: np.zeros(len(block)) for parameter in law.sigmas}
        current, fixed = (
            serve_parameters(sim, block, arm, moved, none)[0] for moved in (law, law.moved(DEARER.parameters))
        )
        start += expected_rewards(sim, block, current)[REWARD].sum()
        earned += expected_rewards(sim, block, fixed)[REWARD].sum()
        at_launch, at_current = (decision_forecast(pages, effects)[REWARD] for pages in (fixed, current))
        launch = launch_evidence(log, law, DEARER, REWARD, at_launch, at_current)
        jittered = parameter_evidence(log, law, DEARER, REWARD, at_launch, 10.0)
        for first in range(0, len(block), REQUESTS):
            rows = slice(first, first + REQUESTS)
            for name, value in estimates(launch.rows(rows)).items():
                lift = lift_of(name, launch.rows(rows), value)
                found.setdefault(name, []).append((value, lift))
            cut = jittered.rows(rows)
            value = estimate("snips", cut)
            found.setdefault("snips", []).append((value, lift_of("snips", cut, value)))
    return found, (earned / (LOGS * REQUESTS), earned / start - 1)


def covered(answers, truth):
    """Share of the answers whose interval holds the truth, and how many there are."""
    given = [answer for answer in answers if answer.low is not None]
    return np.mean([answer.low <= truth <= answer.high for answer in given]), len(given)


@pytest.mark.drill
@pytest.mark.parametrize(("name", "which"), [("local_linear", 0), ("local_dr", 0), ("local_dr", 1)])
def test_where_the_gate_says_ok_launches_are_covered_95_times_in_100(answered, name, which):
    found, truth = answered
    fine = [pair[which] for pair in found[name] if pair[which].diagnostics.verdict == "ok"]
    assert len(fine) > 0.25 * LOGS
    share, n = covered(fine, truth[which])
    assert share >= expected_band(n)[0]  # the bound may make intervals longer than noise alone needs


def test_the_answer_with_the_jitter_kept_misses_the_launch(answered):
    found, truth = answered
    share, n = covered([lift for _, lift in found["snips"]], truth[1])
    assert n == LOGS and share < expected_band(n)[0]
    errors = {name: np.mean([lift.value for _, lift in found[name]]) - truth[1] for name in found}
    assert abs(errors["local_dr"]) < 0.5 * abs(errors["snips"])


def test_the_bound_holds_what_the_estimates_are_off(answered):
    found, truth = answered
    for name in ("local_linear", "local_dr"):
        values = np.array([value.value for value, _ in found[name]])
        noise = 4 * values.std() / np.sqrt(len(values))
        assert abs(values.mean() - truth[0]) < np.mean([value.bias for value, _ in found[name]]) + noise


def test_a_launch_is_the_same_however_its_log_is_cut(answered):
    """The bandwidth and the fit depend on the rows alone, not on what else was asked."""
    found, _ = answered
    value, lift = found["local_dr"][0]
    assert value.current.estimator == "local_dr" and lift == value.lift
    assert value.lift.value == pytest.approx(value.value / value.current.value - 1)
