"""Random auctions, each run twice: by the engine and by the plain-Python reference. Do they ever differ?

Auctions come in blocks of equal rules, drawn from (seed, number of the block) alone: the answer does not
depend on how many processes share the work. All prices of the reference are exact fractions. An auction
counts as different if

    a slot has another winner,
    a CPC is off by more than 1e-12 of itself, or
    a charge in micro-units is not the same.

One exception, counted apart (`by_last_bit`): where the exact price is within 1e-14 of itself from a half
micro-unit, the last bits of a double decide which way it is rounded, and both ways are right. That takes
prices of many thousands. It does not hold on the grids below, where doubles are exact.

Half the blocks hold small grids of values, where scores tie all the time and their products are exact; there
squashing is 0, 0.5, 1 or 2. Beside them: values as in a market, and values over many powers of ten. There
only copies of an ad tie, and squashing may be any number, because two libraries' powers agree but for the
last bit, which cannot change the order of scores that are not equal.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.auction import PRICINGS, WAYS, Rounding, run_auction, to_micros
from cascade_sim.auction.pricing import NO_INCREMENT, RULES
from cascade_sim.auction.reference import charge_micros, reference_auction, squashed
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.progress import Progress
from cascade_sim.foundation.workers import Job, run_jobs

BLOCK = 500  # auctions of equal rules
CHUNK = 8 * BLOCK  # auctions that a process is given at a time
TOLERANCE = 1e-12  # of a CPC, relative
LAST_BITS = 1e-14  # of a CPC, relative: what a few roundings of doubles can do to it
KEPT = 5  # differing auctions that are written out in full
KINDS = ("grid", "grid", "market", "wide")


@dataclass(frozen=True)
class AuctionBlock:
    """Auctions of equal rules. Arrays [R, c]."""

    bid: NDArray[np.float64]
    pctr: NDArray[np.float64]
    ids: NDArray[np.int64] | None  # None: the columns themselves
    rules: dict[str, Any]  # keywords of run_auction
    kind: str


@dataclass(frozen=True)
class Answer:
    """What one of the two auctions says, slot by slot; None where empty."""

    winners: list[int | None]
    cpc: list[float | None]
    charges_micros: list[int | None]


@dataclass(frozen=True)
class Difference:
    """An auction whose answers differ, with everything needed to run it again."""

    number: int  # of the auction, from 0
    bid: list[float]
    pctr: list[float]
    ids: list[int] | None
    rules: dict[str, Any]
    engine: Answer
    reference: Answer


@dataclass
class Comparison:
    """What came out, of one block or of many."""

    auctions: int = 0
    bids: int = 0
    charges: int = 0
    by_last_bit: int = 0  # charges that differ, where the last bits of a double decide
    different: int = 0  # auctions
    seen: Counter[str] = field(default_factory=Counter)
    first: list[Difference] = field(default_factory=list)

    def add(self, other: "Comparison") -> None:
        """Blocks must come in order, so that the first differences stay the first."""
        self.auctions += other.auctions
        self.bids += other.bids
        self.charges += other.charges
        self.by_last_bit += other.by_last_bit
        self.different += other.different
        self.seen.update(other.seen)
        self.first = (self.first + other.first)[:KEPT]


def check_auctions(n: int, seed: int, workers: int, progress: Progress) -> Comparison:
    """Compare n random auctions; one process per worker, in this process for one.

    UserError if the reference lacks a pricing rule, also where too few auctions are asked for to draw it.
    """
    _require_reference()
    comparison = Comparison()
    starts = range(0, n, CHUNK)
    with progress.stage("auctions", n, "auctions") as bar:
        if workers == 1:
            for start in starts:
                comparison.add(_chunk(seed, start, n, bar.advance))
            return comparison
        jobs = [Job(f"auctions from {start:,}", _chunk, (seed, start, n)) for start in starts]
        sizes = {job.name: min(CHUNK, n - start) for job, start in zip(jobs, starts, strict=True)}
        for part in run_jobs(jobs, workers, on_done=lambda name: bar.advance(sizes[name])).values():
            comparison.add(part)
    return comparison


def _require_reference() -> None:
    """UserError if the reference does not know every rule, with its parameters."""
    for name, rule in RULES.items():
        parameters: dict[str, Any] = {
            key: min(1.0, parameter.high) for key, parameter in rule.parameters.items()
        }
        try:
            reference_auction(
                [2.0, 1.0], [0.5, 0.5], slots=1, pricing=name, reserve_cpc=0.0, score_floor=0.0,
                effects=[1.0], ids=[0, 1], **parameters,
            )  # fmt: skip
        except (TypeError, ValueError) as error:
            raise UserError(
                f"pricing {name} cannot be compared: {error}. "
                "Define it in cascade_sim/auction/reference.py as well"
            ) from error


def _chunk(
    seed: int, start: int, n: int, advance: Callable[[int], None] = lambda auctions: None
) -> Comparison:
    """The blocks of a chunk that begins with this auction."""
    comparison = Comparison()
    for first in range(start, min(start + CHUNK, n), BLOCK):
        comparison.add(check_block(seed, first // BLOCK, min(BLOCK, n - first)))
        advance(min(BLOCK, n - first))
    return comparison


def check_block(seed: int, index: int, size: int) -> Comparison:
    """Draw a block, run it by both auctions, compare."""
    block = random_block(seed, index, size)
    rows = list(_plain_rows(block))
    comparison = Comparison(auctions=size, bids=sum(ad >= 0 for _, _, ids in rows for ad in ids))
    answers = zip(_engine_answers(block), rows, strict=True)
    for number, (engine, (bids, pctrs, ids)) in enumerate(answers, BLOCK * index):
        reference = _reference_answer(bids, pctrs, ids, block.rules)
        comparison.charges += sum(winner is not None for winner in reference.winners)
        by_last_bit = compare(engine, reference, bids, has_exact_doubles=block.kind == "grid")
        if by_last_bit is not None:
            comparison.by_last_bit += by_last_bit
            continue
        comparison.different += 1
        if len(comparison.first) < KEPT:
            given = None if block.ids is None else ids
            comparison.first.append(Difference(number, bids, pctrs, given, block.rules, engine, reference))
    comparison.seen.update(_traits(block))
    return comparison


def compare(engine: Answer, reference: Answer, bids: list[float], *, has_exact_doubles: bool) -> int | None:
    """None if the answers differ; else how many charges only the last bits of a double set apart."""
    if engine.winners != reference.winners:
        return None
    by_last_bit = 0
    for winner, own, price, charge, right in zip(
        engine.winners, engine.cpc, reference.cpc, engine.charges_micros, reference.charges_micros,
        strict=True,
    ):  # fmt: skip
        if winner is None or own is None or price is None or charge is None:
            continue
        if abs(own - price) > TOLERANCE * price:
            return None
        if charge != right:
            low, high = (charge_micros(price * (1 + bits), bids[winner]) for bits in (-LAST_BITS, LAST_BITS))
            if has_exact_doubles or not low <= charge <= high:
                return None
            by_last_bit += 1
    return by_last_bit


def random_block(seed: int, index: int, size: int) -> AuctionBlock:
    """The block of this number: `size` auctions with up to 12 bidders (sometimes 48) for 1 to 6 slots."""
    rng = np.random.default_rng([seed, index])
    kind = KINDS[int(rng.integers(len(KINDS)))]
    shape = (size, 48 if rng.random() < 0.02 else int(rng.integers(0, 13)))
    bid, pctr = _values(rng, kind, shape)
    bid[rng.random(shape) < 0.05] = 0.0
    pctr[rng.random(shape) < 0.05] = 0.0
    if shape[1] > 1 and kind != "grid":  # equal scores: some ads are copies of the first
        is_copy = rng.random(shape) < 0.15
        bid, pctr = np.where(is_copy, bid[:, :1], bid), np.where(is_copy, pctr[:, :1], pctr)
    ids = None
    if rng.random() < 0.7:
        ids = rng.permuted(np.tile(np.arange(shape[1], dtype=np.int64) * 3, (size, 1)), axis=1)
        ids[rng.random(shape) < 0.08] = -1
    return AuctionBlock(bid, pctr, ids, _rules(rng, kind, bid, pctr), kind)


def _values(
    rng: np.random.Generator, kind: str, shape: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bids and pCTRs [R, c]. Money stays where a double is much finer than a micro-unit."""
    if kind == "grid":
        return rng.integers(0, 9, shape) / 4, rng.integers(0, 9, shape) / 16
    if kind == "market":
        return rng.lognormal(0.0, 0.7, shape), rng.beta(1.0, 30.0, shape)
    return 10.0 ** rng.uniform(-12, 6, shape), 10.0 ** rng.uniform(-15, 0, shape)


