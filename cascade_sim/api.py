"""The simulator from Python: the same functions as on the command line, with results as pandas tables.

    from cascade_sim import run, whatif, compare

    study = run("quick", out="runs/quick")                   # a shipped scenario, a file, or a dict
    study.frame()                                            # arm, metric, value, low, high, lift, …
    study.log("evaluate-logloss")                            # what was shown, a row per impression
    whatif(study, {"auction.reserve_cpc": [0.1, 0.2]}).frame()
    wider = run("quick", out="runs/wider", set=["cascade.pre_ranking.size=50"])
    compare(study, wider).frame()

A run is given as its folder or as what `run` returned; options have the names of the command line. Nothing is
printed, and no progress is shown unless `quiet=False`. Mistakes are `cascade_sim.errors.UserError` with the
text the command line would show.
"""

from __future__ import annotations

import inspect
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from cascade_sim.errors import ScenarioError, UserError, unknown_name
from cascade_sim.loading import loading
from cascade_sim.workers import usable_cores

if TYPE_CHECKING:
    import pandas as pd

    from cascade_sim.audit.study import Audit
    from cascade_sim.progress import Progress
    from cascade_sim.questions.landscape import Landscape
    from cascade_sim.questions.reopen import Trust
    from cascade_sim.revenue.baseline import Baseline
    from cascade_sim.revenue.check import Verdict
    from cascade_sim.scenario.questions import Jitter
    from cascade_sim.scenario.schema import Scenario
    from cascade_sim.scenario.targets import Target

__all__ = [
    "AuditResult",
    "BaselineResult",
    "CheckResult",
    "CompareResult",
    "LandscapeResult",
    "OffPolicyResult",
    "Result",
    "RunResult",
    "SweepResult",
    "TraceResult",
    "WhatIfResult",
    "audit_logs",
    "baseline",
    "check",
    "compare",
    "landscape",
    "load_scenario",
    "off_policy",
    "open_run",
    "run",
    "sweep",
    "trace",
    "whatif",
]

NOT_A_PATH = "scenario"  # what a scenario that is no file is called in messages
ENDS = ("value", "low", "high")
MOST_ROWS = 30  # of a table in a notebook
POINTS = 21  # bids of a landscape
SWEPT_WORLDS = 3  # of each cell
MOST_BID = 1e9
OVERVIEW = ("expected_revenue_per_request", "expected_rpm", "expected_ctr", "rcs")  # of a run in a notebook


class Result(ABC):
    """What every answer is: a table, and a short look at it in a notebook."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """The answer as a table."""

    @abstractmethod
    def title(self) -> str:
        """A line above the table: which answer to which run this is."""

    def overview(self) -> pd.DataFrame:
        """The table that a notebook shows; by default all of `frame`."""
        return self.frame()

    def _repr_html_(self) -> str:
        table = self.overview()
        shown = table.head(MOST_ROWS).to_html(
            index=False, border=0, na_rep="", escape=True, float_format=lambda value: f"{value:,.4g}"
        )
        left = len(table) - MOST_ROWS
        more = f"<p>… and {left:,} more rows in <code>.frame()</code></p>" if left > 0 else ""
        return f"<p><b>{escape(self.title())}</b></p>{shown}{more}"


@dataclass(frozen=True)
class RunResult(Result):
    """A finished run: `path` is its folder, `metrics` the content of its metrics.json.

    `trust`: what `run` returns is trusted, since it ran that code itself; what `open_run` opens, if told so.
    """

    path: Path
    metrics: dict[str, Any] = field(repr=False)  # a hundred thousand characters in a notebook
    trust: bool = False  # whether code of model classes that lies in the folder may be run

    def frame(self) -> pd.DataFrame:
        """A row per arm and metric: arm, metric, value, low, high, lift, lift_low, lift_high.

        Intervals are 95 %; lifts are relative to the baseline arm and missing for itself.
        """
        import pandas as pd

        rows = []
        for arm, metrics in self.metrics["arms"].items():
            for metric, entry in metrics.items():
                lift = entry.get("lift") or {}
                rows.append(
                    [arm, metric, *(entry.get(key) for key in ENDS), *(lift.get(key) for key in ENDS)]
                )
        return pd.DataFrame(rows, columns=["arm", "metric", *ENDS, "lift", "lift_low", "lift_high"])

    def title(self) -> str:
        return f"Run {self.path}; the report is {self.path / 'report.html'}"

    def overview(self) -> pd.DataFrame:
        """A row per arm with the main metrics."""
        import pandas as pd

        arms = self.metrics["arms"]
        known = [metric for metric in OVERVIEW if any(metric in metrics for metrics in arms.values())]
        rows = [
            [arm, *((metrics.get(metric) or {}).get("value") for metric in known)]
            for arm, metrics in arms.items()
        ]
        return pd.DataFrame(rows, columns=["arm", *known])

    def log(self, table: str) -> pd.DataFrame:
        """A table of the run's logs, e.g. `evaluate-logloss`; UserError names those there are."""
        import pandas as pd

        from cascade_sim.storage.tables import read_table

        return pd.DataFrame(read_table(self.path, table))


