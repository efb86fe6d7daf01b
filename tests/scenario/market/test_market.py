"""The market section of a scenario: what is refused, where, and with which advice."""

import subprocess
import sys
from pathlib import Path

import pytest

from answers.told import tells
from cascade_sim.cascade.ledger import NO_BUDGET
from cascade_sim.commands.studies.validate import market_text
from cascade_sim.environments.build import environment_of
from cascade_sim.environments.market_inputs import traffic_profile
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_data, scenario_hash
from cascade_sim.training.modules import find_bidder
from places import ROOT

PLAIN = """name: plain
cascade: {pre_ranking: {model: truth}, ranking: {model: truth}}
arms: {now: {}}
"""


def written(folder, market):
    """A scenario file with this text after `market:`."""
    path = folder / "scenario.yaml"
    path.write_text(PLAIN + f"market: {market}\n")
    return path


def refusal(folder, market):
    with pytest.raises(ScenarioError) as raised:
        load_scenario(written(folder, market))
    assert len(raised.value.problems) == 1
    return raised.value.problems[0]


def test_a_market_with_nothing_said_is_a_day_of_fixed_bids(tmp_path):
    market = load_scenario(written(tmp_path, "{}")).market
    assert (market.days, market.profile, list(market.bidders)) == (1.0, "daily", ["fixed"])


@pytest.mark.parametrize("market", ["", "market: null\n", "market:\n", "market: ~\n"])
def test_a_scenario_without_a_market_has_none_and_dumps_and_loads_as_it_is(tmp_path, market):
    (tmp_path / "plain.yaml").write_text(PLAIN)
    path = tmp_path / "scenario.yaml"
    path.write_text(PLAIN + market)
    scenario, plain = load_scenario(path), load_scenario(tmp_path / "plain.yaml")
    assert scenario.market is None and scenario == plain
    assert scenario_hash(scenario) == scenario_hash(plain)
    path.write_text(dump_scenario(scenario))
    assert load_scenario(path) == plain and dump_scenario(load_scenario(path)) == dump_scenario(plain)


def test_a_market_dumps_and_loads_as_it_is(tmp_path):
    market = "{days: 2, budgets: {median: 7}, bidders: {p: {kind: pid, options: {k_p: 0.5}}, f: {share: 3}}}"
    scenario = load_scenario(written(tmp_path, market))
    path = tmp_path / "again.yaml"
    path.write_text(dump_scenario(scenario))
    assert load_scenario(path) == scenario and list(load_scenario(path).market.bidders) == ["p", "f"]


def test_the_shipped_market_day_is_sound(monkeypatch):
    monkeypatch.chdir(ROOT)
    market = load_scenario(ROOT / "scenarios" / "market_day.yaml").market
    assert len(market.bidders) == 5 and market.profile.endswith("avito_week.csv")