def _rules(
    rng: np.random.Generator, kind: str, bid: NDArray[np.float64], pctr: NDArray[np.float64]
) -> dict[str, Any]:
    """Keywords of run_auction. Reserves occur among the bids and scores, so some just meet them."""
    pricing = PRICINGS[int(rng.integers(len(PRICINGS)))]
    slots = int(rng.integers(1, 7))
    squashing = 1.0
    if not RULES[pricing].needs_squashing_1 and rng.random() < 0.5:
        squashing = float(rng.choice([0.0, 0.5, 2.0]) if kind == "grid" else rng.uniform(0.0, 2.0))
    reserve, score_floor = 0.0, 0.0
    if bid.size:
        if rng.random() < 0.4:
            reserve = float(rng.choice(bid.ravel()))
        if rng.random() < 0.4:
            at = int(rng.integers(bid.size))
            score_floor = float(bid.flat[at]) * squashed(float(pctr.flat[at]), squashing)
    if score_floor and squashing not in (0.0, 0.5, 1.0, 2.0):
        score_floor *= 0.75  # no ad exactly at it: powers differ in the last bit
    effects = None
    if rng.random() < 0.8:
        drawn = rng.choice([0.25, 0.5, 0.75, 1.0], slots) if kind == "grid" else rng.uniform(0.01, 1.0, slots)
        effects = np.sort(drawn)[::-1].tolist()
    parameters = {}
    for name, parameter in RULES[pricing].parameters.items():
        share = 1.0 if kind == "grid" or rng.random() < 0.5 else float(rng.uniform(0.0, 2.0))
        if np.isfinite(parameter.high):  # often an end
            parameters[name] = parameter.high * min(share, 1.0)
        else:  # between the bids, and often one of them
            parameters[name] = share * float(rng.choice(bid.ravel())) if bid.size else 1.0
    rounding = Rounding()
    if rng.random() < 0.6:
        unit, how = float(rng.choice([0.000001, 0.01, 0.05, 0.5])), str(rng.choice(WAYS))
        step = float(rng.choice([0.0, 0.01, 0.25]))
        rounding = Rounding(unit, how, 0.0 if pricing in NO_INCREMENT else step)
    return {
        "rounding": rounding,
        "slots": slots,
        "pricing": pricing,
        "squashing": squashing,
        "reserve_cpc": reserve,
        "score_floor": score_floor,
        "slot_effects": effects,
        **parameters,
    }


