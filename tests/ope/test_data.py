"""Randomised logs as arrays."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.auction import MICROS
from cascade_sim.foundation.errors import UserError
from cascade_sim.ope.log import (
    PARAMETER_TABLES,
    SLATE_TABLES,
    parameter_log,
    parameter_tables,
    read_parameter_log,
    read_slate_log,
    slate_log,
    slate_tables,
)
from cascade_sim.storage.tables import read_table
from worlds.randomised_logs import logged, small_scenario
from worlds.tiny_market import tiny_scenario


def test_rewards_and_forecasts_are_sums_over_the_page():
    world = logged()
    log = read_parameter_log(world.folder, world.scenario)
    shown = read_table(world.folder, PARAMETER_TABLES[0])
    request = shown["request"][7]
    rows = shown["request"] == request
    at = int(np.flatnonzero(log.visits.requests == request)[0])
    assert log.reward["revenue"][at] == pytest.approx(shown["charge_micros"][rows].sum() / MICROS)
    assert log.reward["clicks"][at] == shown["click"][rows].sum()
    expected = shown["examination"][rows].astype(float) * shown["pctr"][rows]
    assert log.forecast["clicks"][at] == pytest.approx(expected.sum())
    assert log.forecast["revenue"][at] == pytest.approx((expected * shown["cpc_micros"][rows] / MICROS).sum())
    assert log.reward["clicks"].sum() == shown["click"].sum() > 100


def test_a_page_that_stayed_empty_counts_as_no_reward():
    rows = parameter_tables(logged().sim, logged().sim.arrivals.block("off_policy", 0, 256), logged().arm)
    keep = rows[0]["request"] != rows[1]["request"][5]
    log = parameter_log([({name: values[keep] for name, values in rows[0].items()}, rows[1])], 3)
    assert len(log) == 256
    assert (log.reward["revenue"][5], log.forecast["revenue"][5]) == (0.0, 0.0)


def test_block_after_block_gives_what_the_tables_hold():
    world = logged()
    blocks = [world.sim.arrivals.block("off_policy", i, 1500) for i in range(6)]
    pieces = parameter_log([parameter_tables(world.sim, block, world.arm) for block in blocks], 3)
    whole = read_parameter_log(world.folder, world.scenario)
    assert pieces.reward["revenue"].tobytes() == whole.reward["revenue"].tobytes()
    assert pieces.forecast["revenue"].tobytes() == whole.forecast["revenue"].tobytes()
    assert pieces.noise["squashing"].tobytes() == whole.noise["squashing"].tobytes()
    blocks = [world.sim.arrivals.block("slates", i, 1200) for i in range(5)]
    drawn = slate_log([slate_tables(world.sim, block, world.arm) for block in blocks], world.scenario)
    read = read_slate_log(world.folder, world.scenario)
    for name in ("places", "propensity"):
        assert getattr(drawn, name).tobytes() == getattr(read, name).tobytes()
    assert drawn.listed.score.tobytes() == read.listed.score.tobytes()
    assert drawn.reward["revenue"].tobytes() == read.reward["revenue"].tobytes()


def test_slot_rewards_add_up_to_what_was_charged():
    world = logged()
    shown = read_table(world.folder, SLATE_TABLES[0])
    log = read_slate_log(world.folder, world.scenario)
    assert log.reward["revenue"].sum() == pytest.approx(shown["charge_micros"].sum() / MICROS)
    assert (log.reward["clicks"][log.places < 0] == 0).all()


def test_a_run_without_randomisation_is_refused_with_the_key_to_set(tmp_path):
    scenario = tiny_scenario()
    with pytest.raises(UserError, match=r"set off_policy\.randomise"):
        read_parameter_log(tmp_path, scenario)
    with pytest.raises(UserError, match=r"set off_policy\.slates"):
        read_slate_log(tmp_path, scenario)


def test_a_run_whose_logs_are_gone_is_refused(tmp_path):
    with refused("logs", "removed"):
        read_parameter_log(tmp_path, small_scenario())
