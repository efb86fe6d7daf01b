"""The simulator from Python: the same functions as on the command line, with results as pandas tables.

    from cascade_sim import run, whatif, compare

    study = run("scenarios/quick.yaml", out="runs/quick")
    study.frame()                                            # arm, metric, value, low, high, lift, …
    study.log("evaluate-logloss")                            # what was shown, a row per impression
    whatif(study, {"auction.reserve_cpc": [0.1, 0.2]}).frame()
    wider = run("scenarios/quick.yaml", out="runs/wider", set=["cascade.pre_ranking.size=50"])
    compare(study, wider).frame()

Nothing is printed. Mistakes are `cascade_sim.errors.UserError` with the text the command line would show.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.errors import ScenarioError, UserError

if TYPE_CHECKING:
    import pandas as pd

    from cascade_sim.scenario.schema import Scenario

__all__ = ["CompareResult", "RunResult", "WhatIfResult", "compare", "run", "whatif"]

ScenarioLike = str | Path | Mapping[str, Any]
NOT_A_PATH = "scenario"  # what a scenario given as a dict is called in messages


@dataclass(frozen=True)
class RunResult:
    """A finished run: `path` is its folder, `metrics` the content of its metrics.json."""

    path: Path
    metrics: dict[str, Any] = field(repr=False)  # a hundred thousand characters in a notebook

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
        return pd.DataFrame(rows, columns=[*("arm", "metric"), *ENDS, *("lift", "lift_low", "lift_high")])

    def log(self, table: str) -> pd.DataFrame:
        """A table of the run's logs, e.g. `evaluate-logloss`; UserError names those there are."""
        import pandas as pd

        from cascade_sim.storage.tables import read_table

        return pd.DataFrame(read_table(self.path, table))


@dataclass(frozen=True)
class WhatIfResult:
    """An answer: `answer` is the content of whatif.json, `files` what was written (with `out`)."""

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    def frame(self) -> pd.DataFrame:
        """A row per setting and metric: setting, metric, and today, then, difference, lift with intervals."""
        import pandas as pd

        from cascade_sim.analysis.report.sections.whatif import CSV_COLUMNS, what_if_rows

        return pd.DataFrame(what_if_rows(self.answer), columns=list(CSV_COLUMNS))

    def pairing(self) -> pd.DataFrame:
        """A row per setting and kind of revenue: how many times pairing shrinks the variance."""
        import pandas as pd

        from cascade_sim.analysis.report.sections.whatif import settings_text, worth_of

        rows = [
            [settings_text(point["settings"]), kind, worth.value, worth.low, worth.high]
            for point in self.answer["points"]
            for kind in point["pairing"]
            for worth in [worth_of(point, kind)]
        ]
        return pd.DataFrame(rows, columns=["setting", "revenue", "times", "low", "high"])


