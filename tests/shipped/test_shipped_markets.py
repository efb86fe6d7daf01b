"""Money in every market that is shipped, from the log alone: tiny versions with budgets that bind."""

from pathlib import Path

import numpy as np
import pyarrow.dataset
import pytest

from cascade_sim.context import RunContext
from cascade_sim.environments.market_inputs import draw_budgets
from cascade_sim.scenario.file import load_scenario
from cascade_sim.study.run import run_seed
from places import ROOT

DAY = 86_400.0
MARKETS = [file for file in sorted((ROOT / "scenarios").glob("*.yaml")) if "\nmarket:" in file.read_text()]
# About 1,000 requests a day, and budgets of about a click.
TINY = (
    *("world.users=200", "phases.cold_start=256", "phases.log=256", "phases.evaluate=64", "phases.shadow=0"),
    *("report.resamples=10", "report.detail_requests=8"),
    *("market.requests_per_second=0.012", "market.window=1800", "market.update=3600"),
    "market.budgets={share: 1.0, median: 0.6, sigma: 0.8}",
)


def test_markets_are_shipped():
    assert {"market_day", "market_week", "pricing_rules"} <= {file.stem for file in MARKETS}


# Two of them always, all of them by `make drill`.
ALWAYS = ("market_day", "pricing_rules")
CASES = [
    pytest.param(file, id=file.stem, marks=() if file.stem in ALWAYS else pytest.mark.drill)
    for file in MARKETS
]


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory):
    """The scenario, its metrics and the folder of a finished run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        folder = tmp_path_factory.mktemp(request.param.stem)
        patch.setenv("CASCADE_SIM_CACHE", str(folder / "cache"))
        shipped = load_scenario(request.param)
        learns = shipped.market.training is not None
        more = ["market.training=null"] if learns else []  # hours of it; money does not depend on it
        more += [f"models.{name}.refit=false" for name, model in shipped.models.items() if model.refit]
        more += [
            f"models.{name}.logged_scores_from=null"
            for name, model in shipped.models.items()
            if model.logged_scores_from
        ]
        if any(model.trained_by.has_teacher for model in shipped.models.values()):
            more += ["phases.shadow=64"]
        if shipped.market.days > 2:  # weeks and months are for learning; money is made day by day
            more += ["market.days=1" if shipped.market.days > 7 else "market.days=2"]
        if shipped.market.days < 1:  # a part of a day of so little traffic may have no click
            more += ["market.days=1"]
        if shipped.market.designs is not None:  # further markets of the same arms
            more += ["market.designs=null"]
        scenario = load_scenario(request.param, overrides=[*TINY, *more])
        metrics = run_seed(scenario, RunContext(folder, ROOT / "scenarios", device="cpu"))
    return scenario, metrics, folder


def table(folder: Path, name: str) -> dict[str, np.ndarray]:
    found = pyarrow.dataset.dataset(folder / "logs" / name).to_table()
    return {column: found[column].to_numpy() for column in found.column_names}


def charges(scenario, folder: Path, arm: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What was shown, and what was charged when: the pages' own charges, or the table of late clicks."""
    shown = table(folder, f"market-{arm}")
    late = scenario.market.charging.click_delay > 0
    return shown, table(folder, f"charges-{arm}") if late else shown


def test_charges_add_up_to_the_revenue(run):
    scenario, metrics, folder = run
    for arm, found in metrics["market"]["arms"].items():
        _, charged = charges(scenario, folder, arm)
        assert found["revenue"] == int(charged["charge_micros"].sum()) / 1e6 > 0


def test_no_charge_is_without_its_click_and_none_above_the_price(run):
    scenario, metrics, folder = run
    for arm, found in metrics["market"]["arms"].items():
        shown, charged = charges(scenario, folder, arm)
        assert (charged["charge_micros"] <= charged["cpc_micros"]).all()
        assert (shown["charge_micros"][~shown["click"]] == 0).all()
        if charged is shown:
            continue
        assert not shown["charge_micros"].any()
        columns = ("request", "slot", "ad", "advertiser", "cpc_micros")
        clicks = set(zip(*(shown[name][shown["click"]].tolist() for name in columns), strict=True))
        paid = list(zip(*(charged[name].tolist() for name in columns), strict=True))
        assert len(set(paid)) == len(paid) and set(paid) <= clicks
        assert len(clicks) - len(paid) == found["pending_clicks"]


def test_nobody_is_charged_beyond_the_budget_of_a_day_and_its_declared_slack(run):
    scenario, metrics, folder = run
    n, spec = scenario.world.advertisers, scenario.market
    budget = draw_budgets(spec.budgets, n, scenario.seed)
    limit = budget + np.floor(budget * spec.charging.overspend).astype(np.int64)
    for arm, found in metrics["market"]["arms"].items():
        shown, charged = charges(scenario, folder, arm)
        time = charged["time"]
        spend = np.zeros((int(np.ceil(spec.days)), n), np.int64)
        np.add.at(spend, ((time // DAY).astype(int), charged["advertiser"]), charged["charge_micros"])
        assert (spend <= limit).all()
        assert (spend >= budget).any(), "no budget binds: the test would show nothing"
        assert found["overspend"] == max(0, (spend - budget).max()) / 1e6 and found["beyond_limit"] == 0
