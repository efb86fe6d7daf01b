"""How small a change of revenue a check finds, and its false-positive rate: measured, not derived.

One cascade is trained and serves many stretches of traffic, each as long as a check's. On each stretch the
very comparison of `check` is made between what was served and the same with a change planted: a known one in
what is earned (power), or one that alters prices, draws or visitors and nothing on average (false positives).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cascade_sim.agents.users import happens
from cascade_sim.analysis.statistics.moves import binomial_band, most_hits
from cascade_sim.auction import MICROS
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Block, Decision
from cascade_sim.context import RunContext
from cascade_sim.foundation import random as draws
from cascade_sim.regression.blocks import METRICS, ArmBlocks, Blocks, arm_blocks, n_groups
from cascade_sim.regression.check import MetricChange, judge
from cascade_sim.regression.serving import OtherTraffic, evaluated
from cascade_sim.scenario.schema import Scenario
from cascade_sim.study.simulation import Simulation

ARM = "arm"
# Those that prices, draws and visitors can move; all of a check's but rcs and welfare.
WATCHED = tuple(name for name in METRICS if name not in ("rcs", "welfare_vs_oracle"))
REVENUE = ("revenue_per_request", "expected_revenue_per_request")
MIN_POWER, MAX_FALSE = 0.95, 0.05  # what a check promises
LEVEL = 0.05  # how often a check that keeps the promise may be found wanting, for each of the two
USEFUL = 0.10  # errors that a band of useful width allows: twice those promised
JITTER = 0.10  # of each price, either way


@dataclass(frozen=True)
class ServedBlock:
    """A block as it was served."""

    sim: Simulation
    block: Block
    decision: Decision
    result: Outcome


@dataclass(frozen=True)
class InjectedChange:
    """A change: what it is called, what it does to prices and clicks, and whether the average moves."""

    name: str
    is_change: bool
    prices: Callable[[ServedBlock, float], np.ndarray]  # by size of the change: cpc in micros, [R, k]
    has_independent_draws: bool = False


@dataclass(frozen=True)
class Rate:
    """How often the check failed for a planted change, or for other requests."""

    name: str
    is_change: bool
    is_counted: bool  # in the conclusion: of the comparison that can keep the promise
    alarms: int
    runs: int

    @property
    def share(self) -> float:
        return self.alarms / self.runs

    @property
    def band(self) -> tuple[float, float]:
        return binomial_band(self.alarms, self.runs)


@dataclass(frozen=True)
class NominalRate:
    """What a check promises of one kind of rates, and the rate that speaks most against it.

    A rate is outside its band if a check that keeps the promise would give one so far off with a chance of at
    most LEVEL, shared among all rates of the kind: so such a check is found wanting in at most LEVEL of the
    measurements, however few its runs. Few runs make a wide band.
    """

    is_change: bool  # the power, or else the false positives
    nominal: float
    worst: Rate
    band: tuple[float, float]  # where chance leaves that rate if the promise is kept
    is_met: bool  # whether it lies inside


def nominal_rates(rates: Sequence[Rate]) -> tuple[NominalRate, NominalRate]:
    """Of the power and of the false positives, in this order."""
    return _promise(rates, True), _promise(rates, False)


def _promise(rates: Sequence[Rate], is_change: bool) -> NominalRate:
    counted = [rate for rate in rates if rate.is_counted and rate.is_change == is_change]
    error = 1.0 - MIN_POWER if is_change else MAX_FALSE

    def errors(rate: Rate) -> int:
        return rate.runs - rate.alarms if is_change else rate.alarms

    def allowed(rate: Rate) -> int:
        return most_hits(error, rate.runs, LEVEL / len(counted))

    worst = max(counted, key=lambda rate: (errors(rate) - allowed(rate)) / rate.runs)
    most = allowed(worst)
    band = (1.0 - most / worst.runs, 1.0) if is_change else (0.0, most / worst.runs)
    nominal = MIN_POWER if is_change else MAX_FALSE
    return NominalRate(is_change, nominal, worst, band, is_met=errors(worst) <= most)


def runs_needed(rates: Sequence[Rate]) -> int:
    """So many runs leave chance no more than USEFUL errors in every rate that counts; a multiple of ten."""
    most = max(rate.runs for rate in rates)
    kinds = {
        is_change: [rate for rate in rates if rate.is_counted and rate.is_change == is_change]
        for is_change in (True, False)
    }

    def is_enough(runs: int) -> bool:
        for is_change, counted in kinds.items():
            error = 1.0 - MIN_POWER if is_change else MAX_FALSE
            for rate in counted:
                own = runs * rate.runs // most  # unpaired comparisons take two stretches each
                if most_hits(error, own, LEVEL / len(counted)) > USEFUL * own:
                    return False
        return True

    return next(runs for runs in itertools.count(10, 10) if is_enough(runs))


def _as_served(served_block: ServedBlock, size: float) -> np.ndarray:
    return served_block.decision.cpc_micros.astype(np.float64)


def _all_lower(served_block: ServedBlock, size: float) -> np.ndarray:
    return served_block.decision.cpc_micros * (1.0 - size)


def _some_halved(served_block: ServedBlock, size: float) -> np.ndarray:
    """Half price on a share 2 * size of the requests, so that the average price falls by size."""
    u = draws.uniform(served_block.sim.seed, "planted requests", served_block.block.requests)
    return served_block.decision.cpc_micros * np.where(u < 2.0 * size, 0.5, 1.0)[:, None]


def _jittered(served_block: ServedBlock, size: float) -> np.ndarray:
    """Each price up to JITTER off, keyed by request and ad: none on average."""
    u = draws.uniform(
        served_block.sim.seed,
        "planted jitter",
        served_block.block.requests[:, None],
        served_block.decision.win_set,
    )
    return served_block.decision.cpc_micros * (1.0 + JITTER * (2.0 * u - 1.0))


def _jittered_lower(served_block: ServedBlock, size: float) -> np.ndarray:
    return _jittered(served_block, size) * (1.0 - size)


LOWER = InjectedChange("every price lower", True, _all_lower)
PLANTED = (
    InjectedChange("nothing", False, _as_served),
    InjectedChange(f"each price up to {JITTER:.0%} off, 0 on average", False, _jittered),
    InjectedChange(
        "independent random numbers of every click", False, _as_served, has_independent_draws=True
    ),
    LOWER,
    InjectedChange("half price on a few requests", True, _some_halved),
    InjectedChange(f"every price lower, and each up to {JITTER:.0%} off", True, _jittered_lower),
    InjectedChange(
        "every price lower, independent random numbers", True, _all_lower, has_independent_draws=True
    ),
)
OTHER_REQUESTS = "other requests (unpaired)"
LOWER_ON_OTHER = "every price lower, other requests (unpaired)"


def measure_power(
    scenario: Scenario,
    context: RunContext,
    *,
    change: float,
    runs: int,
    requests: int,
) -> list[Rate]:
    """The rates of every planted change and of other requests, over `runs` stretches of `requests`."""
    scenario.world.require("fresh_requests", "check-power")
    phases = scenario.phases.model_copy(update={"evaluate": requests})
    scenario = scenario.model_copy(update={"phases": phases})
    alarms = dict.fromkeys([*(kind.name for kind in PLANTED), OTHER_REQUESTS, LOWER_ON_OTHER], 0)
    with context.progress as progress:
        evaluation = evaluated(scenario, context)
        sim, arm = evaluation.sim, evaluation.baseline
        before: Blocks | None = None
        with progress.stage("replications", runs * requests) as bar:
            for stretch in range(runs):
                served_blocks = [
                    served(sim, block, sim.serve(block, arm))
                    for block in stretch_blocks(sim, stretch, requests)
                ]
                own = summed(served_blocks, PLANTED[0], change, requests)
                for planted in PLANTED:
                    after = summed(served_blocks, planted, change, requests)
                    alarms[planted.name] += rejects(own, after, planted.is_change, is_paired=True)
                if before is not None:
                    lower = summed(served_blocks, LOWER, change, requests)
                    alarms[OTHER_REQUESTS] += rejects(before, own, False, is_paired=False)
                    alarms[LOWER_ON_OTHER] += rejects(before, lower, True, is_paired=False)
                before = own if before is None else None  # pairs that share no stretch
                bar.advance(requests)
    return [
        *(Rate(kind.name, kind.is_change, True, alarms[kind.name], runs) for kind in PLANTED),
        Rate(OTHER_REQUESTS, False, True, alarms[OTHER_REQUESTS], runs // 2),
        Rate(LOWER_ON_OTHER, True, False, alarms[LOWER_ON_OTHER], runs // 2),
    ]


def stretch_blocks(sim: Simulation, stretch: int, requests: int) -> Iterator[Block]:
    """The blocks of one stretch of the evaluation's traffic."""
    traffic = OtherTraffic(sim, 1, stretch)
    for index in range(-(-requests // sim.scenario.traffic.block)):
        yield traffic.block("evaluate", index, requests)


def served(sim: Simulation, block: Block, decision: Decision) -> ServedBlock:
    return ServedBlock(sim, block, decision, sim.environment.outcome(block, decision))


def summed(served_blocks: list[ServedBlock], planted: InjectedChange, change: float, requests: int) -> Blocks:
    """What a stretch earned under a planted change, summed by group as a run's evaluation is."""
    parts = [_columns(served_block, planted, change) for served_block in served_blocks]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    groups = n_groups(requests)
    made: ArmBlocks = arm_blocks(columns, np.arange(requests) * groups // requests, groups)
    return Blocks(requests, groups, {ARM: made})


def _columns(served_block: ServedBlock, planted: InjectedChange, change: float) -> dict[str, np.ndarray]:
    decision, result = served_block.decision, served_block.result
    cpc = np.floor(planted.prices(served_block, change)) / MICROS
    clicks = result.clicks
    if planted.has_independent_draws:
        u = draws.uniform(
            served_block.sim.seed, "planted luck", served_block.block.requests[:, None], decision.win_set
        )
        clicks = happens(result.expected_clicks, u)
    return {
        "requests": np.ones(len(served_block.block)),
        "impressions": (decision.win_set >= 0).sum(axis=1).astype(np.float64),
        "clicks": clicks.sum(axis=1).astype(np.float64),
        "expected_clicks": result.expected_clicks.sum(axis=1),
        "revenue": (cpc * clicks).sum(axis=1),
        "expected_revenue": (cpc * result.expected_clicks).sum(axis=1),
    }


def rejects(before: Blocks, after: Blocks, is_change: bool, *, is_paired: bool) -> bool:
    """Whether the check fails; where revenue was lowered, whether it fails for lower revenue."""
    plan = {(ARM, metric): 0.0 for metric in WATCHED if before.arms[ARM].values[metric]}
    findings: list[MetricChange] = judge(before, after, plan, is_paired=is_paired)
    failed = [finding for finding in findings if finding.has_failed]
    if is_change:
        return any(finding.metric in REVENUE and finding.move.log < 0 for finding in failed)
    return bool(failed)
