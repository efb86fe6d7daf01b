"""Whether a run still earns what its baseline earned: every guarded metric of every arm, with its certainty.

A metric fails when its move is significant (Holm's procedure over all guarded metrics of all arms, 5 % in
all) and larger than its tolerance. One that is gone (no impressions, no clicks) always fails. Of a market the
unit is a day; with fewer than five there is no telling what moves by chance, and every move counts.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cascade_sim.analysis.statistics.moves import (
    ROUNDING,
    RelativeChange,
    day_change,
    holm,
    holm_alpha,
    paired_change,
    unpaired_change,
)
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.regression.baseline import (
    Baseline,
    Measured,
    differences,
    known_metrics,
    refuse_other_traffic_of,
    traffic_data,
)
from cascade_sim.regression.blocks import MARKET_METRICS, Blocks
from cascade_sim.scenario.file import scenario_data
from cascade_sim.scenario.schema import AUTOMATIC_ARMS, Scenario
from cascade_sim.storage.environment import stack_notes

ALPHA = 0.05


@dataclass(frozen=True)
class MetricChange:
    """How a metric of an arm moved, and whether the check fails for it."""

    arm: str
    metric: str
    before: float
    after: float | None  # None: undefined now
    move: RelativeChange
    p: float  # adjusted
    tolerance: float
    mde: float  # minimum detectable effect: the relative change found with a power of 95 %
    has_changed: bool  # to the last bit, in value or in any group

    @property
    def is_significant(self) -> bool:
        return self.p <= ALPHA

    @property
    def has_failed(self) -> bool:
        return self.is_significant and abs(self.move.relative) > self.tolerance


@dataclass(frozen=True)
class Verdict:
    """All findings, and what else a reader should know."""

    against: str
    where: str
    requests: int
    groups: int
    is_paired: bool
    findings: list[MetricChange]
    changed_keys: list[str]  # of the scenario, since the baseline was made
    unguarded: list[str]  # arms that the baseline does not have
    is_market_unguarded: bool
    has_held_models: bool  # which learned from the log of the baseline's cascade
    has_fresh_requests: bool  # else it is of a log, which has the requests it has
    other_environment: list[str]  # how packages and processor differ from the baseline's

    @property
    def failed(self) -> list[MetricChange]:
        return [finding for finding in self.findings if finding.has_failed]

    @property
    def moved(self) -> list[MetricChange]:
        return [finding for finding in self.findings if finding.has_changed]

    @property
    def passed(self) -> bool:
        return not self.failed


def check_revenue(
    baseline: Baseline,
    measured: Measured,
    *,
    tolerances: Sequence[str] = (),
    metrics: Sequence[str] = (),
    arms: Sequence[str] = (),
) -> Verdict:
    """Compare a run with a baseline. UserError where they cannot be compared, or a name is unknown."""
    refuse_other_traffic_of(baseline, measured.scenario, measured.where, measured.is_fresh)
    plan = guarded(baseline, metrics, arms, tolerances)
    if measured.is_fresh:  # a market has no other stretch of its days
        plan = {key: share for key, share in plan.items() if key[1] not in MARKET_METRICS}
    refuse_missing_arms(baseline, measured.blocks.arms, measured.where, plan)
    refuse_other_days(baseline, measured.scenario, measured.where, plan)
    findings = judge(baseline.blocks, measured.blocks, plan, is_paired=not measured.is_fresh)
    now = scenario_data(measured.scenario)
    changed = [path for path, *_ in differences(baseline.scenario, now)]
    new_arms = [name for name in measured.scenario.arms if name not in baseline.blocks.arms]
    return Verdict(
        against=baseline.file,
        where=measured.where,
        requests=traffic_data(measured.scenario)["requests"],
        groups=baseline.blocks.groups,
        is_paired=not measured.is_fresh,
        findings=findings,
        changed_keys=changed,
        unguarded=new_arms,
        is_market_unguarded=measured.scenario.market is not None
        and not any(metric in MARKET_METRICS for _, metric in plan),
        has_held_models=measured.has_held_models,
        has_fresh_requests=measured.scenario.world.has("fresh_requests"),
        other_environment=stack_notes(baseline.stack, measured.stack),
    )


def refuse_incomparable(
    baseline: Baseline, scenario: Scenario, where: str, plan: Collection[tuple[str, str]], *, is_fresh: bool
) -> None:
    """UserError where a run of the scenario could not be compared with the baseline: before it is run.

    `plan`: what is guarded, (arm, metric).
    """
    refuse_other_traffic_of(baseline, scenario, where, is_fresh)
    refuse_missing_arms(baseline, (*scenario.arms, *AUTOMATIC_ARMS), where, plan)
    if not is_fresh:
        refuse_other_days(baseline, scenario, where, dict.fromkeys(plan, 0.0))


def guarded(
    baseline: Baseline, metrics: Sequence[str], arms: Sequence[str], tolerances: Sequence[str]
) -> dict[tuple[str, str], float]:
    """{(arm, metric): tolerance} of what is compared: all of the baseline, or the arms and metrics named."""
    known = known_metrics(baseline.blocks)
    for metric in metrics:
        if metric not in known:
            raise UserError(f"--metric: {unknown_name('metric', metric, known)} (in {baseline.file})")
    for arm in arms:
        if arm not in baseline.blocks.arms:
            raise UserError(f"--arm: {unknown_name('arm', arm, baseline.blocks.arms)} (in {baseline.file})")
    plan = {
        (arm, metric): 0.0
        for arm, blocks in baseline.blocks.arms.items()
        if not arms or arm in arms
        for metric in known
        # What was 0 or undefined before has no relative change.
        if (not metrics or metric in metrics) and blocks.values.get(metric)
    }
    if not plan:
        raise UserError(f"{baseline.file}: no metric that was asked for is above 0, so none can be guarded")
    for text in tolerances:
        arm, metric, amount = parse_tolerance(text, baseline)
        hit = [(a, m) for a, m in plan if arm in ("", a) and metric in ("", m)]
        if not hit:
            raise UserError(
                f"--tolerance {text}: no guarded metric is meant; --arm or --metric leaves it out"
            )
        plan.update(dict.fromkeys(hit, amount))
    return plan


def parse_tolerance(text: str, baseline: Baseline) -> tuple[str, str, float]:
    """`0.5%`, `rpm=0.5%`, `ARM:rpm=0.005` -> (arm or "", metric or "", share)."""
    name, equals, amount = text.rpartition("=")
    arm, colon, metric = name.rpartition(":")
    known = known_metrics(baseline.blocks)
    if colon and arm not in baseline.blocks.arms:
        raise UserError(f"--tolerance {text}: {unknown_name('arm', arm, baseline.blocks.arms)}")
    if equals and metric not in known:
        raise UserError(f"--tolerance {text}: {unknown_name('metric', metric, known)}")
    return arm, metric, parse_share(amount, f"--tolerance {text}")


def parse_share(text: str, where: str) -> float:
    """`0.5%` or `0.005` as a number in [0, 1)."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share < 1.0:
        raise UserError(
            f"{where}: {text!r} is not a share; expected a number from 0 to 1, or a percentage as 0.5%"
        )
    return share


