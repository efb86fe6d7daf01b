"""An imported log made from a study: what one of its arms served, as a log would have it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim import SEMANTICS
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import bids, score
from cascade_sim.diagnostics.reopen import evaluation_blocks
from cascade_sim.logs.store.format import About, Rule
from cascade_sim.logs.store.scenario import logged_scenario
from cascade_sim.logs.store.store import LogStore, write_store
from cascade_sim.storage import checksums
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
    so_far = 0.0  # blocks of a world without a clock begin at 0, a log goes on
    for block, n in evaluation_blocks(sim, n_requests):
        decision = sim.serve(block, arm)
        result = outcome(
            block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed, arm.charging
        )
        ids = decision.retrieved if level == "pre_ranking" else decision.competitive_set
        if level == "winners":
            ids = np.sort(np.where(decision.win_set >= 0, decision.win_set, 2**31 - 1), axis=1)
            ids = np.where(ids == 2**31 - 1, -1, ids).astype(np.int32)
        is_in = (ids >= 0) & (np.arange(len(ids)) < n)[:, None]
        shown = _shown(ids, decision, result)
        ranked = np.zeros(ids.shape, bool)
        for r in range(len(ids)):
            ranked[r] = np.isin(ids[r], decision.competitive_set[r])
        rank = score(block, ids, arm.last, arm, sim.platform)
        columns = {
            "ad": ids,
            "bid": rank.bid,
            "init_bid": bids(block, ids, replace(arm.last, bid="init"), arm, sim.platform),
            "pctr": rank.prediction,
            "stage": np.where(shown["slot"] >= 0, 2, np.where(ranked, 1, 0)).astype(np.int8),
            **shown,
            **({} if extra is None else extra(block, ids)),
        }  # fmt: skip
        if level == "pre_ranking":
            columns["pre_score"] = decision.passes[0].scores.prediction
        for name, values in columns.items():
            candidates.setdefault(name, []).append(values[is_in])
        at = slice(0, n)
        times = block.times + (0.0 if block.times[0] >= so_far else so_far)
        so_far = float(times[-1])
        for name, values in {
            "time": times[at],
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
    """The folder of an imported log, with its manifest and the scenario that replays it."""
    store = write_store(
        folder, about, requests, candidates, names or {}, advertiser=advertiser, budgets=budgets
    )
    write_market(folder, store, changes)
    return folder


def write_market(folder: Path, store: LogStore, changes: Any = None) -> None:
    """Manifest and scenario.yaml of a store."""
    from ruamel.yaml import YAML

    scenario = logged_scenario(store.about, store)
    if changes is not None:
        changes(scenario)
    with (folder / "scenario.yaml").open("w") as file:
        YAML(typ="safe").dump(scenario, file)
    text = (folder / "scenario.yaml").read_bytes()
    manifest = {
        "kind": "imported log",
        "status": "complete",
        "semantics": SEMANTICS,
        "scenario_hash": hashlib.sha256(text).hexdigest()[:16],
        "name": store.about.name,
        checksums.SEALS: {"scenario.yaml": checksums.digest(text)},
    }
    (folder / "manifest.json").write_text(json_text(checksums.with_checksum(manifest)))


def market_of(
    sim: Any, arm: Any, folder: Path, n_requests: int, level: str = "pre_ranking", **more: Any
) -> Path:
    """The market that an arm of a study would have logged."""
    requests, candidates = logged_columns(sim, arm, n_requests, level, more.pop("extra", None))
    about = about_arm(sim, arm, level, **more.pop("about", {}))
    return made_market(folder, requests, candidates, about, advertiser=sim.world.advertiser, **more)


def about_arm(sim: Any, arm: Any, level: str, **more: Any) -> About:
    """What the rule of an arm is, as a mapping would declare it."""
    squashing = float(arm.last.fusion.pctr)
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


# Three days of auctions whose advertisers have budgets, served in plain Python, and the market they leave.
ADS, OWNERS, SLOTS = 12, 6, 2
HOUR, MICROS = 3600.0, 1_000_000
ZONE, STARTS = "Europe/Berlin", "2026-10-24T00:00:00+02:00"  # the second day has 25 hours
MIDNIGHTS = (0.0, 24 * HOUR, 49 * HOUR, 73 * HOUR)
EVERY_DAY = {0: 40.0, 1: 15.0, 2: 3.0}  # budgets by advertiser
OF_DAY_1 = {1: 70.0, 3: 0.0}


@dataclass(frozen=True)
class Auctions:
    """Requests [R] with candidates [R, n]: times, ads, bids, and who would click."""

    times: np.ndarray
    ads: np.ndarray
    bids: np.ndarray
    clicks: np.ndarray


def auctions(seed: int, n: int = 900, candidates: int = 5) -> Auctions:
    rng = np.random.default_rng(seed)
    ads = np.sort(np.argsort(rng.random((n, ADS)), axis=1)[:, :candidates], axis=1)
    bids = np.round(np.exp(rng.normal(0, 0.5, ads.shape)), 3)
    return Auctions(np.sort(rng.random(n)) * MIDNIGHTS[3], ads, bids, rng.random(ads.shape) < 0.3)


def budgets_of(day: int) -> dict[int, int]:
    told = {**EVERY_DAY, **(OF_DAY_1 if day == 1 else {})}
    return {who: round(amount * MICROS) for who, amount in told.items()}


def plainly_served(made: Auctions, charging: str, reserve: float = 0.0):
    """One auction after the other in plain Python: slots, prices and who took part [R, n], and the money."""
    slot, price = np.full(made.ads.shape, -1), np.full(made.ads.shape, -1, np.int64)
    takes_part, ran_out, revenue, day, left = np.ones(made.ads.shape, bool), set(), 0, -1, {}
    for r, time in enumerate(made.times):
        today = max(d for d, midnight in enumerate(MIDNIGHTS) if time >= midnight)
        if today != day:
            day, left = today, budgets_of(today)
        owner = made.ads[r] // (ADS // OWNERS)
        takes_part[r] = [left.get(who, 1) > 0 for who in owner]
        order = sorted(
            (j for j in range(made.ads.shape[1]) if takes_part[r, j] and made.bids[r, j] >= reserve),
            key=lambda j: (-made.bids[r, j], made.ads[r, j]),
        )
        for k, j in enumerate(order[:SLOTS]):
            below = made.bids[r, order[k + 1]] if k + 1 < len(order) else 0.0
            slot[r, j], price[r, j] = k, round(max(below, reserve) * MICROS)
        for j in order[:SLOTS]:
            if charging == "click" and not made.clicks[r, j]:
                continue
            paid = min(price[r, j], left.get(owner[j], price[r, j]))
            revenue += paid
            if owner[j] in left:
                left[owner[j]] -= paid
                if left[owner[j]] <= 0 and paid:
                    ran_out.add((int(owner[j]), day))
    return slot, price, takes_part, ran_out, revenue / MICROS


def budget_market(folder, made: Auctions, charging: str, *, with_those_out: bool, changes=None):
    """The market that logged these auctions; `with_those_out`: who had run out is still a candidate."""
    slot, price, takes_part, ran_out, revenue = plainly_served(made, charging)
    kept = np.ones(slot.shape, bool) if with_those_out else takes_part
    shown = slot >= 0
    requests = {
        "time": made.times,
        "slots": np.full(len(slot), SLOTS),
        "reserve": np.zeros(len(slot)),
        "first": np.concatenate([[0], np.cumsum(kept.sum(axis=1))]),
    }
    candidates = {
        "ad": made.ads, "bid": made.bids, "slot": slot, "price_micros": price,
        "click": np.where(shown, made.clicks, -1),
        "pctr": np.full(slot.shape, 0.3),
        "stage": np.where(shown, 2, 1),
    }  # fmt: skip
    about = About(
        "three days", STARTS, ZONE, level="bids", charging=charging,
        rule=Rule("gsp", 0.0, 0.0, 0.0),
    )  # fmt: skip
    rows = [(who, -1, amount) for who, amount in EVERY_DAY.items()]
    rows += [(who, 1, amount) for who, amount in OF_DAY_1.items()]
    budgets = {
        "advertiser": [row[0] for row in rows],
        "day": [row[1] for row in rows],
        "budget_micros": [round(row[2] * MICROS) for row in rows],
    }
    made_market(
        folder, requests, {name: values[kept] for name, values in candidates.items()}, about,
        advertiser=np.arange(ADS) // (ADS // OWNERS), budgets=budgets, changes=changes,
    )  # fmt: skip
    return ran_out, revenue
