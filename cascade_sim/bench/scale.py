"""How cost grows with the size of a world: CPU time a request, set-up and memory, each point in a process.

A request makes its whole way (traffic, serve, clicks, charges, log on disk); users come as they do in a run,
so first visits with their search of the corpus are part of the figure. One core.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.loading import keep_memory
from cascade_sim.foundation.terminal import echo

FEWEST = {"ads": 10_000, "users": 10_000, "requests": 100_000}
LARGEST = {"ads": 10_000_000, "users": 1_000_000, "requests": 10_000_000}
SLOWEST = 2.0  # times what a straight line from the point before would cost: beyond, it is a cliff
RETRIEVED = 500
LEARNED_ADS = 1_000_000  # of a corpus that a model searches
PROBES = 256  # of about 6,000 lists


@dataclass(frozen=True)
class Size:
    """A world and its traffic."""

    ads: int
    users: int
    requests: int
    probes: int | None = None  # lists that are searched; None: all ads, exactly
    by_model: bool = False  # a two-tower model retrieves, in place of the similarity


SMALLEST = Size(FEWEST["ads"], FEWEST["users"], FEWEST["requests"])


@dataclass(frozen=True)
class Cost:
    """What a size costs. Times are CPU time of one core."""

    set_up_s: float
    first_visit_us: float  # search of the corpus for a user who is not known
    request_us: float
    new_users: float  # share of requests whose user had not come before
    memory_mb: float  # of the whole process at its peak
    share_found: float | None = None  # of the nearest ads, where the search is approximate


def sizes(most_requests: int) -> list[Size]:
    """One size at a time grows tenfold from the smallest world, requests up to `most_requests`.

    At last, the most ads with an approximate search, and a learned retriever of a million ads both ways.
    """
    found = [SMALLEST]
    largest = {**LARGEST, "requests": min(LARGEST["requests"], most_requests)}
    for name, most in largest.items():
        value = FEWEST[name] * 10
        while value <= most:
            found.append(Size(**{**asdict(SMALLEST), name: value}))
            value *= 10
    learned = replace(SMALLEST, ads=LEARNED_ADS, by_model=True)
    large = replace(SMALLEST, ads=LARGEST["ads"], probes=PROBES)
    return [*found, large, learned, replace(learned, probes=PROBES)]


def measure(size: Size) -> Cost:
    """In this process, which should be a new one: the peak of memory is that of its whole life."""
    from cascade_sim.bench.serving import serving

    serving(*_build(Size(1_000, 100, 0)), 1024)  # compiles the kernels
    started = time.process_time()
    sim, arm = _build(size)
    set_up = time.process_time() - started
    retriever = arm.retrieval.retriever
    searches = _timed_searches(retriever.index)
    started = time.process_time()
    serving(sim, arm, size.requests)
    request = (time.process_time() - started) / size.requests
    users, searched = (sum(column) for column in zip(*searches, strict=True))
    new_users, visit = users / size.requests, searched / users
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return Cost(set_up, visit * 1e6, request * 1e6, new_users, peak, retriever.share_found(RETRIEVED))


def measure_apart(size: Size) -> Cost:
    """The same in a process of its own. UserError: it cannot be done here, for want of memory say."""
    command = [sys.executable, "-m", "cascade_sim.bench.scale", json.dumps(asdict(size))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise UserError(f"the process that measured it ended with {done.returncode}")
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise UserError(answer["refused"])
    return Cost(**answer)


def bench_scale(
    points: Iterable[Size], cost_of: Callable[[Size], Cost] = measure_apart
) -> list[dict[str, Any]]:
    """A row for each size: its three numbers and what it costs, or `refused` with the reason."""
    rows: list[dict[str, Any]] = []
    for size in points:
        try:
            rows.append({**asdict(size), **asdict(cost_of(size))})
        except UserError as error:
            rows.append({**asdict(size), "refused": str(error)})
    return rows


def cliffs(rows: list[dict[str, Any]]) -> list[str]:
    """Where a request costs more than `SLOWEST` times what the size before leads to expect.

    A search is expected to grow with the ads, everything else of a request not to grow at all.
    """
    is_plain = [
        row.get("probes") is None and not row.get("by_model") and "refused" not in row for row in rows
    ]
    found, rows = [], [row for row, plain in zip(rows, is_plain, strict=True) if plain]
    for name in FEWEST:
        others = [other for other in FEWEST if other != name]
        line = [row for row in rows if all(row[other] == FEWEST[other] for other in others)]
        for before, row in zip(line, line[1:], strict=False):
            search, rest = row["first_visit_us"], _without_search(row)
            if search > SLOWEST * row["ads"] / before["ads"] * before["first_visit_us"]:
                found.append(f"{name} {row[name]:,}: a search takes {search:,.0f} us")
            if rest > SLOWEST * _without_search(before):
                found.append(f"{name} {row[name]:,}: a request without its search takes {rest:,.1f} us")
    return found


def _without_search(row: dict[str, Any]) -> float:
    """Microseconds of a request whose user is known."""
    return row["request_us"] - row["new_users"] * row["first_visit_us"]


def scale_text(rows: list[dict[str, Any]]) -> str:
    """The figures as lines for a terminal."""
    lines = [
        f"one core, CPU time; {RETRIEVED} ads retrieved, two-tower models in both stages, log on disk",
        f"{'ads':>11} {'users':>10} {'requests':>11} {'set-up':>9} {'a request':>12} {'search':>12} "
        f"{'new users':>10} {'memory':>10}",
    ]
    for row in rows:
        size = f"{row['ads']:>11,} {row['users']:>10,} {row['requests']:>11,}"
        if "refused" in row:
            lines.append(f"{size} {row['refused']}")
            continue
        lines.append(
            f"{size} {row['set_up_s']:>7.1f} s "
            f"{row['request_us']:>9,.1f} us {row['first_visit_us']:>9,.0f} us {row['new_users']:>10.1%} "
            f"{row['memory_mb']:>7,.0f} MB"
            + ("   by a model" if row.get("by_model") else "")
            + (
                f"   {row['probes']} lists: {row['share_found']:.1%} of the nearest"
                if row.get("probes")
                else ""
            )
        )
    lines += [f"a cliff: {text}" for text in cliffs(rows)] or ["no cliff"]
    return "\n".join(lines)


def _build(size: Size) -> tuple[Any, Any]:
    """A world of this size with two-tower models in both stages: what they keep per ad fits at any size."""
    from cascade_sim.bench.serving import SCENARIO, SEEN
    from cascade_sim.scenario.schema import Scenario, resolve_arm
    from cascade_sim.study.simulation import Simulation
    from cascade_sim.training.modules import build_module, make_scorer

    towers = {"kind": "towers", "features": SEEN, "dims": 14, "hidden": 32}
    retrieval: dict[str, Any] = {"size": RETRIEVED, "probes": size.probes}
    models = {"rank": towers, "logloss": towers}
    if size.by_model:  # it gives a user the same ads at every visit, as the similarity does
        retrieval["model"] = "retrieval"
        models["retrieval"] = {**towers, "features": [name for name in SEEN if name != "context"]}
    cascade = {**SCENARIO["cascade"], "retrieval": retrieval}
    scenario = Scenario.model_validate(
        {
            **SCENARIO,
            "world": {"ads": size.ads, "users": size.users},
            "cascade": cascade,
            "models": models,
        }
    )
    sim = Simulation(scenario, seed=1)
    for name, spec in scenario.models.items():
        view = sim.view(spec.features)
        sim.scorers[name] = make_scorer(name, "logloss", view, build_module(name, spec, view, 1))
    return sim, sim.arm("bench", resolve_arm(scenario, scenario.arms["logloss"]))


def _timed_searches(index: Any) -> list[tuple[int, float]]:
    """(users, CPU-seconds) of each search of serving from here on, to be taken off its time."""
    done: list[tuple[int, float]] = []
    search = index.nearest

    def timed(codes: np.ndarray, size: int) -> np.ndarray:
        started = time.process_time()
        found: np.ndarray = search(codes, size)
        done.append((len(codes), time.process_time() - started))
        return found

    index.nearest = timed
    return done


if __name__ == "__main__":
    keep_memory()  # as a run does
    try:
        answer = asdict(measure(Size(**json.loads(sys.argv[1]))))
    except UserError as error:
        answer = {"refused": str(error)}
    echo(json.dumps(answer))
