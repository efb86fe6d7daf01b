"""A finished run kept open for many questions: its blocks with all that was scored on them.

A parameter changes no score of a model, so `serve` answers from the memo of each block: it selects, prices
and measures again, and that is all. A first answer is made of a few blocks that lie evenly over the
evaluation; going on with the others refines it. What an arm did with a block is kept for the ways to serve
that were asked about last.

A session belongs to one thread; only `exact`, which touches nothing that is kept, may be asked by another.
Long work comes in pieces, a block each: `measured` is a generator, and its caller may stop between two
of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics import consistency
from cascade_sim.analysis.metrics.catalogue import PAGE_MEASURES, REPLAY_MEASURES, Metric, arm_measures
from cascade_sim.analysis.report.readings import no_evidence
from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import Arm, Block, predicted, retrieve
from cascade_sim.counterfactual.whatif import Question, Setting, WhatIfEvaluation, ask_run
from cascade_sim.diagnostics.reopen import PHASE, Trust, reopen
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.environments.evaluators.base import Context
from cascade_sim.environments.uncertainty.base import UNCERTAINTY
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.foundation.progress import Progress
from cascade_sim.scenario.overrides import Mistyped, Point, Refused, apply_overrides, parse_points, refuse
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolved_arms

QUICK = 2_048  # requests of a first answer
MAX_WAYS = 16  # ways to serve whose pages are kept
MAX_TURNED = 256  # settings that are known to be right or wrong
MAX_YARDS = 4  # answers from the whole pre-ranking set, kept for each block
MAX_SETS, MAX_KNOWN, MAX_MADE = 2, 12, 12  # of each block's memo
MAX_BYTES = 2 << 30  # of scores kept; blocks beyond are scored again for every question
BYTES_A_PAIR = 160  # a candidate of a request with its scores, bids and what is made of them, at most


@dataclass(frozen=True)
class Variant:
    """A way to serve: an arm, and the parameters changed in it as `--set` takes them."""

    arm: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Served:
    """What an arm did with a block. Arrays of a request each, [R] or [R, k]."""

    columns: dict[str, np.ndarray]  # the catalogue's COLUMNS
    ads: np.ndarray  # int32, -1 in an empty slot
    price_micros: np.ndarray
    charged: np.ndarray  # expected events that the price is paid for
    clicks: np.ndarray  # expected
    sizes: np.ndarray  # [stages] candidates after each stage, summed
    fates: np.ndarray | None  # [stages] of the best ads: lost by each scoring stage, shown; None: unknown
    uncertain: np.ndarray | None  # what it adds to the sums that tell how uncertain a fit is

    @property
    def paid(self) -> np.ndarray:
        """Expected payments.  [R, k]"""
        return np.where(self.ads >= 0, self.price_micros / MICROS * self.charged, 0.0)


Pages = dict[int, Served]  # of a way to serve, by block


class Session:
    """One opened run. UserError if it cannot be opened, or may not."""

    def __init__(self, folder: Path, trust: Trust = False) -> None:
        self.opened = reopen(folder, trust)
        self.folder, self.scenario, self.sim = folder, self.opened.scenario, self.opened.sim
        self.baseline = self.scenario.report.baseline
        self.specs = resolved_arms(self.scenario)
        self.evaluation = WhatIfEvaluation(self.sim, folder, {}, self.opened.arm(self.baseline))
        # Budgets make a block depend on those before it: quick answers leave them out, exact ones do not.
        self.has_budgets, self.evaluation.budgets = self.evaluation.budgets is not None, None
        self.n_requests = self.evaluation.n_requests
        self.block_size = self.scenario.traffic.block
        self.n_blocks = -(-self.n_requests // self.block_size)
        self.sample = spread(self.n_blocks, -(-QUICK // self.block_size))
        self._contexts: dict[int, Context[Any]] = {}
        self._ways: OrderedDict[Arm, Pages] = OrderedDict()
        self._turned: OrderedDict[Variant, Arm | UserError] = OrderedDict()

    @property
    def no_evidence(self) -> str:
        """What the page leads with where the rule does not reproduce its log; else nothing."""
        known = self.sim.environment.reproduced
        return "" if known is None else no_evidence({"replay": {"reproduced": known.as_json()}})

    # What is asked

    def arm(self, way: Variant) -> Arm:
        """The arm that serves so; UserError in the words of `whatif` for a parameter that cannot be changed
        so.
        """
        found = self._turned.get(way)
        if found is None:
            try:
                found = self._turn(way)
            except UserError as error:
                found = error
            self._turned[way] = found
            if len(self._turned) > MAX_TURNED:
                self._turned.popitem(last=False)
        if isinstance(found, UserError):
            raise found
        return found

    def _turn(self, way: Variant) -> Arm:
        changed, spec = self.turned(way)
        return replace(Setting(self.opened, self.folder, way.arm).serving(way.arm, spec, changed), name="")

    def turned(self, way: Variant) -> tuple[Scenario, ArmSpec]:
        """The scenario and the arm with its parameters changed; UserError if they cannot be."""
        if way.arm not in self.specs:
            raise UserError(unknown_name("arm", way.arm, self.specs))
        if not way.words:
            return self.scenario, self.specs[way.arm]
        try:
            return apply_overrides(self.scenario, self.specs[way.arm], self._point(way), self.folder)
        except Refused as reason:
            raise refuse(reason, way.words) from None

    def _point(self, way: Variant) -> Point:
        """The parameters that are turned; Refused if there is no such parameter."""
        points = parse_points(way.words, self.scenario, way.arm)
        if len(points) > 1:
            raise UserError("one value for each parameter; a curve goes over several")
        return points[0]

    def without_mistyped(self, way: Variant) -> tuple[Variant, dict[str, str]]:
        """The way without the words that are wrong whatever else is changed, and why each of them is."""
        why: dict[str, str] = {}
        while way.words and way.arm in self.specs:
            try:
                apply_overrides(self.scenario, self.specs[way.arm], self._point(way), self.folder)
            except Mistyped as reason:
                why |= {way.words[at]: text for text, at in reversed(reason.reasons)}
                way = Variant(way.arm, tuple(word for word in way.words if word not in why))
            except (Refused, UserError):
                break  # which of several words is to blame cannot be told
            else:
                break
        return way, why

    def exact(self, way: Variant, progress: Progress | None = None) -> dict[str, Any]:
        """The answer of `whatif`, by the code of `whatif`. Knows nothing of what is kept here."""
        if not way.words:
            raise UserError("no parameter is turned, so there is nothing to ask; turn one")
        if way.arm not in self.specs:
            raise UserError(unknown_name("arm", way.arm, self.specs))
        where = Setting(self.opened, self.folder, way.arm)
        try:
            return ask_run(where, Question((self._point(way),)), progress or Progress(quiet=True))
        except Refused as reason:
            raise refuse(reason, way.words) from None

    # What is served

    def blocks(self, is_all: bool) -> Sequence[int]:
        """The blocks of an answer: those of the first, then the others."""
        others = [index for index in range(self.n_blocks) if index not in self.sample]
        return [*self.sample, *(others if is_all else [])]

    def block(self, index: int) -> Block:
        """A block of the evaluation."""
        return self.sim.arrivals.block(PHASE, index, self.n_requests)

    def measured(self, arm: Arm, blocks: Sequence[int]) -> Generator[None, None, Pages]:
        """Serve these blocks, as far as that was not done; a piece of work a block. Returns what is known.

        Who holds it has it, also if it is forgotten here while others ask.
        """
        pages = self.pages(arm)
        for index in blocks:
            if index not in pages:
                pages[index] = self._serve(arm, index)
                yield
        return pages

    def pages(self, arm: Arm) -> Pages:
        """What is known of a way to serve, by block; those asked about last are kept, the first for good."""
        if arm not in self._ways:
            self._ways[arm] = {}
            while len(self._ways) > MAX_WAYS:
                del self._ways[list(self._ways)[1]]
        elif next(iter(self._ways)) != arm:
            self._ways.move_to_end(arm)
        return self._ways[arm]

    def context(self, index: int) -> Context[Any]:
        """What arms are measured by on a block, kept while there is room."""
        if index in self._contexts:
            return self._contexts[index]
        context = self.evaluation.context(self.block(index))
        if (len(self._contexts) + 1) * self._block_bytes <= MAX_BYTES:
            self._contexts[index] = context
        return context

    @property
    def _block_bytes(self) -> int:
        return self.block_size * max(spec.retrieval_size for spec in self.specs.values()) * BYTES_A_PAIR

    @property
    def most_bytes(self) -> int:
        """What its scores take when all are kept that can be."""
        return min(self.n_blocks * self._block_bytes, MAX_BYTES)

    def forget(self) -> None:
        """Give up all scores and pages; they are computed again on demand."""
        self._contexts.clear()
        self._ways.clear()

    def warm(self) -> Iterator[None]:
        """Serve the baseline, then ask every trained model about every pre-ranking set; pieces of work."""
        arm = self.arm(Variant(self.baseline))
        yield from self.measured(arm, self.blocks(True))
        for index in self.blocks(True):
            if index not in self._contexts:
                return
            block = self._contexts[index].block
            ids = retrieve(block, arm, self.sim.platform)
            for scorer in list(self.sim.scorers.values()):
                if scorer.name in self.scenario.models:
                    predicted(block, ids, scorer)
                    yield

    def _serve(self, arm: Arm, index: int) -> Served:
        context, evaluation = self.context(index), self.evaluation
        found = evaluation.serve_on(context, arm)
        decision, result = found.decision, found.outcome
        best = evaluation.evaluator.best(context, found.arm)
        served = Served(
            columns=found.columns,
            ads=decision.win_set.astype(np.int32),
            price_micros=decision.cpc_micros,
            charged=result.charged,
            clicks=result.expected_clicks,
            sizes=np.array([(ids >= 0).sum() for ids in decision.sets]),
            fates=None if best is None else _fates(best, decision.sets[1:]),
            uncertain=evaluation.uncertain(found).get(UNCERTAINTY),
        )
        context.trim(MAX_YARDS)
        assert context.block.memo is not None
        context.block.memo.trim(MAX_SETS, MAX_KNOWN, MAX_MADE)
        return served

    # What can be measured

    def metrics(self, columns: Sequence[str]) -> dict[str, Metric]:
        """The measures that are ratios of these columns, in the order of the catalogue."""
        known = set(columns)
        return {
            name: metric
            for name, metric in {**arm_measures(known), **PAGE_MEASURES, **REPLAY_MEASURES}.items()
            if metric.is_ratio
            and not metric.is_of_corpus
            and {*metric.parts} <= known
            and (self.evaluation.has_exposure or not name.endswith("exposed"))
        }

    def place(self, index: int) -> tuple[int, int]:
        """The block of a request that is given by its number or its id in the logs, and its row there."""
        first = FIRST_REQUEST[PHASE]
        number = index - first if index >= first else index
        if not 0 <= number < self.n_requests:
            raise UserError(f"no request {index}; there are requests 0 to {self.n_requests - 1}")
        return number // self.block_size, number % self.block_size


def spread(n_blocks: int, wanted: int) -> list[int]:
    """So many blocks, evenly over all of them: the first of a log would be its first hours."""
    n = min(wanted, n_blocks)
    return [(2 * i + 1) * n_blocks // (2 * n) for i in range(n)]


def _fates(best: np.ndarray, sets: Sequence[np.ndarray]) -> np.ndarray:
    """Where the best ads of those retrieved went: those of the truth or, of a log, of the ranker.

    `sets` are what each scoring stage handed on, at last what was shown.
    """
    left, lost = best >= 0, []
    for ids in sets:
        passed = left & consistency.membership(best, ids)
        lost.append((left & ~passed).sum())
        left = passed
    return np.array([*lost, left.sum()])