@dataclass(frozen=True)
class WhatIfResult(Result):
    """An answer: `answer` is the content of whatif.json, `files` what was written (with `out`)."""

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    def frame(self) -> pd.DataFrame:
        """A row per setting and metric: setting, metric, and today, then, difference, lift with intervals."""
        import pandas as pd

        from cascade_sim.analysis.report.sections.whatif import CSV_COLUMNS, what_if_rows

        return pd.DataFrame(what_if_rows(self.answer), columns=list(CSV_COLUMNS))

    def title(self) -> str:
        return f"What if, arm {self.answer['arm']}, {self.answer['requests']:,} requests"

    def pairing(self) -> pd.DataFrame:
        """A row per setting and kind of revenue: how many times pairing shrinks the variance."""
        import pandas as pd

        from cascade_sim.analysis.report.readings import settings_text
        from cascade_sim.analysis.report.sections.whatif import worth_of

        rows = [
            [settings_text(point["settings"]), kind, worth.value, worth.low, worth.high]
            for point in self.answer["points"]
            for kind in point["pairing"]
            for worth in [worth_of(point, kind)]
        ]
        return pd.DataFrame(rows, columns=["setting", "revenue", "times", "low", "high"])


@dataclass(frozen=True)
class AuditResult(Result):
    """The audit of a market: `answer` is the content of audit.json, `files` what was written (with `out`)."""

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    @property
    def _audit(self) -> Audit:
        from cascade_sim.audit.study import Audit

        return Audit(self.answer)

    def frame(self) -> pd.DataFrame:
        """A row per reason why pages are not as logged: reason, requests, share, alone, value, where, …"""
        return self._audit.frame()

    def tally(self) -> pd.DataFrame:
        """Pages, winners and prices: how many there are and how many come out as logged."""
        return self._audit.tally()

    def rules(self) -> pd.DataFrame:
        """A row per rule that was tried, the best first; empty where nothing was inferred."""
        return self._audit.rules()

    def overview(self) -> pd.DataFrame:
        return self.tally()

    def title(self) -> str:
        return self._audit.title()