def _plain_rows(block: AuctionBlock) -> Iterator[tuple[list[float], list[float], list[int]]]:
    """(bids, pCTRs, ids) of every auction, as plain lists."""
    n, c = block.bid.shape
    ids = [list(range(c))] * n if block.ids is None else block.ids.tolist()
    yield from zip(block.bid.tolist(), block.pctr.tolist(), ids, strict=True)


def _engine_answers(block: AuctionBlock) -> Iterator[Answer]:
    """What the engine says of every auction of the block."""
    winners, cpc = run_auction(block.bid, block.pctr, ids=block.ids, **block.rules)
    if block.bid.shape[1]:
        won = np.where(winners >= 0, np.take_along_axis(block.bid, np.maximum(winners, 0), 1), 0.0)
    else:
        won = np.zeros(winners.shape)
    charges = to_micros(cpc, won)
    for columns, prices, micros in zip(winners.tolist(), cpc.tolist(), charges.tolist(), strict=True):
        is_shown = [column >= 0 for column in columns]
        yield Answer(*(_shown(values, is_shown) for values in (columns, prices, micros)))


def _shown(values: list[Any], is_shown: list[bool]) -> list[Any]:
    return [value if shown else None for value, shown in zip(values, is_shown, strict=True)]


def _reference_answer(bids: list[float], pctrs: list[float], ids: list[int], rules: dict[str, Any]) -> Answer:
    columns, prices = reference_auction(
        bids,
        [squashed(pctr, rules["squashing"]) for pctr in pctrs],
        slots=rules["slots"],
        pricing=rules["pricing"],
        reserve_cpc=rules["reserve_cpc"],
        score_floor=rules["score_floor"],
        effects=rules["slot_effects"] or [1.0] * rules["slots"],
        ids=ids,
        unit_micros=rules["rounding"].unit_micros,
        how=rules["rounding"].how,
        increment=rules["rounding"].increment,
        **{name: rules[name] for name in RULES[rules["pricing"]].parameters},
    )
    pairs = list(zip(columns, prices, strict=True))
    return Answer(
        columns,
        [None if price is None else float(price) for price in prices],
        [
            None if price is None or at is None else charge_micros(float(price), bids[at])
            for at, price in pairs
        ],
    )


def _traits(block: AuctionBlock) -> dict[str, int]:
    """How many auctions of a block are special in which way, for the count of what was seen."""
    rules, n = block.rules, len(block.bid)
    there = np.ones(block.bid.shape, bool) if block.ids is None else block.ids >= 0
    bid, pctr = block.bid, block.pctr
    scores = np.sort(np.where(there & (bid > 0) & (pctr > 0), bid * pctr ** rules["squashing"], -1.0), axis=1)
    is_tied = (np.diff(scores, axis=1) == 0) & (scores[:, 1:] > 0)
    return {
        rules["pricing"]: n,
        "squashed": n * (rules["squashing"] != 1),
        "CPC reserve": n * (rules["reserve_cpc"] > 0),
        "score floor": n * (rules["score_floor"] > 0),
        "rounded prices": n * (rules["rounding"].unit > 0),
        "increment": n * (rules["rounding"].increment > 0),
        "unequal slots": n * (rules["slot_effects"] is not None),
        "tied scores": int(is_tied.any(axis=1).sum()),
        "zero bids": int((there & (bid == 0)).any(axis=1).sum()),
        "zero pCTRs": int((there & (pctr == 0)).any(axis=1).sum()),
        "fewer bidders than slots": int((there.sum(axis=1) < rules["slots"]).sum()),
        "many powers of ten": n * (block.kind == "wide"),
    }
