"""The world fitted to a log, written: its click model in a checksummed folder, and the scenario that runs it.

And a store of what such a world brings, to be compared with the log.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.environments.clusters import Clusters, resampling_units
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.foundation.progress import Progress
from cascade_sim.logs.fit.fitted_click_model import Response, fit_response
from cascade_sim.logs.fit.parametric import exponential_mixture, yaml_text
from cascade_sim.logs.fit.trees import PRIOR, Pairs
from cascade_sim.logs.replay.fitted import FILE, FORMAT, ResampledReplay
from cascade_sim.logs.store.format import About
from cascade_sim.logs.store.store import LogStore, new_folder, write_store
from cascade_sim.storage import checksums
from cascade_sim.storage.files import storage_errors, write_file
from cascade_sim.version import SEMANTICS

HOUR = 3600.0
PRIOR_CLICKS = 20.0  # that an ad's conversion rate is drawn towards the mean by
FEWEST = 400  # requests
MIN_DELAYS = 20
WINDOW = 2_592_000.0
MAX_CODES = 250  # of a whole-numbered feature that is taken as categories
SUFFIX = "-click-model"
PREDICTIONS = ("pctr", "pre_score")  # of clicks, as further scores are
FEW_HOURS = 24
REPLICATES = 20  # of the fit, by which answers know how uncertain it is


def fit_world(
    log: Path,
    store: LogStore,
    out: Path,
    *,
    share: float = 1.0,
    seed: int = 1,
    replicates: int = REPLICATES,
    progress: Progress | None = None,
) -> Mapping[str, Any]:
    """Fit the click model of a log and write the scenario `out` with its folder; the checks of it."""
    n = int(round(share * store.n_requests))
    if n < FEWEST:
        raise UserError(
            f"{n} requests of {store.about.name} are too few to fit a world to; {FEWEST} are needed"
        )
    hours = len(np.unique(store.requests["time"][:n] // HOUR))
    if hours < FEW_HOURS:
        warnings.warn(
            f"the log has requests of {hours} hours: with so few to draw from, the world brings the same "
            "requests again and again",
            Notice, stacklevel=2,
        )  # fmt: skip
    folder = out.with_name(out.stem + SUFFIX)
    pairs, segment = pairs_of(store, n)
    units = resampling_units(store, n, "auto", seed)
    with (progress or Progress(quiet=True)).stage("fit", 1 + replicates, "fits") as bar:
        response = fit_response(
            pairs, seed, segment, unit=units.of_request, replicates=replicates, advance=bar.advance
        )
    with storage_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_response(folder, store, response, pairs, n, seed, units)
    scenario = scenario_of(store, out, log, folder.name)
    words = [
        f"# A world fitted to the log {store.about.name!r}: requests drawn in blocks of an hour, clicks by a "
        f"click model fitted to {n:,} requests.",
        f"# Needs the log, and the folder {folder.name} beside this file.",
        "# Models may learn from user, context, quality, tier, user_id, ad_id and advertiser_id.",
    ]
    write_file(out, ("\n".join(words) + "\n" + yaml_text(scenario)).encode())
    return response.checks


def pairs_of(store: LogStore, n: int) -> tuple[Pairs, np.ndarray]:
    """What the click model may see of the candidates of the first n requests, and their segments."""
    from scipy.special import logit

    known = store.about.columns["candidates"]
    further = [name for name in known if name.startswith(("score.", "feature."))]
    wanted = ["ad", "slot", "click", *(c for c in ("pctr", "pcvr", "pre_score") if c in known), *further]
    columns = store.candidates(0, n, wanted)
    request = np.repeat(np.arange(n), np.diff(store.first[: n + 1]))

    def of_request(name: str) -> np.ndarray:
        return store.requests[name][:n][request]

    numbers: dict[str, np.ndarray] = {"hour": of_request("time") / HOUR % 24}
    categories: dict[str, np.ndarray] = {}
    for name in wanted[3:]:
        values = columns[name]
        if values.dtype.kind == "i" and len(np.unique(values)) <= MAX_CODES:
            categories[name] = np.unique(values, return_inverse=True)[1]
        elif name in ("pctr", "pcvr") or name.startswith("score."):
            numbers[name] = logit(np.clip(values.astype(np.float64), 1e-9, 1 - 1e-9))
        else:
            numbers[name] = values.astype(np.float64)
    for name in store.about.columns["requests"]:
        if name.startswith("feature."):
            numbers[f"request {name}"] = of_request(name).astype(np.float64)
    ids = {"ad": columns["ad"], "advertiser": store.advertiser[columns["ad"]]}
    user, segment = of_request("user"), of_request("segment")
    if store.n_users > 1:
        ids["user"] = user
    for name in ("segment", "placement"):
        codes = of_request(name)
        if len(np.unique(codes)) > 1:
            categories[name] = codes
            together = codes.astype(np.int64) * store.n_ads + columns["ad"]
            found, pair = np.unique(np.where(codes >= 0, together, -1), return_inverse=True)
            ids[f"{name} and ad"] = pair - (found[0] < 0)  # -1 stays the code of unknown ones
    steady = _with_means(numbers, {"request": request, **ids})
    return Pairs(request, columns["slot"], columns["click"], numbers, ids, categories, steady), segment


def _with_means(numbers: dict[str, np.ndarray], groups: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Adds what each prediction says on average of a request, an ad and so on; the numbers a line may take.

    Over all candidates, shown or not: what a single prediction has of noise is not in its mean.
    """
    predictions = [name for name in numbers if name in PREDICTIONS or name.startswith("score.")]
    steady = [name for name in numbers if name != "hour"]
    for name in predictions:
        for of, codes in groups.items():
            codes = codes + 1  # the first is for unknown ones
            known = np.isfinite(numbers[name])
            total = np.bincount(codes, np.where(known, numbers[name], 0.0))
            mean = total / np.maximum(np.bincount(codes, known), 1)
            numbers[f"{name} of the {of}"] = mean[codes]
            steady.append(f"{name} of the {of}")
    return tuple(steady)