@pytest.mark.parametrize(
    ("bidder", "text"),
    [
        ("{kind: pidd}", "bidders.own.kind: 'pidd' 'pid'?"),
        ("{kind: own.py}", "bidders.own.kind: 'own.py' own.py:ClassName"),
        ("{kind: 'own.py:Mien'}", "kind: 'own.py': 'Mien' 'Mine'?"),
        ("{kind: 'onw.py:Mine'}", "'onw.py' 'own.py'?"),
        ("{kind: 'bad.py:Mine'}", "bidders.own.kind: 'bad.py' 2"),
        ("{kind: 'nowhere_at_all:Mine'}", "'nowhere_at_all'"),
        ("{kind: pid, options: {kp: 1}}", "options.kp: pid 'kp' 'k_p'?"),
        ("{kind: pid, options: {k_p: -1}}", "options: k_p: [0, 10], -1"),
        ("{kind: pid, options: {k_p: fast}}", "k_p: [0, 10], 'fast'"),
        ("{share: 0}", "bidders.own.share: "),
        ("{knid: pid}", "'kind'?"),
    ],
)  # fmt: skip
def test_a_bidder_that_cannot_be_is_refused_with_its_line_and_advice(tmp_path, monkeypatch, bidder, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("class Mine:\n    pass\n")
    (tmp_path / "bad.py").write_text("class Mine:\nprint(\n")
    problem = refusal(tmp_path, f"\n  bidders:\n    own: {bidder}")
    assert tells(problem, *text.split()) and ":6:" in problem.split(" ")[0]
    assert "towers" not in problem  # advice on models would mislead


def test_a_bidder_of_ones_own_beside_the_scenario_is_accepted_and_not_run(tmp_path):
    (tmp_path / "own.py").write_text("class Mine:\n    pass\nraise SystemExit\n")
    market = load_scenario(
        written(tmp_path, "{bidders: {own: {kind: 'own.py:Mine', options: {a: 1}}}}")
    ).market
    assert market.bidders["own"].options == {"a": 1}


HOURS = [f"{hour},{1 + hour % 3}" for hour in range(24)]


def test_files_beside_the_scenario_are_found_from_the_working_folder(tmp_path):
    """The run is not told where the scenario lies, nor is its own copy of the scenario."""
    (tmp_path / "hours.csv").write_text("\n".join(HOURS))
    (tmp_path / "own.py").write_text("class Mine:\n    pass\n")
    scenario = load_scenario(written(tmp_path, "{profile: hours.csv, bidders: {own: {kind: 'own.py:Mine'}}}"))
    assert Path(scenario.market.profile).samefile(tmp_path / "hours.csv")
    assert find_bidder(scenario.market.bidders["own"].kind).__name__ == "Mine"
    assert traffic_profile(scenario.market).period == 86_400.0
    copy = tmp_path / "elsewhere" / "scenario.yaml"
    copy.parent.mkdir()
    copy.write_text(dump_scenario(scenario))
    assert load_scenario(copy) == scenario


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("dayly", "'dayly' is no file; did you mean 'daily'?"),
        ("huors.csv", "'huors.csv' is no file; did you mean 'hours.csv'?"),
        ("traffic/week.txt", "'traffic/week.txt' is no file; use constant, daily, or a CSV file"),
    ],
)
def test_a_profile_that_is_not_there_is_refused_with_advice(tmp_path, profile, text):
    (tmp_path / "hours.csv").write_text("\n".join(HOURS))
    problem = refusal(tmp_path, f"{{profile: {profile}}}")
    assert f"{tmp_path / 'scenario.yaml'}:4:10 market.profile: {text}" in problem


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["hour,value", *HOURS[:-1]], "hours.csv:24: 23 24 168"),
        ([*HOURS[:7], "7,many", *HOURS[8:]], "hours.csv:8: 'many'"),
        ([*HOURS[:7], "7,-1", *HOURS[8:]], "hours.csv:8: -1 0"),
        ([*HOURS[:7], "6,1", *HOURS[8:]], "hours.csv:8: 7"),
        ([*HOURS[:7], "7", *HOURS[8:]], "hours.csv:8: 1 2"),
        ([f"{hour},0" for hour in range(24)], "0 traffic"),
    ],
)
def test_a_malformed_profile_is_refused_with_the_line_of_its_file(tmp_path, lines, text):
    (tmp_path / "hours.csv").write_text("\n".join(lines))
    problem = refusal(tmp_path, "{profile: hours.csv}")
    assert "market.profile: " in problem and tells(problem, *text.split())


@pytest.mark.parametrize(
    ("market", "key"),
    [
        ("{days: 0}", "market.days"),
        ("{days: .inf}", "market.days"),
        ("{window: 0}", "market.window"),
        ("{update: 90000}", "market.update"),
        ("{depth: 1}", "market.depth"),
        ("{requests_per_second: .nan}", "market.requests_per_second"),
        ("{budgets: {share: 1.1}}", "market.budgets.share"),
        ("{budgets: {median: 0}}", "market.budgets.median"),
        ("{bidders: {}}", "market.bidders"),
        ("{windw: 3}", "market.windw"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path, market, key):
    assert f" {key}: " in refusal(tmp_path, market)


def test_a_market_of_built_in_names_is_checked_without_numpy(tmp_path):
    code = (
        "import sys; from cascade_sim.scenario.file import load_scenario; load_scenario(sys.argv[1]); "
        "print([name for name in ('numpy', 'simpy', 'torch') if name in sys.modules])"
    )
    path = written(tmp_path, "{bidders: {a: {kind: pid}, b: {}}}")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_budgets_left_out_are_no_budgets_and_a_section_draws_them():
    changes = ["market={days: 1.0}"]
    without = load_scenario("quick", changes)
    assert without.market.budgets is None and "budgets" not in scenario_data(without)["market"]
    assert "no budgets" in market_text(without)
    drawn = load_scenario("quick", [*changes, "market.budgets.median=3"])
    assert drawn.market.budgets.share == 0.8 and "budgets for 80" in market_text(drawn)
    environment = environment_of(drawn, 1)
    assert (environment.budgets(None) == NO_BUDGET).all()
    assert (environment.budgets(drawn.market.budgets) != NO_BUDGET).any()