@dataclass(frozen=True)
class CompareResult(Result):
    """Runs held against the first: `comparisons` is the content of compare.json."""

    comparisons: list[dict[str, Any]] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per run, arm and metric: before, after, difference, lift with intervals, and is_paired."""
        import pandas as pd

        from cascade_sim.analysis.report.sections.compare import CSV_COLUMNS, compare_rows

        return pd.DataFrame(compare_rows(self.comparisons), columns=list(CSV_COLUMNS))

    def title(self) -> str:
        others = ", ".join(comparison["other"] for comparison in self.comparisons)
        return f"{others} against {self.comparisons[0]['first']}"

    def scenario(self) -> pd.DataFrame:
        """A row per key of the scenarios that differs: run, key, old, new."""
        import pandas as pd

        rows = [
            [comparison["other"], change["key"], change["old"], change["new"]]
            for comparison in self.comparisons
            for change in comparison["scenario"]
        ]
        return pd.DataFrame(rows, columns=["run", "key", "old", "new"])


@dataclass(frozen=True)
class SweepResult(Result):
    """A grid of settings: `findings` as plain data, `files` what was written."""

    findings: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    def frame(self) -> pd.DataFrame:
        """A row per cell and measure: cell, its settings, measure, value and lift over the first cell."""
        import pandas as pd

        paths = [axis["path"] for axis in self.findings["axes"]]
        rows = []
        for cell in self.findings["cells"]:
            settings = [cell["settings"][path] for path in paths]
            for measure, entry in cell["measures"].items():
                lift = entry.get("lift") or {}
                values = (part.get(key) for part in (entry, lift) for key in ENDS)
                rows.append([cell["name"], *settings, measure, *values])
        columns = ["cell", *paths, "measure", *ENDS, "lift", "lift_low", "lift_high"]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        return f"Sweep of {self.findings['name']}, arm {self.findings['arm']}"


@dataclass(frozen=True)
class OffPolicyResult(Result):
    """What logs alone say: `answers` by target, `slopes` by knob.

    The "jitter" of an answer about knobs tells its question: "drop" a launch, "keep" the log's noise.
    """

    answers: dict[str, dict[str, Any]] = field(repr=False)
    slopes: dict[str, dict[str, Any]] = field(repr=False)
    reward: str = "revenue"

    def frame(self) -> pd.DataFrame:
        """A row per target and estimator: value, low, high, the truth, verdict, ess_share, reason; for knobs
        what became of the jitter, and the lift (over today's values: fixed too, if the jitter is dropped).

        Without an interval where the log holds too little of what the target does.
        """
        import pandas as pd

        rows = []
        for target, answer in self.answers.items():
            asked = answer["rewards"][self.reward]
            truth = asked.get("truth", {}).get("value")
            for name, row in asked["estimators"].items():
                judged = (row[key] for key in ("verdict", "ess_share", "reason"))
                lift = [row.get("lift", {}).get(key) for key in ENDS]
                ends = (row["estimate"][key] for key in ENDS)
                rows.append([target, name, *ends, truth, *judged, answer.get("jitter"), *lift])
        columns = ["target", "estimator", *ENDS, "truth", "verdict", "ess_share", "reason", "jitter"]
        columns += ["lift", "lift_low", "lift_high"]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        return f"From logs alone: {self.reward} per request"

    @property
    def is_refused(self) -> bool:
        """Whether no estimator that weighs what was logged had anything to go by."""
        verdicts = [
            row["verdict"]
            for answer in self.answers.values()
            for name, row in answer["rewards"][self.reward]["estimators"].items()
            if name != "direct_method"
        ]
        return bool(verdicts) and all(verdict == "refuse" for verdict in verdicts)


@dataclass(frozen=True)
class TraceResult(Result):
    """One request, explained: `trace` as plain data; as text it is what the command line prints."""

    trace: dict[str, Any] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per slot of the page that was shown, from the top."""
        import pandas as pd

        return pd.DataFrame(self.trace["win_set"])

    def stages(self) -> pd.DataFrame:
        """A row per stage with the ad's rank, score and cut-offs; UserError if no ad was asked about."""
        import pandas as pd

        if "ad" not in self.trace:
            raise UserError("stages: no ad was asked about; give trace(…, ad=ID)")
        return pd.DataFrame(self.trace["ad"]["stages"])

    def title(self) -> str:
        return f"Request {self.trace['request']} in arm {self.trace['arm']}"

    def __str__(self) -> str:
        from cascade_sim.questions.trace import trace_text

        return trace_text(self.trace)


@dataclass(frozen=True)
class LandscapeResult(Result):
    """What one ad would have got at other bids."""

    landscape: Landscape = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per bid: impressions, clicks, cost, CPC and value, expected and as they fell."""
        import pandas as pd

        return pd.DataFrame(self.landscape.columns())

    def title(self) -> str:
        answer = self.landscape
        return f"Ad {answer.ad} in arm {answer.arm}; its own bid is {answer.init_bid:.6f}"


@dataclass(frozen=True)
class BaselineResult(Result):
    """What a run earned, kept in the file `path`."""

    path: Path
    baseline: Baseline = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per arm and metric: arm, metric, value."""
        import pandas as pd

        rows = [
            [arm, metric, value]
            for arm, own in self.baseline.blocks.arms.items()
            for metric, value in own.values.items()
        ]
        return pd.DataFrame(rows, columns=["arm", "metric", "value"])

    def title(self) -> str:
        return f"Baseline {self.path} of {self.baseline.name}"


@dataclass(frozen=True)
class CheckResult(Result):
    """Whether a scenario still earns what its baseline earned; as text it is what the command line prints."""

    verdict: Verdict = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether nothing moved beyond chance and tolerance."""
        return self.verdict.passed

    def frame(self) -> pd.DataFrame:
        """A row per guarded metric: arm, metric, before, after, change, low, high, p, tolerance, failed."""
        import pandas as pd

        rows = [
            [
                *(finding.arm, finding.metric, finding.before, finding.after, finding.move.relative),
                *(*finding.move.interval(), finding.p, finding.tolerance, finding.has_failed),
            ]
            for finding in self.verdict.findings
        ]
        columns = ["arm", "metric", "before", "after", "change", "low", "high", "p", "tolerance", "failed"]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        result = "passed" if self.passed else f"FAILED in {len(self.verdict.failed)} metrics"
        return f"{self.verdict.where} against {self.verdict.against}: {result}"

    def __str__(self) -> str:
        from cascade_sim.revenue.text import verdict_text

        return verdict_text(self.verdict)


ScenarioLike: TypeAlias = "str | Path | Mapping[str, Any] | Scenario"
RunLike: TypeAlias = str | Path | RunResult
Texts: TypeAlias = str | Sequence[str]  # one, or several


Function = TypeVar("Function", bound=Callable[..., Any])
PLAIN: dict[str, tuple[type, str]] = {"int": (int, "a whole number"), "str": (str, "text")}


def plain_arguments(function: Function) -> Function:
    """Takes numpy's numbers and arrays as numbers and lists; refuses what is no whole number or no text."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            value = _plain(value) if isinstance(value, Mapping) or hasattr(value, "tolist") else value
            bound.arguments[name] = value
            kinds = str(parameter.annotation).split(" | ")
            if not {*kinds} <= {*PLAIN, "None"} or (value is None and "None" in kinds):
                continue
            plain = [kind for kind in kinds if kind in PLAIN]
            if isinstance(value, bool) or not isinstance(value, tuple(PLAIN[kind][0] for kind in plain)):
                what = " or ".join(PLAIN[kind][1] for kind in plain)
                raise UserError(f"{name}: expected {what}, found {value!r}")
        return function(*bound.args, **bound.kwargs)

    return cast("Function", checked)


@plain_arguments
def load_scenario(scenario: ScenarioLike, *, set: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """A scenario from a file, a shipped one's name or a dict, checked; UserError with every problem.

    load_scenario("ads", set=["cascade.slots=3"]).cascade.slots
    """
    from cascade_sim.scenario import file
    from cascade_sim.scenario.schema import Scenario

    if isinstance(scenario, Scenario) and not set and seed is None:
        return scenario
    with _as_file(scenario) as path:
        return file.load_scenario(path, _overrides(set), seed)


@contextmanager
def _as_file(scenario: ScenarioLike) -> Iterator[Path]:
    """The file of a scenario; one that is none is written out as long as it is needed."""
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from cascade_sim.scenario.file import scenario_data
    from cascade_sim.scenario.schema import Scenario

    if isinstance(scenario, str | Path):
        yield Path(scenario)
        return
    if not isinstance(scenario, Mapping | Scenario):
        raise UserError(f"scenario: expected the path of a file or a dict, found {scenario!r}")
    data = scenario_data(scenario) if isinstance(scenario, Scenario) else _plain(scenario)
    text = io.StringIO()
    try:
        YAML(typ="safe").dump(data, text)
    except YAMLError as error:
        raise UserError(f"{NOT_A_PATH}: holds what YAML cannot: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{NOT_A_PATH}.yaml"
        file.write_text(text.getvalue(), encoding="utf-8")
        try:
            yield file
        except ScenarioError as error:  # lines of a file that nobody wrote mean nothing
            raise ScenarioError([_without_place(line, str(file)) for line in error.problems]) from None


def _plain(value: Any) -> Any:
    """Mappings and sequences of any kind as dicts and lists, numpy's numbers as numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.tolist() if hasattr(value, "tolist") else value  # numpy's numbers and arrays


def _without_place(line: str, file: str) -> str:
    """`/…/scenario.yaml:3:5 world.ads: …` as `scenario world.ads: …`."""
    if not line.startswith(file):
        return line
    place, _, text = line[len(file) :].partition(" ")
    return f"{NOT_A_PATH}: {text}" if place.startswith(":") else f"{NOT_A_PATH}{line[len(file) :]}"


def _overrides(given: Sequence[str]) -> Sequence[str]:
    """The overrides of `set`, which is easily given a text where a list is meant."""
    if isinstance(given, str):
        raise UserError(
            f"set: expected a list of 'path.to.key=value', found the text {given!r}; write [{given!r}]"
        )
    return given


def _texts(given: Texts) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _from_one(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UserError(f"{name}: expected a whole number from 1, found {number}")


def _path(run: RunLike) -> Path:
    if not isinstance(run, str | Path | RunResult):
        raise UserError(f"expected the folder of a run, or what run() returned, found {run!r}")
    return run.path if isinstance(run, RunResult) else Path(run)


@plain_arguments
def run(
    scenario: ScenarioLike,
    out: str | Path | None = None,
    *,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int = 1,
    workers: int | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = True,
    engine: str = "local",
    address: str | None = None,
) -> RunResult:
    """Run a study: simulate, train, compare the arms, write the run folder with its report.

    `scenario` is the path of a scenario file, the name of a shipped one, or its content as a dict. `set` are
    `path.to.key=value`, as on the command line. `out`: the run folder, by default runs/<name>; a run that
    lies there is replaced, or with `resume` gone on with; if answers (whatif/) were asked of it and it is
    another run, that is refused unless told to `overwrite`. `workers`: threads for one world, processes for
    several; results do not depend on it. `engine="ray"` does the work with Ray, on this machine or on the
    cluster at `address`, whose machines must all see `out` (docs/scale.md).

        run("quick", out="runs/quick", set=["phases.evaluate=4096"]).frame()
    """
    from cascade_sim.storage.folder import default_folder
    from cascade_sim.study import run_study

    _from_one(seeds=seeds, workers=workers)
    loaded = load_scenario(scenario, set=set, seed=seed)
    folder = Path(out) if out is not None else default_folder(loaded.name)
    metrics = run_study(
        loaded,
        out=folder,
        seeds=seeds,
        workers=workers or usable_cores(),
        device=device,
        quiet=quiet,
        resume=resume,
        overwrite=overwrite,
        show=False,
        engine=engine,
        address=address,
    )
    return RunResult(folder, metrics, trust=True)


def open_run(run: RunLike, *, trust: bool = False) -> RunResult:
    """A finished run, read from its folder; UserError if it is none, unfinished or damaged.

    Nothing of it is run. With `trust` later questions to it may run the code of model classes of one's own
    that came with it.

        open_run("runs/quick").frame()
    """
    from cascade_sim.storage import folder

    opened = folder.open_run(_path(run))
    return RunResult(opened.path, opened.metrics, trust=_trusted(run, trust) is True)


def _trusted(run: RunLike, trust: Trust) -> Trust:
    return True if isinstance(run, RunResult) and run.trust else trust


@plain_arguments
def whatif(
    run: RunLike,
    changes: Mapping[str, Any] | None = None,
    *,
    arm: str | None = None,
    requests: int | None = None,
    out: str | Path | None = None,
    trust: Trust = False,
    quiet: bool = True,
    **knobs: Any,
) -> WhatIfResult:
    """What another setting would have brought, on the run's own requests with their own luck.

    Knobs are paths of the scenario or their unambiguous ends: `{"auction.reserve_cpc": 0.2}` or
    `reserve_cpc=0.2`. One of them may have a list of values: each is asked about by itself. `arm` is by
    default the baseline, `requests` all of the evaluation. With `out`, files are written into that folder.
    `trust`: run the code of model classes of one's own that came with the run (what `run` returns has it).

        whatif("runs/quick", {"auction.reserve_cpc": [0.1, 0.2]}, arm="ltr").frame()
    """
    from cascade_sim.progress import Progress
    from cascade_sim.questions.whatif import check_out, what_if_study, write_answer
    from cascade_sim.scenario.changes import Refused, given_points, refuse

    path = _path(run)
    if not (changes is None or isinstance(changes, Mapping)):
        raise UserError(f"changes: expected a dict as {{'auction.reserve_cpc': 0.2}}, found {changes!r}")
    asked = {**(changes or {}), **knobs}
    _from_one(requests=requests)
    if out is not None:
        check_out(Path(out))
    try:
        with Progress(quiet) as progress:
            answer = what_if_study(
                path,
                lambda scenario, name: given_points(asked, scenario, name),
                arm,
                requests or 0,
                progress,
                _trusted(run, trust),
            )
    except Refused as reason:
        words = [f"{key}={value}" for key, value in asked.items()]
        raise refuse(reason, words) from None
    return WhatIfResult(answer, tuple(write_answer(answer, Path(out))) if out is not None else ())


@plain_arguments
def audit_logs(market: RunLike, *, infer: bool = False, out: str | Path | None = None) -> AuditResult:
    """Hold every auction of an imported market again: do winners and prices come out as logged?

    Under the rule that the log declares or, without one or with `infer`, under the one that it follows. With
    `out`, files are written into that folder.

        audit_logs("markets/last_week").tally()
    """
    from cascade_sim.audit.study import audit, write_audit
    from cascade_sim.questions.whatif import check_out

    if out is not None:
        check_out(Path(out))
    answer = audit(_path(market), infer=infer).answer
    return AuditResult(answer, tuple(write_audit(answer, Path(out))) if out is not None else ())


@plain_arguments
def compare(
    first: RunLike, *others: RunLike, arm: str | None = None, unpaired: bool = False
) -> CompareResult:
    """How finished runs differ: every other run against the first, in scenario and in measures.

    compare("runs/quick", "runs/wider").frame().query("metric == 'expected_ctr'")
    """
    from cascade_sim.questions.compare import compare_runs

    return CompareResult(compare_runs([_path(other) for other in (first, *others)], arm, unpaired))


@plain_arguments
def sweep(
    scenario: ScenarioLike,
    over: Mapping[str, Sequence[Any]] | Sequence[str],
    *,
    set: Sequence[str] = (),
    seeds: int | None = None,
    arm: str | None = None,
    x: str = "expected_ctr",
    y: str = "expected_revenue_per_request",
    out: str | Path | None = None,
    retrain: bool = False,
    keep_logs: bool = False,
    workers: int | None = None,
    device: str = "auto",
    quiet: bool = True,
    engine: str = "local",
    address: str | None = None,
) -> SweepResult:
    """Run a scenario over a grid of settings, in several worlds each; lifts are over the first cell.

    `seeds` is the number of worlds: 3, or the one that a replayed log is.
    `over` has the values of each key, or is a list of `KEY=A,B`. Writes sweep.csv and sweep.html, with the
    Pareto plot of `y` against `x`, into `out` (by default runs/<name>-sweep). Finished cells are kept. Models
    learn from the log of the first cell's cascade, unless each cell is to `retrain` on its own. `engine` and
    `address` are as for `run`.

        sweep("quick", {"auction.reserve_cpc": [0, 0.2], "cascade.slots": [2, 3]}).frame()
    """
    from cascade_sim.storage.folder import default_folder
    from cascade_sim.sweeps import check_sweep, load_grid, parse_axes, run_sweep, write_sweep

    _from_one(seeds=seeds, workers=workers)
    axes = parse_axes(_axis_texts(over))
    with _as_file(scenario) as path:
        cells = load_grid(path, axes, _overrides(set))
    check_sweep(cells, arm, (x, y))
    seeds = seeds or (1 if cells[0].scenario.world.is_replay else SWEPT_WORLDS)
    folder = Path(out) if out is not None else default_folder(f"{cells[0].scenario.name}-sweep")
    findings = run_sweep(
        axes,
        cells,
        folder,
        arm=arm,
        seeds=seeds,
        workers=workers or usable_cores(),
        device=device,
        quiet=quiet,
        retrain=retrain,
        keep_logs=keep_logs,
        engine=engine,
        address=address,
    )
    return SweepResult(findings, tuple(write_sweep(findings, folder, x, y)))


def _axis_texts(over: Mapping[str, Sequence[Any]] | Sequence[str]) -> list[str]:
    """Each axis as the command line writes it."""
    import json

    if not isinstance(over, Mapping):
        return list(_texts(over))
    texts = []
    for key, values in over.items():
        values = _plain(values) if hasattr(values, "tolist") else values
        if not isinstance(values, list | tuple):
            raise UserError(f"over: expected a list of values for {key!r}, found {values!r}")
        words = (value if isinstance(value, str) else json.dumps(_plain(value)) for value in values)
        texts.append(f"{key}={','.join(words)}")
    return texts


@plain_arguments
def off_policy(
    run: RunLike,
    changes: Mapping[str, Any] | Sequence[str] = (),
    *,
    jitter: str | None = None,
    estimator: Texts = (),
    reward: str = "revenue",
    truth: bool = True,
    trust: Trust = False,
    quiet: bool = True,
) -> OffPolicyResult:
    """What another policy would have earned, from the run's randomised logs alone.

    Without `changes` the targets of the scenario are answered for. Knobs are launched: fixed at their values,
    the lift being over today's values fixed as well, as `whatif` has it (jitter "drop"); with jitter "keep"
    the log's own noise stays around the value. By default the scenario's off_policy.jitter. With `truth`,
    what the simulator itself says stands beside the estimates, which have not seen it. `trust`: as in
    `whatif`.

        off_policy("runs/off_policy", {"auction.reserve_cpc": 0.6}).frame()
    """
    from cascade_sim.progress import Progress
    from cascade_sim.scenario.questions import JITTERS

    if not (jitter is None or jitter in JITTERS):
        raise UserError(f"--jitter: {unknown_name('choice', jitter, JITTERS)}")
    if isinstance(changes, Mapping):
        changes = [f"{key}={value}" for key, value in changes.items()]
    changes = _texts(changes)
    with Progress(quiet) as progress:
        answers, slopes = _off_policy(
            _path(run),
            _trusted(run, trust),
            changes,
            cast("Jitter | None", jitter),
            _texts(estimator),
            truth,
            progress,
        )
    return OffPolicyResult(answers, slopes, reward)


def _off_policy(
    path: Path,
    trust: Trust,
    changes: Sequence[str],
    jitter: Jitter | None,
    estimators: Sequence[str],
    truth: bool,
    progress: Progress,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The answers for what is asked, or for the scenario's targets, and the slopes of the knobs."""
    from cascade_sim.estimation import study
    from cascade_sim.estimation.estimates import ESTIMATORS
    from cascade_sim.estimation.log import baseline_spec
    from cascade_sim.questions.reopen import reopen
    from cascade_sim.scenario.targets import parse_target

    for name in estimators:
        if name not in ESTIMATORS:
            raise UserError(f"--estimator: {unknown_name('estimator', name, ESTIMATORS)}")
    _asked(changes, "drop")  # a mistake is told before anything is opened
    opened = reopen(path, trust)
    scenario, sim = opened.scenario, opened.sim
    if sim.replay is not None:
        from cascade_sim.estimation.market_log import market_answers

        if not changes:
            raise UserError(f"{path}: say what to change with --set, as in slates.temperature=0.1")
        asked = _asked(changes, "drop")
        with progress.stage("estimates", len(asked), "targets"):
            return market_answers(sim, opened.arm(), asked, estimators), {}
    kind = jitter or (scenario.off_policy.jitter if scenario.off_policy is not None else "drop")
    asked = _asked(changes, kind)
    _refuse_targets(path, scenario, asked)
    assert scenario.off_policy is not None
    targets = asked or [
        parse_target(name, words, kind) for name, words in scenario.off_policy.targets.items()
    ]
    _refuse_estimators(estimators, targets)
    arm, spec = opened.arm(), baseline_spec(scenario)
    for model in (target.model for target in targets if target.model is not None):
        section = spec.ranking.model_copy(update={"model": model})
        opened.load_models(spec.model_copy(update={"ranking": section}))
    logs = study.read_logs(sim, path)
    listed = asked or study.with_references(targets, logs, kind)
    with progress.stage("estimates", len(listed), "targets") as bar:
        answers = study.answers(sim, arm, logs, listed, estimators, bar.advance)
        has_knobs = logs.knobs is not None and any(not target.is_slate for target in listed)
        slopes = study.slope_answers(sim, arm, logs.knobs) if has_knobs and logs.knobs else {}
    if truth:  # only now: nothing above has seen it
        with progress.stage("truth", len(listed), "targets") as bar:
            study.add_truth(answers, sim, arm, logs, listed, bar.advance)
            if slopes and logs.knobs:
                study.add_true_slopes(slopes, sim, arm, logs.knobs)
    return answers, slopes


def _asked(changes: Sequence[str], jitter: Jitter) -> list[Target]:
    """The policy that a command asks about; nothing if it changes nothing."""
    from cascade_sim.scenario.targets import parse_target

    try:
        return [parse_target("the asked policy", changes, jitter)] if changes else []
    except UserError as error:
        raise UserError(f"--set {error}") from None


def _refuse_estimators(names: Sequence[str], targets: Sequence[Target]) -> None:
    """UserError where none of the named estimators answers any of the questions."""
    from cascade_sim.estimation.estimates import KNOB_ESTIMATORS, estimators_of

    known = list(dict.fromkeys(name for target in targets for name in estimators_of(target)))
    if not names or set(names) & set(known):
        return
    is_kept = any(target.is_launch for target in targets) and set(names) <= set(KNOB_ESTIMATORS)
    hint = "; it weighs the log's own noise around another centre: --jitter keep" if is_kept else ""
    raise UserError(f"--estimator {', '.join(names)}: here {', '.join(known)} answer{hint}")


def _refuse_targets(path: Path, scenario: Scenario, asked: Sequence[Target]) -> None:
    """UserError where the run's logs cannot answer, naming the key to set."""
    from cascade_sim.estimation.log import baseline_spec
    from cascade_sim.scenario.checks import target_fault

    if scenario.off_policy is None:
        raise UserError(
            f"{path}: nothing was randomised in this run, so its logs cannot say what another policy "
            "would do; add off_policy: {randomise: {reserve_cpc: 0.3}} to the scenario and run it again"
        )
    for target in asked:
        fault = target_fault(target, scenario.off_policy, baseline_spec(scenario), scenario)
        if fault:
            raise UserError(f"--set {target.words}: {fault}")
    if not asked and not scenario.off_policy.targets:
        raise UserError(
            f"{path}: the scenario has no off_policy.targets; say what to change with --set KEY=VALUE"
        )


@plain_arguments
def trace(
    run: RunLike,
    request: int | str,
    *,
    ad: int | str | None = None,
    arm: str | None = None,
    trust: Trust = False,
) -> TraceResult:
    """Explain one request: its page, and with `ad` why that ad won or lost at each stage.

    `request` is its id in the evaluate logs, or its number from 0; of an imported market, request and ad may
    be given by their names in the log. `trust`: as in `whatif`.

        print(trace("runs/quick", 0, ad=40))
    """
    with loading():
        from cascade_sim.questions import trace as explained
        from cascade_sim.questions.reopen import reopen

    return TraceResult(explained.trace(reopen(_path(run), _trusted(run, trust)), request, ad, arm))


@plain_arguments
def landscape(
    run: RunLike,
    ad: int | str,
    *,
    arm: str | None = None,
    bids: Sequence[float] | None = None,
    points: int | None = None,
    requests: int | None = None,
    trust: Trust = False,
    quiet: bool = True,
) -> LandscapeResult:
    """Impressions, clicks and cost of one ad as a function of its bid, over the run's evaluation.

    At `bids`, or at so many `points` from a quarter of the ad's own bid to four times as much. `trust`: as in
    `whatif`.

        landscape("runs/quick", ad=40, bids=[0.2, 0.4, 0.8]).frame()
    """
    if bids is not None and points is not None:
        raise UserError("--bids and --points: give one of them")
    given = None if bids is None else checked_bids(bids)
    _from_one(points=points, requests=requests)

    import numpy as np

    from cascade_sim.progress import Progress
    from cascade_sim.questions import landscape as questions
    from cascade_sim.questions.reopen import reopen
    from cascade_sim.questions.trace import ad_number

    opened = reopen(_path(run), _trusted(run, trust))
    ad = ad_number(opened.sim, ad)
    seat = opened.arm(arm)
    own_bid = float(opened.sim.world.init_bid[ad])
    grid = np.array(given) if given else questions.bid_grid(own_bid, points or POINTS)
    n = min(requests or opened.scenario.phases.evaluate, opened.scenario.phases.evaluate)
    with Progress(quiet) as progress, progress.stage("landscape", n) as bar:
        return LandscapeResult(questions.landscape(opened.sim, seat, ad, grid, n, bar.advance))


def checked_bids(bids: Sequence[float]) -> list[float]:
    """The bids ascending, each once; UserError if one is not above 0 or beyond MOST_BID."""
    if not (len(bids) and all(0 < bid <= MOST_BID for bid in bids)):
        raise UserError(f"--bids: each must be above 0 and at most {MOST_BID:g}, in {list(bids)}")
    return sorted({float(bid) for bid in bids})


@plain_arguments
def baseline(run: RunLike, out: str | Path, *, arm: Texts = ()) -> BaselineResult:
    """Keep what a finished run earned in a small file, for `check`. By default the scenario's arms.

    baseline("runs/quick", "revenue.json").frame()
    """
    from cascade_sim.revenue.baseline import read_baseline, write_baseline
    from cascade_sim.revenue.serving import measured_folder

    file = Path(out)
    write_baseline(measured_folder(_path(run)), file, _texts(arm))
    return BaselineResult(file, read_baseline(file))


@plain_arguments
def check(
    what: ScenarioLike | RunResult,
    against: str | Path,
    *,
    tolerance: Texts = (),
    metric: Texts = (),
    arm: Texts = (),
    fresh: int | None = None,
    retrain: bool = False,
    set: Sequence[str] = (),
    workers: int | None = None,
    device: str = "auto",
    quiet: bool = True,
) -> CheckResult:
    """Does a scenario, or a finished run, still earn what its baseline earned? `passed` says it.

    Compared on the same requests under the same luck, or with `fresh` on other requests of the same world.
    `tolerance` are moves that pass, as "0.5%" or "rpm=0.5%"; `metric` and `arm` guard these alone. Models
    whose recipe did not change stay as they were, unless they `retrain` on the log of a changed cascade.

        assert check("quick", "revenue.json", tolerance="0.5%").passed
    """
    from cascade_sim.revenue.baseline import read_baseline
    from cascade_sim.revenue.check import check_revenue, guarded, refuse_incomparable
    from cascade_sim.revenue.serving import measured_folder

    _from_one(fresh=fresh, workers=workers)
    tolerances, metrics, arms = _texts(tolerance), _texts(metric), _texts(arm)
    kept = read_baseline(Path(against))
    plan = guarded(kept, metrics, arms, tolerances)  # mistakes before work
    if isinstance(what, RunResult) or (isinstance(what, str | Path) and Path(what).is_dir()):
        folder = _path(what)
        for option, value in (("--set", set), ("--fresh", fresh), ("--retrain", retrain)):
            if value:
                raise UserError(f"{option}: {folder} is a finished run; give a scenario to run it otherwise")
        measured = measured_folder(folder)
    else:
        where = str(what) if isinstance(what, str | Path) else NOT_A_PATH
        scenario = load_scenario(what, set=set)
        refuse_incomparable(kept, scenario, where, plan, is_fresh=bool(fresh))

        from cascade_sim.revenue.blocks import MARKET_METRICS
        from cascade_sim.revenue.serving import measure_scenario

        measured = measure_scenario(
            scenario,
            where,
            workers=workers or usable_cores(),
            device=device,
            stretch=fresh or 0,
            with_market=any(metric in MARKET_METRICS for _, metric in plan),
            quiet=quiet,
            logged_by=None if retrain else kept.scenario,
        )
    verdict = check_revenue(kept, measured, tolerances=tolerances, metrics=metrics, arms=arms)
    return CheckResult(verdict)