def write_response(
    folder: Path, store: LogStore, response: Response, pairs: Pairs, n: int, seed: int, units: Clusters
) -> None:
    """The checksummed folder: columns as plain .npy, and fitted.json with their digests."""
    from scipy.special import logit

    columns = store.candidates(0, n, ("click", "conversion"))
    delays = _delays(store, n)
    logits = logit(np.clip(response.ctr, 1e-9, 1 - 1e-9))
    context = np.bincount(pairs.request, logits, n) / np.maximum(np.bincount(pairs.request, minlength=n), 1)
    tables = {
        "ctr": response.ctr.astype(np.float32),
        "cvr": _conversion_rates(columns, pairs.ids["ad"], store.n_ads),
        "user": np.append(
            _standard(_rates(pairs, store.requests["user"][:n][pairs.request], store.n_users)), 0.0
        ),
        "quality": _standard(_rates(pairs, pairs.ids["ad"], store.n_ads)),
        "tier": _standard(_log_bids(store, n, pairs.ids["ad"])),
        "context": _standard(context).astype(np.float32),
    }
    if response.replicates:
        tables["moved"] = np.empty((len(logits), len(response.replicates)), np.float16)
        for i, replicate in enumerate(response.replicates):
            again = np.clip(replicate.ctr.astype(np.float64), 1e-9, 1 - 1e-9)
            tables["moved"][:, i] = logit(again) - logits
        tables["count"] = np.stack([replicate.count for replicate in response.replicates], axis=1)
    with new_folder(folder) as temp:
        for name, values in tables.items():
            np.save(temp / f"{name}.npy", np.ascontiguousarray(values), allow_pickle=False)
        about = {
            "format": FORMAT, "semantics": SEMANTICS, "log": log_seal(store), "name": store.about.name,
            "requests": n, "seed": seed, "slot_effects": _of_places(response.slot_effects, store),
            "delay": delays, "checks": response.checks,
            "replicates": {
                "units": units.as_json(),
                "slot_effects": [_of_places(made.slot_effects, store) for made in response.replicates],
                "share": response.replicates[0].share if response.replicates else 1.0,
            },
            "features": [*pairs.numbers, *pairs.ids, *pairs.categories],
            "files": {name: checksums.file_digest(temp / f"{name}.npy") for name in tables},
        }  # fmt: skip
        import json

        text = json.dumps(checksums.with_checksum(about), indent=1, sort_keys=True, allow_nan=False)
        (temp / FILE).write_text(text + "\n", encoding="utf-8")


def _of_places(effects: np.ndarray, store: LogStore) -> list[float]:
    """Effects of all places that the log's pages have: where no ad was ever seen, that of the last seen."""
    more = max(store.about.slots - len(effects), 0)
    return [float(x) for x in np.append(effects, np.full(more, effects[-1]))]


def log_seal(store: LogStore) -> str:
    from cascade_sim.storage.folder import read_object

    return str(read_object(store.path / "log.json")["seal"])


def _rates(pairs: Pairs, codes: np.ndarray, size: int) -> np.ndarray:
    """Logits of smoothed click rates by code.  [size]"""
    from scipy.special import logit

    learned = pairs.is_learned & (codes >= 0)
    clicks = np.bincount(codes[learned], pairs.click[learned] == 1, size)
    shown = np.bincount(codes[learned], minlength=size)
    mean = max(clicks.sum(), 1.0) / max(shown.sum(), 2.0)
    return logit((clicks + PRIOR * mean) / (shown + PRIOR))


