"""A pytest plugin: a test that fails when a scenario no longer earns what its baseline says.

    @pytest.mark.auction_revenue(scenario="scenarios/ads.yaml", against="revenue.json", tolerance="0.5%")
    def test_revenue(auction_revenue):
        auction_revenue()

`pytest --update-revenue-baseline` writes the baselines anew. Relative paths start at pytest's root folder.
Only the tests that ask for the fixture pay for anything: cascade_sim is imported when one of them runs.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cascade_sim.regression.baseline import Baseline, Measured
    from cascade_sim.regression.check import Verdict
    from cascade_sim.scenario.schema import Scenario

NAME = "auction_revenue"
UPDATE = "--update-revenue-baseline"
# Keyword -> whether it takes a list of texts (a single text counts as a list of one).
KEYWORDS = {
    "scenario": False,
    "against": False,
    "tolerance": True,
    "metrics": True,
    "arms": True,
    "overrides": True,
    "traffic_sample": False,
    "retrain": False,
}
_MEASURED = pytest.StashKey[dict[tuple[Any, ...], "Measured"]]()
_WRITTEN = (
    "revenue_baseline_written"  # a property of a test: a report has it, from whichever process it comes
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("cascade_sim").addoption(
        UPDATE, action="store_true", help="Write the baselines of auction_revenue tests anew."
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{NAME}(scenario, against, tolerance=(), metrics=(), arms=(), overrides=(), traffic_sample=0, "
        f"retrain=False): what the {NAME} fixture compares with which baseline.",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mark without the fixture would guard nothing, unnoticed."""
    for item in items:
        if item.get_closest_marker(NAME) and NAME not in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(
                f"{item.nodeid} is marked {NAME} but does not ask for the fixture: add {NAME} to its "
                "arguments and call it"
            )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that asks for the fixture and never calls it has checked nothing."""
    result = yield
    guard = pyfuncitem.funcargs.get(NAME)
    if isinstance(guard, RevenueGuard) and not guard.was_called:
        pytest.fail(f"{NAME} was never called, so nothing was checked: call {NAME}()", pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for some in terminalreporter.stats.values() for report in some]
    told = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    for file in dict.fromkeys(value for name, value in told if name == _WRITTEN):
        terminalreporter.write_line(f"revenue baseline written: {file}")


@pytest.fixture
def auction_revenue(request: pytest.FixtureRequest) -> RevenueGuard:
    """Call it to compare a scenario with its baseline; keywords as in the mark, which they override."""
    mark = request.node.get_closest_marker(NAME)
    if mark is not None and mark.args:
        raise pytest.UsageError(f"{request.node.nodeid}: the mark {NAME} takes keywords only")
    return RevenueGuard(request.config, dict(mark.kwargs) if mark else {}, request.node.user_properties)


class RevenueGuard:
    """Runs the scenario (once for all tests that share it) and fails the test if revenue moved."""

    def __init__(
        self, config: pytest.Config, keywords: Mapping[str, Any], told: list[tuple[str, object]]
    ) -> None:
        self._config, self._keywords, self._told = config, keywords, told
        self.was_called = False

    def __call__(self, **keywords: Any) -> Verdict | None:
        """The verdict, if it passed; None where the baseline was written anew."""
        from cascade_sim.foundation.errors import UserError

        self.was_called = True
        mistake = ""
        try:
            chosen = _checked({**self._keywords, **keywords})
            if self._config.getoption(UPDATE):
                self._write(chosen)
                return None
            verdict = self._check(chosen)
        except UserError as error:
            mistake = str(error)
        if mistake:  # outside of `except`: pytest would print it twice, as one while handling another
            pytest.fail(f"{NAME}: {mistake}", pytrace=False)
        if not verdict.passed:
            from cascade_sim.regression.text import verdict_text

            pytest.fail(verdict_text(verdict), pytrace=False)
        return verdict

    def _check(self, chosen: Mapping[str, Any]) -> Verdict:
        from cascade_sim.foundation.errors import UserError
        from cascade_sim.regression.baseline import read_baseline
        from cascade_sim.regression.check import check_revenue, guarded, refuse_incomparable

        file = self._path(chosen["against"])
        if not file.exists():
            raise UserError(f"{file} does not exist; run pytest {UPDATE} once, and keep the file")
        baseline = read_baseline(file)
        plan = guarded(baseline, chosen["metrics"], chosen["arms"], chosen["tolerance"])
        scenario, where = self._scenario(chosen)
        refuse_incomparable(baseline, scenario, where, plan, is_fresh=bool(chosen["traffic_sample"]))
        return check_revenue(
            baseline,
            self._measured(chosen, scenario, where, None if chosen["retrain"] else baseline),
            tolerances=chosen["tolerance"],
            metrics=chosen["metrics"],
            arms=chosen["arms"],
        )

    def _write(self, chosen: Mapping[str, Any]) -> None:
        from cascade_sim.regression.baseline import refuse_other_file, refuse_unknown_arms, write_baseline
        from cascade_sim.scenario.schema import AUTOMATIC_ARMS

        file = self._path(chosen["against"])
        scenario, where = self._scenario(chosen)
        refuse_other_file(file)
        refuse_unknown_arms(chosen["arms"], (*scenario.arms, *AUTOMATIC_ARMS))
        write_baseline(self._measured({**chosen, "traffic_sample": 0}, scenario, where), file, chosen["arms"])
        self._told.append((_WRITTEN, str(file)))

    def _scenario(self, chosen: Mapping[str, Any]) -> tuple[Scenario, str]:
        """The scenario that is meant, checked, and its file."""
        from cascade_sim.scenario.file import find_scenario, load_scenario

        file = self._path(chosen["scenario"])
        if not file.exists():  # a shipped one's name, perhaps
            file = self._path(find_scenario(Path(chosen["scenario"])))
        return load_scenario(file, chosen["overrides"]), str(file)

    def _measured(
        self, chosen: Mapping[str, Any], scenario: Scenario, where: str, logged_by: Baseline | None = None
    ) -> Measured:
        """The scenario run for its sums, once for all tests that ask for the same."""
        from cascade_sim.context import scratch_context
        from cascade_sim.regression.serving import measure_scenario
        from cascade_sim.scenario.file import scenario_hash

        known = self._config.stash.setdefault(_MEASURED, {})
        earlier = None if logged_by is None else logged_by.scenario
        # By content: a test may write the scenario that the next one runs.
        key = (where, scenario_hash(scenario), chosen["traffic_sample"], dumps(earlier, sort_keys=True))
        if key not in known:
            with scratch_context(device="cpu") as context:
                known[key] = measure_scenario(
                    scenario, where, context, stretch=chosen["traffic_sample"], logged_by=earlier
                )
        return known[key]

    def _path(self, text: str | Path) -> Path:
        return self._config.rootpath / text


def _checked(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Known keywords, lists as tuples, with defaults; UserError otherwise."""
    from cascade_sim.foundation.errors import UserError, unknown_name

    for name in keywords:
        if name not in KEYWORDS:
            raise UserError(unknown_name("keyword", name, KEYWORDS))
    for name in ("scenario", "against"):
        if not isinstance(keywords.get(name), str | Path):
            raise UserError(f"{name} is {keywords.get(name)!r}; expected a path, in the mark or the call")
    traffic_sample = keywords.get("traffic_sample", 0)
    if not isinstance(traffic_sample, int) or traffic_sample < 0:
        raise UserError(f"traffic_sample is {traffic_sample!r}; expected an integer, 0 or more")
    retrain = keywords.get("retrain", False)
    if not isinstance(retrain, bool):
        raise UserError(f"retrain is {retrain!r}; expected True or False")
    chosen = {
        "scenario": keywords["scenario"],
        "against": keywords["against"],
        "traffic_sample": traffic_sample,
    }
    chosen["retrain"] = retrain
    for name in (name for name, is_list in KEYWORDS.items() if is_list):
        value = keywords.get(name, ())
        chosen[name] = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(text, str) for text in chosen[name]):
            raise UserError(f"{name} is {value!r}; expected a text or a list of them")
    return chosen