def refuse_missing_arms(
    baseline: Baseline, known: Collection[str], where: str, plan: Collection[tuple[str, str]]
) -> None:
    """UserError if an arm is guarded that is not among the known ones."""
    missing = [name for name in dict.fromkeys(arm for arm, _ in plan) if name not in known]
    if missing:
        raise UserError(
            f"{where}: {unknown_name('arm', missing[0], known)}; {baseline.file} guards it: leave it out "
            "with --arm, or make a new baseline"
        )


def refuse_other_days(
    baseline: Baseline, scenario: Scenario, where: str, plan: Mapping[tuple[str, str], float]
) -> None:
    """UserError if a market is guarded and the scenario's lasts longer or shorter, or there is none."""
    market = baseline.scenario.get("market")
    lasted = market.get("days") if isinstance(market, dict) else None
    now = 0 if scenario.market is None else math.ceil(scenario.market.days)
    for arm, metric in plan:
        before = len(baseline.blocks.arms[arm].days.get("requests", ()))
        if metric in MARKET_METRICS and before != now:
            raise UserError(
                f"{where}: the market has {now or 'no'} days, {before} in {baseline.file}; leave the market_ "
                "metrics out with --metric, or make a new baseline"
            )
        if metric in MARKET_METRICS and scenario.market is not None and scenario.market.days != lasted:
            raise UserError(  # the last day is cut at another hour: other requests
                f"{where}: the market lasts {scenario.market.days:g} days, {lasted} in {baseline.file}; "
                "leave the market_ metrics out with --metric, or make a new baseline"
            )


def judge(
    before: Blocks, after: Blocks, plan: Mapping[tuple[str, str], float], *, is_paired: bool
) -> list[MetricChange]:
    """The comparison itself, for {(arm, metric): tolerance}. Both sides' groups are made equal first."""
    groups = min(before.groups, after.groups)
    before, after = before.with_groups(groups), after.with_groups(groups)
    compare = paired_change if is_paired else unpaired_change
    moves = []
    for arm, metric in plan:
        parts = before.arms[arm].parts(metric), after.arms[arm].parts(metric)
        moves.append(day_change(*parts) if metric in MARKET_METRICS else compare(*parts))
    raw = [move.p_value() for move in moves]
    adjusted, levels = holm(raw), holm_alpha(raw, ALPHA)
    return [
        MetricChange(
            arm=arm,
            metric=metric,
            before=before.arms[arm].values.get(metric) or 0.0,
            after=after.arms[arm].values.get(metric),
            move=move,
            p=p,
            tolerance=tolerance,
            mde=move.minimum_detectable_effect(level, tolerance),
            has_changed=before.arms[arm].values.get(metric) != after.arms[arm].values.get(metric)
            or move.se > ROUNDING,
        )
        for ((arm, metric), tolerance), move, p, level in zip(
            plan.items(), moves, adjusted, levels, strict=True
        )
    ]