def _standard(values: np.ndarray) -> np.ndarray:
    spread = float(np.std(values)) if len(values) else 0.0
    return (values - np.mean(values)) / spread if spread > 0 else np.zeros(len(values))


def _conversion_rates(columns: Mapping[str, np.ndarray], ad: np.ndarray, size: int) -> np.ndarray:
    """Conversions per click of each ad, drawn towards the mean.  [A]; 0 where none are logged"""
    known = (columns["click"] == 1) & (columns["conversion"] >= 0)
    bought = np.bincount(ad[known], columns["conversion"][known] == 1, size)
    clicks = np.bincount(ad[known], minlength=size)
    mean = bought.sum() / max(clicks.sum(), 1)
    return (bought + PRIOR_CLICKS * mean) / (clicks + PRIOR_CLICKS)


def _log_bids(store: LogStore, n: int, ad: np.ndarray) -> np.ndarray:
    """Mean log-bid of each ad; the mean of all where it has none.  [A]"""
    bids = store.candidates(0, n, ("bid",))["bid"]
    known = np.isfinite(bids) & (bids > 0)
    if not known.any():
        return np.zeros(store.n_ads)
    logs = np.log(bids[known])
    count = np.bincount(ad[known], minlength=store.n_ads)
    total = np.bincount(ad[known], logs, store.n_ads)
    return np.where(count > 0, total / np.maximum(count, 1), logs.mean())


def _delays(store: LogStore, n: int) -> dict[str, Any] | None:
    if not store.has("conversion_delay"):
        return None
    delay = store.candidates(0, n, ("conversion_delay",))["conversion_delay"].astype(np.float64)
    delay = delay[np.isfinite(delay) & (delay > 0)]
    if len(delay) < MIN_DELAYS:
        return None
    means, weights = exponential_mixture(delay)
    return {"means": means, "weights": weights, "window": float(max(2 * delay.max(), WINDOW))}


def scenario_of(store: LogStore, out: Path, log: Path, response: str) -> dict[str, Any]:
    """The scenario of the fitted world: that of the replay, with the click model in it."""
    from cascade_sim.logs.audit.study import completed
    from cascade_sim.logs.store.scenario import logged_scenario

    data = logged_scenario(store.about.changed(rule=completed(store)), store)
    try:
        place = Path(os.path.relpath(log, out.parent)).as_posix()
    except ValueError:  # another drive
        place = log.resolve().as_posix()
    name = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "-" for sign in out.stem.lower()
    )
    return {
        **data,
        "name": name or "fitted",
        "description": f"A world fitted to the log {store.about.name}.",
        "world": {"replay": {"log": place, "fitted": {"click_model": response, "block": "hour"}}},
    }


def named_cells(cells: Sequence[Mapping[str, Any]], store: LogStore) -> list[dict[str, Any]]:
    """Checks with segments by the log's own names; slots and tenths count from 1."""

    def name(cell: Mapping[str, Any]) -> str | None:
        if cell["which"] is None:
            return None
        return store.name("segments", cell["which"]) if cell["of"] == "segment" else str(cell["which"] + 1)

    return [{**cell, "which": name(cell)} for cell in cells]


def checks_text(checks: Mapping[str, Any]) -> str:
    """Fit of the click model to the log's clicks, in lines; its cells are `named_cells`."""
    cells = checks["cells"]
    off = [cell for cell in cells if cell["is_off"]]
    lines = [
        f"log loss {checks['logloss']:.5f} on requests that were not learned from; "
        f"{checks['logloss_of_mean']:.5f} with one CTR for all",
        f"clicks over predicted clicks: {len(cells) - len(off)} of {len(cells)} checks (all, slots, "
        "segments, tenths) are within chance",
    ]
    lines += [
        f"  off: {cell['of']}{'' if cell['which'] is None else ' ' + cell['which']} "
        f"{cell['ratio']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"
        for cell in off
    ]
    return "\n".join(lines)


