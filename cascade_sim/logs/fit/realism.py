"""Realism of a world against a log: summary statistics, pairs, a classifier, known what-ifs, known gaps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from cascade_sim.counterfactual.whatif import check_out
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.logs.fidelity import summary_statistics as stats
from cascade_sim.logs.fidelity import two_sample
from cascade_sim.logs.fidelity.gaps import known_gaps
from cascade_sim.logs.fidelity.sample import DAY, take
from cascade_sim.logs.store.store import LogStore, is_log_store, open_store
from cascade_sim.storage.files import below, parse_json, read_file
from cascade_sim.storage.folder import ANSWERS, METRICS
from cascade_sim.version import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 200  # requests of a period
MARGIN = 0.02  # of excess AUC: below it a world is equivalent to its log
# A longer log has more users who come again and more ads that are shown at all: not compared between lengths.
OF_LENGTH = ("returning", "top_1", "top_10", "candidates_top_10")
NEAR_LENGTH = 1.25
WHATIF_MEASURES = (
    *("expected_revenue_per_request", "revenue_per_request", "expected_ctr", "ctr"),
    *("cpc", "impressions_per_request"),
)
PARTS = ("all", "first", "second")


def compare_world(
    log: Path, world: Path, *, part: str = "all", seed: int = 1, out: Path | None = None
) -> dict[str, Any]:
    """What realism.json holds, of a market and a world in any form; `part`: which half of the log.

    `out`, where it is to be written, is tried before the long work, and not made if there is nothing to do.
    """
    if part not in PARTS:
        raise UserError(f"--log-part: {unknown_name('part', part, PARTS)}")
    store = open_store(log)
    middle = split_of(store)
    parts = {"all": None, "first": (0, middle), "second": (middle, store.n_requests)}
    first, last = parts[part] or (0, store.n_requests)
    whatifs = matching_whatifs(answers_in(log), answers_in(world))
    with _world(world, last - first) as other:
        if out is not None:
            check_out(out)
        return realism(store, other, part=parts[part], whatifs=whatifs, seed=seed)


@contextmanager
def _world(world: Path, requests: int) -> Iterator[LogStore]:
    """The store of a log, or what is drawn from a fitted world, for as long as it is looked at."""
    if is_log_store(world):
        yield open_store(world)
        return
    file = world if world.is_file() else below(world, "scenario.yaml")
    if not file.is_file():
        raise UserError(f"{world} is neither a log store nor a scenario or run of a fitted world")
    from cascade_sim.logs.fit.fitted import sampled_store
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.study.simulation import Simulation

    scenario = load_scenario(file)
    if scenario.world.replay is None or scenario.world.replay.fitted is None:
        raise UserError(
            f"{world} is not of a world fitted to a log; export its run and import that (export-logs, "
            "import-logs)"
        )
    with TemporaryDirectory() as folder:
        sim = Simulation(scenario, scenario.seed, home=file.parent)
        yield sampled_store(sim, Path(folder) / "world", requests)


def write_realism(found: Mapping[str, Any], out: Path) -> list[Path]:
    """realism.json and realism.html in a folder."""
    from cascade_sim.analysis.report.figures.realism import realism_svg
    from cascade_sim.analysis.report.sections.realism import realism_page
    from cascade_sim.storage.files import write_file
    from cascade_sim.storage.folder import json_text

    contents = {"realism.json": json_text(found), "realism.html": realism_page(found, realism_svg(found))}
    for name, content in contents.items():
        write_file(out / name, content.encode())
    return [out / name for name in contents]


def statistics_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row per statistic: statistic, group, log, world and gap with intervals, is_relative, differs."""
    told = ({"statistic": row["label"], **row} for row in rows)
    return _frame(told, ("statistic", "group"), ("log", "world", "gap"), ("is_relative", "differs"))


def classifier_frame(test: Mapping[str, Any]) -> pd.DataFrame:
    """What is compared (requests, shown ads): the AUC, that between two periods of the log, the excess."""
    told = (
        {"compared": what, **test[what], "within_log_auc": test[what]["within_log"]["auc"]}
        for what in ("requests", "shown")
    )
    return _frame(told, ("compared",), ("auc", "within_log_auc", "excess_auc"))


