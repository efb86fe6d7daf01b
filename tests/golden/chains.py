"""Golden chains: a log and what is asked of it, a fitted world, budgets of a log, and answers that are late.

Nothing is trained in them. A digest is kept of each answer, and of each array that serving decided.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from golden.runs import FORMAT, digest, stack
from worlds.cascades import decided
from worlds.logged_market import auctions, budget_market
from worlds.tiny_market import QUICK

# The truth in both stages, with init-bids and with opt-bids: stages that differ, and no nets.
SMALL = (
    *("world.users=150", "world.ads=600", "world.advertisers=60", "world.base_logit=-6.0"),
    *("cascade.retrieval.size=60", "cascade.pre_ranking.size=15", "traffic.block=128"),
    *("models={}", "cascade.ranking.model=truth", "cascade.pre_ranking.model=truth"),
    *("phases.cold_start=0", "phases.log=0", "phases.shadow=0", "phases.evaluate=500"),
    *("report.resamples=20", "report.detail_requests=32", "report.baseline=deployed"),
    "arms={deployed: {}, narrow: {pre_ranking: {size: 5}}}",
)
PARAMETERS = ("auction.reserve_cpc=0.2", "pre_ranking.size=8")
REQUEST = 200

Digests = dict[str, str]


def asked(*words: str | Path) -> str:
    """What a command prints; it must end well."""
    from cascade_sim.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main([str(word) for word in words])
    assert code == 0, (words, code, printed.getvalue()[-500:])
    return printed.getvalue()


def market(folder: Path) -> Path:
    """The market that a small run leaves: exported, and imported again."""
    given = [word for value in SMALL for word in ("--set", value)]
    asked("run", QUICK, "--workers", "1", "--quiet", "--out", folder / "run", *given)
    asked("export-logs", folder / "run", "--out", folder / "export", "--quiet")
    asked("import-logs", folder / "export" / "mapping.yaml", "--out", folder / "market", "--quiet")
    return folder / "market"


def answers(run: Path, *parameters: str) -> Digests:
    """A run's figures, its logs, and what-ifs on it. The hash of its scenario is of the bytes of a log."""
    figures = _json(run / "metrics.json")
    del figures["scenario_hash"]
    found = {f"run/{name}": digest(node) for name, node in _nodes(figures)}
    found.update({f"log/{name}": text for name, text in tables(run / "logs")})
    for parameter in parameters:
        out = run / "asked" / parameter.partition("=")[0]
        asked("whatif", run, "--set", parameter, "--out", out, "--quiet")
        kept = _json(out / "whatif.json")
        found.update({f"whatif {parameter}/{name}": digest(node) for name, node in _nodes(kept)})
    return found


def traces(run: Path) -> Digests:
    """A request of the run, without an ad, with a winner and with the runner-up."""
    page = asked("trace", run, "--request", str(REQUEST), "--json")
    found, told = {"trace": digest(_without_home(page))}, json.loads(page)
    for ad in (told["win_set"][0]["ad"], told["runner_up"]["ad"]):
        name = told.get("names", {}).get("ads", {}).get(str(ad), str(ad))
        of_ad = asked("trace", run, "--request", str(REQUEST), "--ad", name, "--json")
        found[f"trace of an ad/{ad}"] = digest(_without_home(of_ad))
    return found


def replayed(folder: Path) -> Digests:
    """A replayed log."""
    run = folder / "replay"
    asked("run", market(folder) / "scenario.yaml", "--workers", "1", "--quiet", "--out", run)
    return {**answers(run, *PARAMETERS), **traces(run)}


def fitted(folder: Path) -> Digests:
    """A world fitted to that log, with the fewest replicates that its intervals may have."""
    world, run = folder / "world.yaml", folder / "fitted"
    asked("fit-world", market(folder), "--out", world, "--replicates", "8", "--quiet")
    asked("run", world, "--workers", "1", "--quiet", "--out", run, "--set", "report.resamples=20")
    return {**answers(run, *PARAMETERS), **traces(run)}