def sampled_store(sim: Any, folder: Path, requests: int, arm: str | None = None) -> LogStore:
    """What a fitted world brings in its evaluation, served by an arm, as a store in a folder.

    Ads, segments and so on have the log's own names, so that both can be compared with each other.
    """
    from cascade_sim.environments.fitted import Fitted
    from cascade_sim.scenario.schema import resolved_arms

    replay = Fitted.of(sim.environment).replay
    log = replay.store
    spec = resolved_arms(sim.scenario)[arm or sim.scenario.report.baseline]
    served = sim.arm(arm or "sampled", spec)
    size = sim.scenario.traffic.block
    parts = [
        _block_columns(sim, replay, sim.arrivals.block("evaluate", i, requests), served)
        for i in range(-(-requests // size))
    ]

    def joined(table: str) -> dict[str, np.ndarray]:
        return {key: np.concatenate([part[table][key] for part in parts]) for key in parts[0][table]}

    rows, candidates = joined("requests"), joined("candidates")
    order = np.argsort(rows["time"], kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        raise AssertionError("the times of a world never fall")
    counts = rows.pop("candidates")
    rows["first"] = np.concatenate([[0], np.cumsum(counts)])
    names = {
        kind: [log.name(kind, code) for code in range(getattr(log.about.counts, kind))]
        for kind in ("ads", "advertisers", "users", "segments", "placements")
    }
    about = About(
        f"{log.about.name}, fitted", log.about.starts, log.about.zone, log.about.currency, log.about.charging,
        level=log.about.level, rule=log.about.rule,
    )  # fmt: skip
    return write_store(folder, about, rows, candidates, names, advertiser=log.advertiser)


def _block_columns(
    sim: Any, replay: ResampledReplay, block: Any, arm: Any
) -> dict[str, dict[str, np.ndarray]]:
    from cascade_sim.agents.users import happens
    from cascade_sim.cascade.outcome import conversion_delays, exposure_draws

    log = replay.store
    decision = sim.serve(block, arm)
    happened = sim.environment.outcome(block, decision)
    ids, won = decision.retrieved, decision.win_set
    is_there = ids >= 0
    columns: dict[str, np.ndarray] = {
        "ad": ids, "slot": np.full(ids.shape, -1, np.int16), "price_micros": np.full(ids.shape, -1, np.int64),
        "click": np.full(ids.shape, -1, np.int8), "conversion": np.full(ids.shape, -1, np.int8),
    }  # fmt: skip
    kept = [
        name
        for name in log.about.columns["candidates"]
        if name in EMPIRICAL or name.startswith(("score.", "feature."))
    ]
    for name, values in zip(kept, replay.several(block.requests, ids, dict.fromkeys(kept, 0)), strict=True):
        columns[name] = values
    row, slot = np.nonzero(won >= 0)
    at = _place(ids, row, won[row, slot])
    columns["slot"][row, at] = slot
    columns["price_micros"][row, at] = decision.cpc_micros[row, slot]
    columns["click"][row, at] = happened.clicks[row, slot]
    columns["conversion"][row, at] = happened.conversions[row, slot]
    if log.has("exposed"):
        columns["exposed"] = np.full(ids.shape, -1, np.int8)
        chance = sim.environment.seen(block, won.shape[1], "impression")
        is_seen = happens(chance, exposure_draws(block, won.shape[1], sim.seed))
        columns["exposed"][row, at] = (is_seen | happened.clicks)[row, slot]
    if log.has("conversion_delay") and sim.delays is not None:
        delay = np.full(ids.shape, np.nan, np.float32)
        bought = happened.conversions[row, slot]
        own = conversion_delays(sim.seed, block.requests[row[bought]], won[row, slot][bought], sim.delays)
        delay[row[bought], at[bought]] = np.where(np.isfinite(own), own, np.nan)
        columns["conversion_delay"] = delay
    ranked = np.zeros(ids.shape, bool)
    there = decision.competitive_set
    rows, places = np.nonzero(there >= 0)
    ranked[rows, _place(ids, rows, there[rows, places])] = True
    columns["stage"] = np.where(columns["slot"] >= 0, 2, ranked).astype(np.int8)
    logged = replay.rows(block.requests)
    requests = {
        name: log.requests[name][logged]
        for name in log.about.columns["requests"]
        if name not in ("first", "time")
    }
    requests |= {"time": block.times, "candidates": is_there.sum(1)}
    return {"requests": requests, "candidates": {key: values[is_there] for key, values in columns.items()}}


EMPIRICAL = ("bid", "init_bid", "pctr", "pcvr", "pre_score")


def _place(ids: np.ndarray, row: np.ndarray, ads: np.ndarray) -> np.ndarray:
    """The columns of ads in the rows of a table of ascending ids, -1 at the end."""
    wide = np.where(ids >= 0, ids, np.iinfo(np.int32).max).astype(np.int64)
    span = np.int64(np.iinfo(np.int32).max) + 1
    flat = (np.arange(len(ids))[:, None] * span + wide).ravel()
    found = np.searchsorted(flat, row * span + ads)
    return found - row * ids.shape[1]
