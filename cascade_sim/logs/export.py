"""A finished run as a log that others could have: its auctions as Parquet tables, and the mapping that
imports them.

    requests.parquet     arrival times and users
    candidates.parquet   the whole pre-ranking set: bids, pCTR of the ranker, prediction of pre-ranking, stage
    outcomes.parquet     what was shown, its price, click and conversion
    propensities.parquet of randomised pages: how likely each choice was
    mapping.yaml         for `import-logs`, with the digests of the tables

The evaluation is served again, block by block, and compared with the run's own log while it is written.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cascade_sim.agents.users import happens
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.outcome import exposure_draws
from cascade_sim.cascade.scorers import is_probability
from cascade_sim.cascade.serve import Block, Decision, Stage, score
from cascade_sim.diagnostics.reopen import ReopenedRun, Trust, reopen
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.foundation.progress import Progress
from cascade_sim.logs.importing.market import MAPPING, yaml_text
from cascade_sim.logs.store.format import RANKED, RETRIEVED, SHOWN
from cascade_sim.logs.store.store import new_folder
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.storage.files import opened, storage_errors
from cascade_sim.storage.tables import iterate_table, tables

EVALUATE, SLATES = "evaluate", "slates"
PHASES = (EVALUATE, SLATES)
STARTS = "2026-01-01T00:00:00+00:00"  # simulated time has no date
LOGGED = ("request", "slot", "ad", "cpc_micros", "click", "conversion")
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    arm: str
    requests: int
    candidates: int
    shown: int
    is_checked: bool  # against the run's own log

    @property
    def mapping(self) -> Path:
        return self.folder / MAPPING

    def text(self) -> str:
        """What was written, and what to do with it."""
        checked = "as the run logged them" if self.is_checked else "not checked: the log is gone"
        return (
            f"{self.arm}: {self.requests:,} requests, {self.candidates:,} candidates, {self.shown:,} shown"
            f" ({checked})\nnext: cascade_sim import-logs {self.mapping} --out LOG"
        )


def export_logs(
    run: str | Path,
    out: str | Path,
    *,
    arm: str | None = None,
    phase: str = EVALUATE,
    progress: Progress | None = None,
    trust: Trust = False,
) -> Exported:
    """Write the auctions of a finished run, as its arm served them (default: the baseline).

    `phase` "slates": the randomised pages of a run with off_policy.slates, with their propensities. UserError
    where what is served again is not what the run logged.
    """
    opened = reopen(Path(run), trust)
    work = _Export(opened, arm, phase)
    progress = progress or Progress(quiet=True)
    with new_folder(out) as temp, storage_errors(Path(out)):
        counts = work.write(temp, progress)
        digests = {file.name: _sha256(file) for file in sorted(temp.glob("*.parquet"))}
        text = yaml_text({**work.mapping(), "sha256": digests})
        (temp / MAPPING).write_text(text, encoding="utf-8")
    return Exported(Path(out), work.arm.name, **counts, is_checked=work.log is not None)


class _Export:
    """One export: the arm, and how its requests become rows."""

    def __init__(self, opened: ReopenedRun, arm: str | None, phase: str) -> None:
        scenario = opened.scenario
        self.opened, self.phase, self.sim = opened, phase, opened.sim
        self.arm = opened.arm(arm)
        self.spec = resolved_arms(scenario)[self.arm.name]
        if self.spec.pre_ranking.earlier:
            n = len(self.arm.stages) - 1
            raise UserError(
                f"{opened.path}: arm {self.arm.name!r} has {n} steps of pre-ranking, and a log has the "
                "scores of one; export a run whose cascade has one step"
            )
        self.total = scenario.phases.evaluate
        table = f"{EVALUATE}-{self.arm.name}"
        if phase == SLATES:
            if scenario.off_policy is None or scenario.off_policy.slates is None:
                raise UserError(f"{opened.path}: no page of this run was randomised (off_policy.slates)")
            if self.arm.name != scenario.report.baseline:
                raise UserError(
                    f"--arm: randomised pages are served by the baseline, {scenario.report.baseline}"
                )
            self.total, table = scenario.off_policy.slates.requests, SLATES
        elif phase != EVALUATE:
            raise UserError(f"--phase must be one of {', '.join(PHASES)}, found {phase!r}")
        self.log = _LogRows(opened.path, table) if table in tables(opened.path) else None
        if self.log is None and phase == SLATES:
            raise UserError(
                f"{opened.path} has no table {table!r}: its logs are gone; run the scenario again"
            )
        if self.log is None:
            words = f"{opened.path} has no log of what arm {self.arm.name!r} showed to compare it with"
            warnings.warn(words, Notice, stacklevel=3)
        self.pre_score = "prediction" if self._is_plain(self.arm.stages[-2]) else "score"
        self.further = self._further_rankers()

    @property
    def has_exposure(self) -> bool:
        """Whether impressions are charged, as far as they are seen."""
        return self.arm.charging == "impression" and self.phase != SLATES

    @property
    def squashing(self) -> float:
        """The exponent of the pCTR in the scores of the auction."""
        fusion = self.arm.last.fusion
        return self.spec.auction.squashing if fusion.is_bid_alone else float(fusion.pctr)

    def _is_plain(self, stage: Stage) -> bool:
        """Whether its score is bid * prediction ^ squashing, which a replay can form again."""
        is_same = stage.fusion == Fusion(pctr=self.squashing) and is_probability(stage.scorer)
        return is_same and stage.bid in ("init", "opt")

    def _further_rankers(self) -> dict[str, Stage]:
        """Ranking models of other arms that choose from the same pre-ranking sets."""
        found: dict[str, Stage] = {}
        for name, spec in resolved_arms(self.opened.scenario).items():
            model = spec.ranking.model
            if model == self.spec.ranking.model or model in found or spec.retrieval != self.spec.retrieval:
                continue
            other = self.opened.arm(name)
            if is_probability(other.last.scorer):
                found[model] = other.last
        return found

    def write(self, folder: Path, progress: Progress) -> dict[str, int]:
        """The tables; how many rows they have."""
        counts = {"requests": 0, "candidates": 0, "shown": 0}
        with ExitStack() as stack, progress.stage("export", self.total) as bar:
            writers: dict[str, pq.ParquetWriter] = {}
            for rows in self._blocks():
                for name, columns in rows.items():
                    table = pa.table({key: pa.array(values) for key, values in columns.items()})
                    if name not in writers:
                        file = folder / f"{name}.parquet"
                        writers[name] = stack.enter_context(
                            pq.ParquetWriter(file, table.schema, compression="zstd", write_page_checksum=True)
                        )
                    writers[name].write_table(table)
                counts["requests"] += len(rows["requests"]["request"])
                counts["candidates"] += len(rows["candidates"]["request"])
                counts["shown"] += len(rows["outcomes"]["request"])
                bar.advance(len(rows["requests"]["request"]))
        if self.log is not None:
            self.log.require_end()
        return counts

    def _blocks(self) -> Iterator[dict[str, Columns]]:
        done = index = 0
        start = None if self.sim.world.is_timed else 0.0  # else a block begins where the one before it ends
        while done < self.total:
            block = self.sim.arrivals.block(self.phase, index, self.total, start)
            yield self._rows(replace(block, memo=BlockCache()))
            start = None if start is None else float(block.times[-1])
            done += len(block)
            index += 1

    def _rows(self, block: Block) -> dict[str, Columns]:
        sim, arm = self.sim, self.arm
        decision = sim.serve(block, arm)
        logged = None if self.log is None else self.log.take(block.requests)
        shown = self._shown(block, decision)
        if self.phase == SLATES:
            assert logged is not None
            shown = logged
        elif logged is not None:
            self._require_same(shown, logged)
        n = len(block)
        rows = {
            "requests": {
                "request": block.requests,
                "time": block.times,
                "user": block.users,
                "context": block.context,
                "slots": np.full(n, arm.slots, np.int16),
                "reserve": np.full(n, arm.reserve_cpc),
            },
            "candidates": self._candidates(block, decision, shown),
            "outcomes": {
                "request": shown["request"],
                "ad": shown["ad"],
                "slot": shown["slot"],
                "price_micros": shown["cpc_micros"],
                "click": shown["click"].astype(np.int8),
                "conversion": shown["conversion"].astype(np.int8),
                **({"exposed": shown["exposed"].astype(np.int8)} if self.has_exposure else {}),
            },
        }
        if self.phase == SLATES:
            rows["propensities"] = {name: shown[name] for name in ("request", "ad", "propensity")}
        return rows

    def _shown(self, block: Block, decision: Decision) -> Columns:
        """One row per shown ad, in request and slot order."""
        sim = self.sim
        result = sim.environment.outcome(block, decision, self.arm.charging)
        row, slot = np.nonzero(decision.win_set >= 0)
        exposed = {}
        if self.has_exposure:
            assert result.impressions is not None
            is_seen = happens(result.impressions, exposure_draws(block, decision.win_set.shape[1], sim.seed))
            exposed = {"exposed": (is_seen | result.clicks)[row, slot]}  # no click without an exposure
        return {
            **exposed,
            "request": block.requests[row],
            "slot": slot.astype(np.int16),
            "ad": decision.win_set[row, slot],
            "cpc_micros": decision.cpc_micros[row, slot],
            "click": result.clicks[row, slot],
            "conversion": result.conversions[row, slot],
        }

    def _require_same(self, shown: Columns, logged: Columns) -> None:
        for name in LOGGED:
            if len(shown[name]) != len(logged[name]) or np.any(shown[name] != logged[name]):
                n = min(len(shown[name]), len(logged[name]))
                at = np.flatnonzero(shown[name][:n] != logged[name][:n])
                request = int(shown["request"][at[0]]) if len(at) else int(shown["request"][-1])
                raise UserError(
                    f"{self.opened.path}: request {request}, arm {self.arm.name!r}: {name} is not what the "
                    "run logged: code, packages or processor have changed since; run the scenario again"
                )

    def _candidates(self, block: Block, decision: Decision, shown: Columns) -> Columns:
        sim, arm, chose, ids = self.sim, self.arm, decision.passes[0], decision.retrieved
        whole = score(block, ids, arm.last, arm, sim.platform)
        pctr, bid = whole.prediction.copy(), whole.bid.copy()
        # What the auction used is where it was used: nets may differ in the last bit with the ads beside.
        competitive = decision.competitive_set
        part = score(block, competitive, arm.last, arm, sim.platform)
        in_competitive = np.zeros(ids.shape, bool)
        row, column = np.nonzero(competitive >= 0)
        at = _columns_of(ids, row, competitive[row, column])
        in_competitive[row, at] = True
        pctr[row, at], bid[row, at] = part.prediction[row, column], part.bid[row, column]
        stage = np.where(in_competitive, RANKED, RETRIEVED).astype(np.int8)
        request_row = np.searchsorted(block.requests, shown["request"])
        stage[request_row, _columns_of(ids, request_row, shown["ad"])] = SHOWN
        is_there = ids >= 0
        pre = chose.scores.prediction if self.pre_score == "prediction" else chose.order
        columns: Columns = {
            "request": np.repeat(block.requests, is_there.sum(axis=1)),
            "ad": ids[is_there],
            "advertiser": sim.world.advertiser[ids[is_there]],
            "bid": bid[is_there].astype(np.float64),
            "pctr": pctr[is_there],
            "pre_score": pre[is_there],
            "stage": stage[is_there],
        }
        if self.arm.last.fusion.pcvr:
            pcvr = sim.platform.bids.pcvr(block, ids, arm.last.rates)
            columns["pcvr"] = np.asarray(pcvr)[is_there]
        if arm.stages[-2].bid == "init":
            columns["init_bid"] = chose.scores.bid[is_there].astype(np.float64)
        for name, further in self.further.items():
            columns[f"score.{name}"] = score(block, ids, further, arm, sim.platform).prediction[is_there]
        return columns

    def mapping(self) -> dict[str, Any]:
        """The mapping of the tables."""
        spec = self.spec
        ids = {"request": "request", "ad": "ad"}
        own, rounding = ("advertiser", "bid", "pctr", "pre_score", "stage"), self.arm.rounding
        rule: Mapping[str, Any] = {
            "pricing": spec.auction.pricing,
            "squashing": self.squashing,
            **({"pcvr": self.arm.last.fusion.pcvr} if self.arm.last.fusion.pcvr else {}),
            "reserve_cpc": spec.auction.reserve_cpc,
            "score_floor": spec.auction.score_floor,
            **self.arm.parameters,
            **({"rounding": rounding.unit, "rounding_how": rounding.how} if rounding.unit else {}),
            **({"increment": rounding.increment} if rounding.increment else {}),
        }
        if spec.auction.pricing == "vcg":
            effects = self.opened.sim.world.slot_effects[: self.arm.slots]
            rule = {**rule, "slot_effects": [float(effect) for effect in effects]}
        candidates: dict[str, Any] = {
            "files": "candidates.parquet",
            "columns": {
                **ids,
                **{name: name for name in own},
                **({"init_bid": "init_bid"} if self.arm.stages[-2].bid == "init" else {}),
                **({"pcvr": "pcvr"} if self.arm.last.fusion.pcvr else {}),
            },
        }
        if self.further:
            candidates["scores"] = {name: f"score.{name}" for name in self.further}
        made: dict[str, Any] = {
            "name": f"{self.opened.scenario.name}-{self.arm.name}",
            "zone": "UTC",
            "charging": spec.auction.charging,
            "pre_score": self.pre_score,
            "requests": {
                "files": "requests.parquet",
                "columns": {
                    "request": "request",
                    "time": {"column": "time", "unit": "seconds", "since": STARTS},
                    **{name: name for name in ("user", "slots", "reserve")},
                },
                "features": {"context": "context"},
            },
            "candidates": candidates,
            "outcomes": {
                "files": "outcomes.parquet",
                "columns": {
                    **ids,
                    "slot": "slot",
                    "price": {"column": "price_micros", "unit": "micros"},
                    "click": "click",
                    "conversion": "conversion",
                    **({"exposed": "exposed"} if self.has_exposure else {}),
                },
            },
        }
        if self.phase == SLATES:  # list prices follow no rule of the auction's
            columns = {**ids, "propensity": "propensity"}
            made["propensities"] = {"files": "propensities.parquet", "columns": columns}
        else:
            made["rule"] = dict(rule)
        return made


def _sha256(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _columns_of(ids: NDArray[Any], row: NDArray[Any], ads: NDArray[Any]) -> NDArray[np.int64]:
    """Columns of ads in the rows of `ids`, which ascend within a row; padding -1 may be anywhere."""
    n = ids.shape[1]
    high = int(ids.max(initial=0)) + 2
    order = np.argsort(ids, axis=1, kind="stable")
    sorted_ids = np.take_along_axis(ids, order, 1).astype(np.int64)
    key = (np.arange(len(ids))[:, None] * high + sorted_ids + 1).reshape(-1)
    at = np.searchsorted(key, row.astype(np.int64) * high + ads + 1) - row * n
    return order[row, at]


class _LogRows:
    """The impressions of a table, handed out request by request in their order."""

    def __init__(self, folder: Path, table: str) -> None:
        self._where = f"{folder}, table {table!r}"
        wanted = [*LOGGED, *(("propensity",) if table == SLATES else ())]
        self._batches = iterate_table(folder, table, wanted)
        self._held: Columns = {}

    def take(self, requests: NDArray[np.int64]) -> Columns:
        """All rows of these requests, which follow one another."""
        last = requests[-1]
        while not self._held or not len(self._held["request"]) or self._held["request"][-1] <= last:
            more = next(self._batches, None)
            if more is None:
                break
            joined = {name: [self._held[name], more[name]] if self._held else [more[name]] for name in more}
            self._held = {name: np.concatenate(parts) for name, parts in joined.items()}
        if not self._held:
            return {name: np.empty(0, np.int64) for name in (*LOGGED, "propensity")}
        n = int(np.searchsorted(self._held["request"], last, side="right"))
        taken = {name: values[:n] for name, values in self._held.items()}
        self._held = {name: values[n:] for name, values in self._held.items()}
        return taken

    def require_end(self) -> None:
        """UserError if there is more in the log than was served."""
        if (self._held and len(self._held["request"])) or next(self._batches, None) is not None:
            raise UserError(
                f"{self._where} has more requests than the run's evaluation; run the scenario again"
            )