def whatifs_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row per what-if and metric that both were asked: the lifts of the log and of the world."""
    from cascade_sim.analysis.report.readings import settings_text

    told = ({"setting": settings_text(row["settings"]), **row} for row in rows)
    return _frame(told, ("setting", "metric"), ("log", "world"), ("is_inside", "overlaps"))


def _frame(
    rows: Iterable[Mapping[str, Any]],
    before: Sequence[str],
    estimates: Sequence[str],
    after: Sequence[str] = (),
) -> pd.DataFrame:
    """A table of plain columns around estimates, each of which has an interval."""
    import pandas as pd

    ends = {"": "value", "_low": "low", "_high": "high"}
    table = [
        {
            **{name: row[name] for name in before},
            **{f"{name}{suffix}": row[name][end] for name in estimates for suffix, end in ends.items()},
            **{name: row[name] for name in after},
        }
        for row in rows
    ]
    columns = [*before, *(f"{name}{suffix}" for name in estimates for suffix in ends), *after]
    return pd.DataFrame(table, columns=columns)


def realism(
    log: Any,
    world: Any,
    *,
    part: tuple[int, int] | None = None,
    whatifs: Sequence[Mapping[str, Any]] = (),
    seed: int = 1,
    resamples: int = stats.RESAMPLES,
    most: int | None = None,
) -> dict[str, Any]:
    """What realism.json holds, of two stores.

    part      the requests of the log that are compared; all by default. A world that was fitted to the first
              half of a log is compared with the second, beside how alike the halves are.
    whatifs   rows of `matching_whatifs`
    """
    n = log.n_requests
    for store in (log, world):
        if store.n_requests < 2 * FEWEST:
            raise UserError(
                f"{store.about.name} has {store.n_requests:,} requests; at least {2 * FEWEST} are needed to "
                "say how like two markets are"
            )
    first, last = part or (0, n)
    middle = split_of(log) if part is None else (first if first > 0 else last)
    if min(middle, n - middle, last - first) < FEWEST:
        raise UserError(
            f"the periods of {log.about.name} have {middle:,} and {n - middle:,} requests; each needs "
            f"{FEWEST}"
        )
    size = min(most or two_sample.MOST, world.n_requests, middle, n - middle, last - first)
    samples = take(log, first, last), take(world)
    periods = take(log, 0, middle), take(log, middle, n)
    sides = stats.side_by_side(*samples, periods, resamples, seed)
    is_near = max(last - first, world.n_requests) <= NEAR_LENGTH * min(last - first, world.n_requests)
    left_out = [] if is_near else [row["label"] for row in sides if row["name"] in OF_LENGTH]
    sides = [row for row in sides if is_near or row["name"] not in OF_LENGTH]
    test = two_sample.two_sample_test(
        take(log, first, last, size), take(world, most=size),
        (take(log, 0, middle, size), take(log, middle, n, size)), seed, resamples,
    )  # fmt: skip
    found = {
        "semantics": SEMANTICS,
        "log": _about(log, first, last),
        "world": _about(world, 0, world.n_requests),
        "periods": [_period(log, 0, middle), _period(log, middle, n)],
        "resampled": {"log": samples[0].unit_word, "world": samples[1].unit_word},
        "two_sample": test,
        "statistics": sides,
        "pairs": stats.pairs(*samples, resamples, seed),
        "hours": stats.hours(*samples),
        "whatifs": list(whatifs),
        "missing_columns": missing_columns(log, world),
        "left_out": left_out,
    }
    return {**found, "verdict": verdict(test), "margin": MARGIN, "gaps": known_gaps(found)}


def split_of(store: Any) -> int:
    """The request with which the second period of a log begins: at a midnight, where there are two days."""
    time = store.requests["time"]
    n = len(time)
    if n and (time[-1] - time[0]) >= 2 * DAY:
        midnights = np.arange(np.ceil(time[0] / DAY), np.floor(time[-1] / DAY) + 1) * DAY
        places = np.searchsorted(time, midnights)
        inner = places[(places >= FEWEST) & (places <= n - FEWEST)]
        if len(inner):
            return int(inner[np.argmin(np.abs(inner - n / 2))])
    return n // 2


def verdict(test: Mapping[str, Any]) -> str:
    """equivalent, inconclusive or different: an equivalence test on the excess AUC.

    equivalent: its whole interval is below `MARGIN`, for requests and for shown ads. different: for one of
    them the whole interval is above.
    """
    excesses = [test[what]["excess_auc"] for what in ("requests", "shown")]
    if any(excess["low"] is not None and excess["low"] > MARGIN for excess in excesses):
        return "different"
    if all(excess["high"] is not None and excess["high"] <= MARGIN for excess in excesses):
        return "equivalent"
    return "inconclusive"


def missing_columns(log: Any, world: Any) -> list[str]:
    """What the log has and the world has not."""
    return [
        f"{table}.{column}"
        for table in ("requests", "candidates")
        for column in log.about.columns[table]
        if column not in world.about.columns[table] and column != "source"
    ]


def _about(store: Any, first: int, last: int) -> dict[str, Any]:
    about = store.about
    return {
        "name": about.name,
        "currency": about.currency,
        "level": about.level,
        **_period(store, first, last),
    }


def _period(store: Any, first: int, last: int) -> dict[str, Any]:
    time = store.requests["time"]
    return {
        "requests": last - first,
        "first": first,
        "days": round(float(time[last - 1] - time[first]) / DAY, 3) if last > first else 0.0,
    }


def answers_in(folder: Path) -> list[dict[str, Any]]:
    """The answers of `whatif` that lie in a market or a run, and what a study had asked itself."""
    found = []
    for path in sorted(below(folder, ANSWERS).glob("*/whatif.json")):
        found.append(_read(path))
    metrics = below(folder, METRICS)
    if metrics.is_file():
        found += list((_read(metrics).get("what_if") or {}).values())
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_file(path))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no answer of whatif: it holds no object")
    return content


def matching_whatifs(
    of_log: Iterable[Mapping[str, Any]], of_world: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The same parameters changed to the same values in both: the lifts side by side.

    A row: {parameter, value, metric, log: {value, low, high}, world: {…}, is_inside, overlaps}; `is_inside`:
    the world's lift lies in the log's interval.
    """
    known = {_settings(point): point for answer in of_log for point in answer.get("points", ())}
    rows, seen = [], set()
    for answer in of_world:
        for point in answer.get("points", ()):
            settings = _settings(point)
            if settings not in known or settings in seen:
                continue
            seen.add(settings)
            for metric in WHATIF_MEASURES:
                sides = [(own["metrics"].get(metric) or {}).get("lift") for own in (known[settings], point)]
                lifts = [lift for lift in sides if lift and lift.get("value") is not None]
                if len(lifts) == 2:
                    rows.append(_whatif_row(point["settings"], metric, lifts[0], lifts[1]))
    return rows


def _settings(point: Mapping[str, Any]) -> str:
    return json.dumps(point["settings"], sort_keys=True)


def _whatif_row(
    settings: Mapping[str, Any], metric: str, of_log: Mapping[str, Any], of_world: Mapping[str, Any]
) -> dict[str, Any]:
    def within(value: float, lift: Mapping[str, Any]) -> bool:
        return lift["low"] is not None and lift["low"] <= value <= lift["high"]

    ends = [lift[end] for lift in (of_log, of_world) for end in ("low", "high")]
    overlaps = None not in ends and ends[0] <= ends[3] and ends[2] <= ends[1]
    return {
        "settings": dict(settings),
        "metric": metric,
        "log": {key: of_log.get(key) for key in ("value", "low", "high")},
        "world": {key: of_world.get(key) for key in ("value", "low", "high")},
        "is_inside": within(of_world["value"], of_log),
        "overlaps": overlaps,
    }