@dataclass(frozen=True)
class CompareResult:
    """Runs held against the first: `comparisons` is the content of compare.json."""

    comparisons: list[dict[str, Any]] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per run, arm and metric: before, after, difference, lift with intervals, and is_paired."""
        import pandas as pd

        from cascade_sim.analysis.report.sections.compare import CSV_COLUMNS, compare_rows

        return pd.DataFrame(compare_rows(self.comparisons), columns=list(CSV_COLUMNS))

    def scenario(self) -> pd.DataFrame:
        """A row per key of the scenarios that differs: run, key, old, new."""
        import pandas as pd

        rows = [
            [found["other"], one["key"], one["old"], one["new"]]
            for found in self.comparisons
            for one in found["scenario"]
        ]
        return pd.DataFrame(rows, columns=["run", "key", "old", "new"])


ENDS = ("value", "low", "high")
RunLike = str | Path | RunResult


def run(
    scenario: ScenarioLike,
    out: str | Path | None = None,
    *,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int = 1,
    workers: int | None = None,
    device: str = "auto",
) -> RunResult:
    """Run a study: simulate, train, compare the arms, write the run folder with its report.

    `scenario` is the path of a scenario file, or its content as a dict. `set` are `path.to.key=value`, as on
    the command line. `out`: the run folder, by default runs/<name>; a run that lies there is replaced.
    `workers`: threads for one world, processes for several; results do not depend on it.

        run("scenarios/quick.yaml", out="runs/quick", set=["phases.evaluate=4096"]).metrics["arms"]
    """
    from cascade_sim.commands.run import usable_cores
    from cascade_sim.study import run_study

    if isinstance(set, str):
        raise UserError(
            f"set: expected a list of 'path.to.key=value', found the text {set!r}; write [{set!r}]"
        )
    for name, number in (("seeds", seeds), ("workers", 1 if workers is None else workers)):
        if number < 1:
            raise UserError(f"{name}: expected a whole number from 1, found {number}")
    loaded = load(scenario, set, seed)
    folder = Path(out) if out is not None else Path("runs") / loaded.name
    metrics = run_study(
        loaded,
        out=folder,
        seeds=seeds,
        workers=workers or usable_cores(),
        device=device,
        quiet=True,
        show=False,
    )
    return RunResult(folder, metrics)


def load(scenario: ScenarioLike, overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """A scenario from a file or a dict, checked; UserError with every problem."""
    from cascade_sim.scenario.file import load_scenario

    if not isinstance(scenario, str | Path | Mapping):
        raise UserError(f"scenario: expected the path of a file or a dict, found {scenario!r}")
    if not isinstance(scenario, Mapping):
        return load_scenario(Path(scenario), overrides, seed)
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text = io.StringIO()
    try:
        YAML(typ="safe").dump(_plain(scenario), text)
    except YAMLError as error:
        raise UserError(f"{NOT_A_PATH}: holds what YAML cannot: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{NOT_A_PATH}.yaml"
        file.write_text(text.getvalue(), encoding="utf-8")
        try:
            return load_scenario(file, overrides, seed)
        except ScenarioError as error:  # lines of a file that nobody wrote mean nothing
            raise ScenarioError([_without_place(line, str(file)) for line in error.problems]) from None


def _plain(value: Any) -> Any:
    """Mappings and sequences of any kind as dicts and lists, numpy's numbers as numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.item() if hasattr(value, "item") else value


def _without_place(line: str, file: str) -> str:
    """`/…/scenario.yaml:3:5 world.ads: …` as `scenario world.ads: …`."""
    if not line.startswith(file):
        return line
    place, _, text = line[len(file) :].partition(" ")
    return f"{NOT_A_PATH}: {text}" if place.startswith(":") else f"{NOT_A_PATH}{line[len(file) :]}"


def whatif(
    run: RunLike,
    changes: Mapping[str, Any] | None = None,
    *,
    arm: str | None = None,
    requests: int | None = None,
    out: str | Path | None = None,
    **knobs: Any,
) -> WhatIfResult:
    """What another setting would have brought, on the run's own requests with their own luck.

    Knobs are paths of the scenario or their unambiguous ends: `{"auction.reserve_cpc": 0.2}` or
    `reserve_cpc=0.2`. One of them may have a list of values: each is asked about by itself. `arm` is by
    default the baseline, `requests` all of the evaluation. With `out`, files are written into that folder.

        whatif("runs/quick", {"auction.reserve_cpc": [0.1, 0.2]}, arm="ltr").frame()
    """
    from cascade_sim.questions.whatif import check_out, what_if_study, write_answer
    from cascade_sim.scenario.changes import Refused, given_points, refuse

    path = _path(run)
    if not (changes is None or isinstance(changes, Mapping)):
        raise UserError(f"changes: expected a dict as {{'auction.reserve_cpc': 0.2}}, found {changes!r}")
    asked = {**(changes or {}), **knobs}
    if requests is not None and requests < 1:
        raise UserError(f"requests: expected a whole number from 1, found {requests}")
    if out is not None:
        check_out(Path(out))
    try:
        answer = what_if_study(
            path, lambda scenario, name: given_points(asked, scenario, name), arm, requests or 0
        )
    except Refused as reason:
        words = [f"{key}={value}" for key, value in asked.items()]
        raise refuse(reason, words, "", path / "scenario.yaml") from None
    return WhatIfResult(answer, tuple(write_answer(answer, Path(out))) if out is not None else ())


def compare(
    first: RunLike, *others: RunLike, arm: str | None = None, unpaired: bool = False
) -> CompareResult:
    """How finished runs differ: every other run against the first, in scenario and in measures.

    compare("runs/quick", "runs/wider").frame().query("metric == 'expected_ctr'")
    """
    from cascade_sim.questions.compare import compare_runs

    return CompareResult(compare_runs([_path(one) for one in (first, *others)], arm, unpaired))


def _path(run: RunLike) -> Path:
    if not isinstance(run, str | Path | RunResult):
        raise UserError(f"expected the folder of a run, or what run() returned, found {run!r}")
    return run.path if isinstance(run, RunResult) else Path(run)
