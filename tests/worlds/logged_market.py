"""An imported market made from a study: what one of its arms served, as a log would have it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim import SEMANTICS
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import bids, score
from cascade_sim.logged.format import About, Rule
from cascade_sim.logged.scenario import logged_scenario
from cascade_sim.logged.store import LoggedStore, write_store
from cascade_sim.questions.reopen import evaluation_blocks
from cascade_sim.storage import seals
from cascade_sim.storage.folder import json_text


def logged_columns(
    sim: Any, arm: Any, n_requests: int, level: str = "pre_ranking", extra: Any = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Requests and candidates that the arm served, as `write_store` takes them.

    `extra(block, ids)` gives further columns {name: [R, m]} of the candidates.
    """
    requests: dict[str, list[np.ndarray]] = {}
    candidates: dict[str, list[np.ndarray]] = {}
    first = sim.arrivals.first_request("evaluate")
    for block, n in evaluation_blocks(sim, n_requests):
        decision = sim.serve(block, arm)
        result = outcome(block, decision, sim.truth, sim.world.slot_effects, sim.seed, arm.charging)
        ids = decision.pre_ranking_set if level == "pre_ranking" else decision.competitive_set
        if level == "winners":
            ids = np.sort(np.where(decision.win_set >= 0, decision.win_set, 2**31 - 1), axis=1)
            ids = np.where(ids == 2**31 - 1, -1, ids).astype(np.int32)
        is_in = (ids >= 0) & (np.arange(len(ids)) < n)[:, None]
        shown = _shown(ids, decision, result)
        ranked = np.zeros(ids.shape, bool)
        for r in range(len(ids)):
            ranked[r] = np.isin(ids[r], decision.competitive_set[r])
        rank = score(block, ids, arm.ranking, arm, sim.platform)
        columns = {
            "ad": ids,
            "bid": rank.bid,
            "init_bid": bids(block, ids, replace(arm.ranking, bid="init"), arm, sim.platform),
            "pctr": rank.prediction,
            "stage": np.where(shown["slot"] >= 0, 2, np.where(ranked, 1, 0)).astype(np.int8),
            **shown,
            **({} if extra is None else extra(block, ids)),
        }  # fmt: skip
        if level == "pre_ranking":
            columns["pre_score"] = decision.pre_prediction
        for name, values in columns.items():
            candidates.setdefault(name, []).append(values[is_in])
        at = slice(0, n)
        for name, values in {
            "time": block.times[at],
            "user": block.users[at],
            "slots": np.full(n, arm.slots, np.int16),
            "reserve": np.full(n, arm.reserve_cpc),
            "count": is_in[at].sum(axis=1),
            "request": block.requests[at] - first,
        }.items():
            requests.setdefault(name, []).append(values)
    rows = {name: np.concatenate(parts) for name, parts in requests.items()}
    rows["first"] = np.concatenate([[0], np.cumsum(rows.pop("count"))]).astype(np.int64)
    del rows["request"]
    return rows, {name: np.concatenate(parts) for name, parts in candidates.items()}


def _shown(ids: np.ndarray, decision: Any, result: Any) -> dict[str, np.ndarray]:
    """What became of the candidates on the page, -1 for those who are not on it.  [R, m] each"""
    kinds = {"slot": np.int16, "price_micros": np.int64, "click": np.int8, "conversion": np.int8}
    columns = {name: np.full(ids.shape, -1, kind) for name, kind in kinds.items()}
    for k in range(decision.win_set.shape[1]):
        row, column = np.nonzero((ids == decision.win_set[:, [k]]) & (ids >= 0))
        columns["slot"][row, column] = k
        columns["price_micros"][row, column] = decision.cpc_micros[row, k]
        columns["click"][row, column] = result.clicks[row, k]
        columns["conversion"][row, column] = result.conversions[row, k]
    return columns


def made_market(
    folder: Path,
    requests: dict[str, np.ndarray],
    candidates: dict[str, np.ndarray],
    about: About,
    *,
    advertiser: Any = None,
    names: Any = None,
    changes: Any = None,
    budgets: Any = None,
) -> Path:
    """The folder of an imported market, with its manifest and the scenario that replays it."""
    store = write_store(
        folder, about, requests, candidates, names or {}, advertiser=advertiser, budgets=budgets
    )
    write_market(folder, store, changes)
    return folder


def write_market(folder: Path, store: LoggedStore, changes: Any = None) -> None:
    """Manifest and scenario.yaml of a store."""
    from ruamel.yaml import YAML

    scenario = logged_scenario(store.about, store)
    if changes is not None:
        changes(scenario)
    with (folder / "scenario.yaml").open("w") as file:
        YAML(typ="safe").dump(scenario, file)
    text = (folder / "scenario.yaml").read_bytes()
    manifest = {
        "kind": "imported market",
        "status": "complete",
        "semantics": SEMANTICS,
        "scenario_hash": hashlib.sha256(text).hexdigest()[:16],
        "name": store.about.name,
        seals.SEALS: {"scenario.yaml": seals.digest(text)},
    }
    (folder / "manifest.json").write_text(json_text(seals.with_seal(manifest)))


def market_of(
    sim: Any, arm: Any, folder: Path, n_requests: int, level: str = "pre_ranking", **more: Any
) -> Path:
    """The market that an arm of a study would have logged."""
    requests, candidates = logged_columns(sim, arm, n_requests, level, more.pop("extra", None))
    about = about_arm(sim, arm, level, **more.pop("about", {}))
    return made_market(folder, requests, candidates, about, advertiser=sim.world.advertiser, **more)


def about_arm(sim: Any, arm: Any, level: str, **more: Any) -> About:
    """What the rule of an arm is, as a mapping would declare it."""
    squashing = float(arm.ranking.fusion.pctr)
    rule = Rule(arm.pricing, squashing, arm.reserve_cpc, arm.score_floor)
    given = {
        "name": "exported",
        "starts": "2026-11-02T00:00:00+00:00",
        "level": level,
        "rule": rule,
        "charging": arm.charging,
        "pre_score": "prediction" if level == "pre_ranking" else None,
    }
    return About(**{**given, **more})