def budgets(folder: Path) -> Digests:
    """A log with budgets: the run of it, and another reserve, under which others run out."""
    budget_market(folder / "market", auctions(1), "click", with_those_out=True)
    run = folder / "replay"
    asked("run", folder / "market" / "scenario.yaml", "--workers", "1", "--quiet", "--out", run)
    return answers(run, "auction.reserve_cpc=0.8")


def late(folder: Path) -> Digests:
    """What serving decides, array by array: in time, late, with a memo, by the shadow; with churn, too."""
    from cascade_sim.bench.end_to_end import ready
    from cascade_sim.bench.serving import SCENARIO

    found: Digests = {}
    for name, world in (
        ("steady", {}),
        ("churn", {"churn": {"available_share": 0.7, "mean_lifetime_days": 3}}),
    ):
        spec = {
            **SCENARIO,
            "world": {"users": 300, "ads": 900, "advertisers": 60, **world},
            "cascade": {"retrieval": {"size": 80}, "pre_ranking": {"size": 20}, "slots": 4},
            "traffic": {"block": 96, "requests_per_second": 0.002},
        }
        sim, arm = ready(spec)
        for kind, one in _arms(sim, arm):
            for what, decisions in _decisions(sim, one):
                found[f"{name}/{kind}/{what}"] = _of_arrays(decisions)
    return found


def _arms(sim: Any, arm: Any) -> Iterator[tuple[str, Any]]:
    yield "plain", arm
    yield "no bid", arm.with_stage(0, bid="none")
    yield "constant", arm.with_stage(0, scorer=sim.scorers["constant"])
    yield "reserve", replace(arm, reserve_cpc=0.5, score_floor=1e-4)


def _decisions(sim: Any, arm: Any) -> Iterator[tuple[str, list[Any]]]:
    """Three blocks under each way of asking."""
    from cascade_sim.cascade.cache import BlockCache
    from cascade_sim.cascade.serve import serve, shadow
    from cascade_sim.foundation import random as draws

    blocks = [sim.arrivals.block("evaluate", index, 288) for index in range(3)]
    kept = [replace(block, memo=BlockCache()) for block in blocks]
    by = [(4 * draws.uniform(1, "late", block.requests)).astype(np.int8) - 1 for block in blocks]
    yield "in time", [serve(block, arm, sim.platform) for block in blocks]
    yield (
        "late",
        [serve(block, arm, sim.platform, times) for block, times in zip(blocks, by, strict=True)],
    )
    yield "memo", [serve(block, arm, sim.platform) for block in kept]
    yield "shadow", [serve(block, shadow(arm), sim.platform) for block in blocks]
    yield "shadow, memo", [serve(block, shadow(arm), sim.platform) for block in kept]


CHAINS: dict[str, Callable[[Path], Digests]] = {
    "replayed": replayed,
    "fitted": fitted,
    "budgets": budgets,
    "late": late,
}


def run_chain(name: str) -> dict[str, Any]:
    """Make all answers of a chain now; the content its file would have."""
    from cascade_sim import SEMANTICS

    with tempfile.TemporaryDirectory() as folder:
        digests = CHAINS[name](Path(folder))
    return {"format": FORMAT, "semantics": SEMANTICS, "stack": stack(), "values": {}, "digests": digests}


def tables(folder: Path) -> Iterator[tuple[str, str]]:
    """Each table with a digest of its columns' names, kinds and values: not of how files hold them."""
    from cascade_sim.storage.tables import read_table
    from cascade_sim.storage.tables import tables as names

    for name in names(folder):
        yield name, _of_columns(read_table(folder, name))


def _of_arrays(decisions: list[Any]) -> str:
    return "".join(_of_columns(decided(decision))[:4] for decision in decisions)


def _of_columns(columns: dict[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name, values in sorted(columns.items()):
        found.update(f"{name} {values.dtype} {values.shape}".encode())
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()[:12]


def _nodes(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The parts of an answer that are results: no version, no folder."""
    yield from ((name, node) for name, node in sorted(content.items()) if name not in ("version", "run"))


def _json(path: Path) -> Any:
    return json.loads(_without_home(path.read_text()))


def _without_home(text: str) -> str:
    """The text, with the folder that the chain happened to be made in left out."""
    return re.sub(re.escape(tempfile.gettempdir()) + r"/\w+", "", text)
