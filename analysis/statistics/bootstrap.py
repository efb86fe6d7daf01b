"""How sure a metric is: paired bootstrap over requests, and the spread between seeds.

A metric is a function of sums over requests of per-request statistics. One set of resample counts, drawn
from the seed and the number of requests alone, serves every arm and metric; lifts and differences between
arms are recomputed inside each resample, so what arms have in common cancels. Intervals are 95 % percentile
intervals.

A metric that adds up absolute gaps, or picks the largest of many, rises with noise. A resample has the noise
of the data and its own on top, so its values lie above the data's and their percentiles may lie above the
value itself. Such a metric is `centred`: the percentiles are moved until their median is the value. What the
interval is of is then the metric's mean over other traffic of the same length; with more requests the metric
falls. Covers 95 % and, where all of the metric is noise, up to 99 %.

    ratio_…      ratios of sums over requests: intervals with lifts, differences, lifts over every rival
    function_…   functions of sums over groups of requests (bins, per-advertiser sums): the same
    quantile_intervals, variance_reduction, seed_spread

Sums are exact: each column is split into two parts of few enough bits that no partial sum rounds. So a
result is the same to the last bit whatever the matrix library, its threads, the chunking, and the other
arms present.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.metrics.ratio import divide
from cascade_sim.analysis.statistics.estimates import finite, t_quantile
from cascade_sim.foundation.limits import COUNTED_AT_ONCE, SUMMED_AT_ONCE

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]

Ratios = Mapping[str, tuple[str, str | None]]  # metric -> (numerator, denominator) among the columns
Columns = Mapping[str, Mapping[str, ArrayLike]]  # arm -> column -> [R]

STRETCHES = 128  # of consecutive requests, for the worth of pairing
MIN_STRETCHES = 8  # with fewer a variance says nothing
_MIN_DEFINED = 0.95  # share of resamples that must define a metric for its interval to be given


def resample_counts(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each of n units is drawn in each resample (n draws with replacement).  [chunk, n]"""
    generator = np.random.Generator(np.random.PCG64(seed))
    step = max(1, COUNTED_AT_ONCE // max(n, 1))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = generator.integers(0, n, size=(rows, n))
        drawn += np.arange(rows)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


class _ExactSums:
    """counts @ columns without rounding on the way, for counts that are whole, >= 0 and sum to at most n.

    With |x| < 2^m and n <= 2^b, multiples of 2^(m+b-52) sum exactly in float64 in any order. A column is
    the sum of its nearest such multiples (high), the rest treated likewise (low), and a remainder below
    2^(m+2b-104), dropped.
    """

    def __init__(self, columns: Floats) -> None:
        high, rest = self._split(columns)
        low, _ = self._split(rest)
        self.n = columns.shape[1]
        self.has_low = np.flatnonzero(low.any(axis=0))
        self.parts = np.concatenate([high, low[:, self.has_low]], axis=1)  # one product for both

    @staticmethod
    def _split(x: Floats) -> tuple[Floats, Floats]:
        n = max(len(x), 1)
        _, exponent = np.frexp(np.abs(x).max(axis=0, initial=0.0))
        # far below the smallest meaningful statistic; keeps x / quantum from overflowing
        quantum = np.ldexp(1.0, np.maximum(exponent + math.ceil(math.log2(n)) - 52, -960))
        high = np.rint(x / quantum) * quantum
        return high, x - high

    def __call__(self, counts: Floats) -> Floats:
        of_parts = counts @ self.parts
        sums = of_parts[:, : self.n]
        sums[:, self.has_low] += of_parts[:, self.n :]
        return sums


def _replicate(
    columns: Mapping[str, Floats], evaluate: Mapping[str, Statistic], resamples: int, seed: int
) -> dict[str, Floats]:
    """Each arm's metrics on the data (row 0) and on every resample.  [N, S] -> [1 + resamples, metrics]

    A column that an arm has in common with the first (what the oracle charged) is summed once.
    """
    first, *others = columns
    whole = _ExactSums(columns[first])
    is_own = {arm: _differs(columns[arm], columns[first]) for arm in others}
    is_shared = {arm: np.flatnonzero(~differs) for arm, differs in is_own.items()}
    own = {arm: _ExactSums(columns[arm][:, is_own[arm]]) for arm in others}
    n = len(columns[first])
    rows: dict[str, list[Floats]] = {arm: [] for arm in columns}
    step = max(1, SUMMED_AT_ONCE // max(table.shape[1] for table in columns.values()))
    drawn = chain([np.ones((1, n))], resample_counts(n, resamples, seed) if n else ())
    # Several threads at so small products wait for each other most of the time, at full speed.
    with _matrix_library().limit(limits=1, user_api="blas"):
        for counts in (some[at : at + step] for some in drawn for at in range(0, len(some), step)):
            shared = whole(counts)
            rows[first].append(evaluate[first](shared))
            for arm in others:
                sums = np.empty((len(counts), columns[arm].shape[1]))
                sums[:, is_own[arm]] = own[arm](counts)
                sums[:, is_shared[arm]] = shared[:, is_shared[arm]]
                rows[arm].append(evaluate[arm](sums))
    return {arm: np.concatenate(parts) for arm, parts in rows.items()}


@cache
def _matrix_library() -> Any:
    """Numpy's matrix library, which can be told how many threads to use."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _differs(table: Floats, other: Floats) -> NDArray[np.bool_]:
    """Which columns are not, in every row, those of the other table at the same place.  [N, S] -> [S]"""
    differs = np.ones(table.shape[1], bool)
    n = min(table.shape[1], other.shape[1])
    differs[:n] = (table[:, :n] != other[:, :n]).any(axis=0)
    return differs


def _interval(values: Floats, centred: bool = False, floor: float = -math.inf) -> dict[str, Any]:
    """{"value", "low", "high"} of a metric on the data (first) and on the resamples; None if undefined.

    `centred`: the percentiles are moved to have their median at the value, but not below the floor.
    """
    drawn = values[1:]
    defined = drawn[np.isfinite(drawn)]
    low, high = math.nan, math.nan
    if math.isfinite(values[0]) and defined.size and defined.size >= _MIN_DEFINED * drawn.size:
        low, middle, high = np.percentile(defined, [2.5, 50.0, 97.5])
        if centred:
            low, high = max(floor, values[0] - (middle - low)), values[0] + (high - middle)
    return {"value": finite(values[0]), "low": finite(low), "high": finite(high)}


def _lift(values: Floats, base: Floats) -> Floats:
    return divide(values, base) - 1.0


@dataclass(frozen=True)
class RatioSample:
    """Ratios of sums of every arm, on the data and on one set of resamples, for all that is asked of them.

    columns: {arm: {name: [R]}}. ratios: {metric: (numerator name, denominator name)}; None as the
    denominator counts the requests, so (x, None) is the mean of x. A request whose numerator or denominator
    is NaN is not there for that metric: both count 0. None stands for whatever is undefined: a zero
    denominator, a column the arm does not have, or an interval for which more than 5 % of the resamples
    leave the metric undefined.
    """

    metrics: tuple[str, ...]
    replicates: Mapping[str, Floats]  # {arm: [1 + resamples, metrics]}, the data first

    @classmethod
    def of(cls, columns: Columns, ratios: Ratios, resamples: int, seed: int) -> RatioSample:
        """The ratios with as many resamples, drawn from the seed and the number of requests alone."""
        return cls(tuple(ratios), _ratio_replicates(columns, ratios, resamples, seed))

    def with_data(self, columns: Columns, ratios: Ratios) -> RatioSample:
        """The same resamples with the data of these columns, where the resampled have model uncertainty."""
        data = _ratio_replicates(columns, ratios, 0, 0)
        made = {arm: np.concatenate([data[arm][:1], drawn[1:]]) for arm, drawn in self.replicates.items()}
        return RatioSample(self.metrics, made)

    def intervals(self, baseline: str) -> dict[str, dict[str, dict[str, Any]]]:
        """{arm: {metric: {"value", "low", "high", "lift": {...}}}}, paired.

        lift = metric(arm) / metric(baseline) − 1, absent for the baseline.
        """
        result: dict[str, dict[str, dict[str, Any]]] = {}
        for arm, replicates in self.replicates.items():
            result[arm] = {}
            for i, metric in enumerate(self.metrics):
                result[arm][metric] = _interval(replicates[:, i])
                if arm != baseline:
                    base = self.replicates[baseline][:, i]
                    result[arm][metric]["lift"] = _interval(_lift(replicates[:, i], base))
        return result

    def contrasts(
        self, arms: Sequence[str], rivals: Iterable[str], metrics: Iterable[str]
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """Paired lift of each of `arms` over every rival: {arm: {rival: {metric: {"value", "low", "high"}}}}.

        The same numbers as the lifts of `intervals` with each rival as the baseline.
        """
        places = {metric: self.metrics.index(metric) for metric in metrics}
        return {
            arm: {
                rival: {
                    metric: _interval(_lift(self.replicates[arm][:, i], self.replicates[rival][:, i]))
                    for metric, i in places.items()
                }
                for rival in rivals
                if rival != arm
            }
            for arm in arms
        }

    def differences(self, baseline: str) -> dict[str, dict[str, dict[str, Any]]]:
        """metric(arm) - metric(baseline) of every other arm: {arm: {metric: {"value", "low", "high"}}}."""
        base = self.replicates[baseline]
        return {
            arm: {metric: _interval(drawn[:, i] - base[:, i]) for i, metric in enumerate(self.metrics)}
            for arm, drawn in self.replicates.items()
            if arm != baseline
        }


def ratio_intervals(
    columns: Columns, ratios: Ratios, baseline: str, resamples: int, seed: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """Ratios of sums with paired intervals, as `RatioSample` has them."""
    if baseline not in columns:  # before anything is drawn
        raise ValueError(f"baseline {baseline!r} is not among the arms: {', '.join(columns)}")
    return RatioSample.of(columns, ratios, resamples, seed).intervals(baseline)


def ratio_contrasts(
    columns: Columns, ratios: Ratios, arms: Sequence[str], resamples: int, seed: int
) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Paired lift of each of `arms` over every other arm, as `RatioSample` has them."""
    return RatioSample.of(columns, ratios, resamples, seed).contrasts(arms, list(columns), ratios)


def ratio_differences(
    columns: Columns, ratios: Ratios, baseline: str, resamples: int, seed: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """metric(arm) - metric(baseline) of every other arm, as `RatioSample` has them."""
    return RatioSample.of(columns, ratios, resamples, seed).differences(baseline)


def _ratio_replicates(columns: Columns, ratios: Ratios, resamples: int, seed: int) -> dict[str, Floats]:
    """Each arm's ratios on the data (row 0) and on every resample.  [1 + resamples, metrics]"""
    lengths = {np.shape(x) for table in columns.values() for x in table.values()}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise ValueError(f"columns must be one-dimensional and of one length, not {sorted(lengths)}")
    for metric, names in ratios.items():
        if not any(all(name is None or name in table for name in names) for table in columns.values()):
            raise ValueError(f"no arm has the columns {names} of {metric!r}")
    n = next(iter(lengths))[0]
    tables, evaluate = {}, {}
    for arm, table in columns.items():
        tables[arm], evaluate[arm] = _ratio_columns(arm, table, ratios, n)
    return _replicate(tables, evaluate, resamples, seed)


def _ratio_columns(
    arm: str, table: Mapping[str, ArrayLike], ratios: Ratios, n: int
) -> tuple[Floats, Statistic]:
    """The columns to be summed for an arm [R, S], and the function from sums [B, S] to metrics [B, M]."""
    index: dict[Any, int] = {}
    columns: list[Floats] = []

    def place(key: Any, column: Floats) -> int:
        if key not in index:
            index[key] = len(columns)
            columns.append(column)
        return index[key]

    zero = place(("zero",), np.zeros(n))  # 0 / 0 for a metric this arm has no columns for
    pairs = []
    for metric, (top_name, bottom_name) in ratios.items():
        if top_name not in table or (bottom_name is not None and bottom_name not in table):
            pairs.append((zero, zero))
            continue
        top = np.asarray(table[top_name], np.float64)
        bottom = np.ones(n) if bottom_name is None else np.asarray(table[bottom_name], np.float64)
        if np.isinf(top).any() or np.isinf(bottom).any():
            raise ValueError(f"infinite values in the columns of {metric!r} of arm {arm!r}")
        is_missing = np.isnan(top) | np.isnan(bottom)
        if is_missing.any():
            top, bottom = np.where(is_missing, 0.0, top), np.where(is_missing, 0.0, bottom)
            keys: tuple[Any, Any] = ((metric, "top"), (metric, "bottom"))
        else:
            keys = (("column", top_name), ("column", bottom_name))  # shared by the metrics that use them
        pairs.append((place(keys[0], top), place(keys[1], bottom)))
    tops, bottoms = (list(side) for side in zip(*pairs, strict=True)) if pairs else ([], [])
    return np.stack(columns, axis=1), lambda sums: divide(sums[:, tops], sums[:, bottoms])


def sum_groups(per_request: ArrayLike, n_groups: int) -> Floats:
    """Sums over runs of consecutive requests of about equal length.  [R, ...] -> [min(n_groups, R), ...]"""
    per_request = np.asarray(per_request, np.float64)
    n = len(per_request)
    groups = min(n_groups, n)
    starts = np.arange(groups) * n // max(groups, 1)
    return np.add.reduceat(per_request, starts, axis=0) if n else per_request


def function_intervals(
    sums_by_group: ArrayLike, function: Statistic, resamples: int, seed: int, *, centred: bool = False
) -> dict[str, Any]:
    """{"value", "low", "high"} of function(sum over groups), by resampling groups of requests.

    sums_by_group [G, ...]: a vector statistic (bins, per-advertiser sums) summed within each group;
    function maps [B, ...] to [B]. Take many groups (a hundred or more): intervals from few are too narrow.
    `centred`: the function rises with noise and is never negative.
    """
    return paired_function_intervals({"": sums_by_group}, function, "", resamples, seed, centred=centred)[""]


def paired_function_intervals(
    sums_by_group: Mapping[str, ArrayLike],
    function: Statistic,
    baseline: str,
    resamples: int,
    seed: int,
    *,
    centred: bool = False,
) -> dict[str, dict[str, Any]]:
    """function_intervals for every arm on the same resamples, with the lift relative to the baseline arm.

    sums_by_group: {arm: [G, ...]} with the same groups in every arm. If the baseline is not among them,
    lifts are None throughout.
    """
    functions = {"": Function(function, centred)}
    return paired_functions_intervals(sums_by_group, functions, baseline, resamples, seed)[""]


@dataclass(frozen=True)
class Function:
    """A metric of summed vectors, [B, ...] -> [B]; `centred`: it rises with noise and is never negative."""

    of_sums: Statistic
    centred: bool = False


def paired_functions_intervals(
    sums_by_group: Mapping[str, ArrayLike],
    functions: Mapping[str, Function],
    baseline: str,
    resamples: int,
    seed: int,
) -> dict[str, dict[str, dict[str, Any]]]:
    """paired_function_intervals of several functions of the same sums, which are summed once.

    {name of the function: {arm: {"value", "low", "high", "lift": {...}}}}
    """
    return FunctionSample.of(sums_by_group, functions, resamples, seed).intervals(baseline)


@dataclass(frozen=True)
class FunctionSample:
    """Functions of summed vectors of every arm, on the data and on one set of resamples, for all that is
    asked of them."""

    functions: Mapping[str, Function]
    replicates: Mapping[str, Floats]  # {arm: [1 + resamples, functions]}, the data first

    @classmethod
    def of(
        cls,
        sums_by_group: Mapping[str, ArrayLike],
        functions: Mapping[str, Function],
        resamples: int,
        seed: int,
    ) -> FunctionSample:
        """Of sums over groups of requests, {arm: [G, ...]}, the same groups in every arm."""
        several = [function.of_sums for function in functions.values()]
        return cls(functions, _function_replicates(sums_by_group, several, resamples, seed))

    def intervals(self, baseline: str) -> dict[str, dict[str, dict[str, Any]]]:
        """{function: {arm: {"value", "low", "high", "lift": {...}}}}; no lift for the baseline."""
        values = self.replicates
        result: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in self.functions}
        for i, (name, function) in enumerate(self.functions.items()):
            for arm, drawn in values.items():
                row = result[name][arm] = _interval(drawn[:, i], function.centred, floor=0.0)
                if arm != baseline:
                    base = values[baseline][:, i] if baseline in values else np.full(len(drawn), np.nan)
                    row["lift"] = _interval(_lift(drawn[:, i], base), function.centred, floor=-1.0)
        return result

    def differences(self, baseline: str) -> dict[str, dict[str, dict[str, Any]]]:
        """{function: {arm: {"value", "low", "high"}}} of the arm less the baseline; empty without it."""
        values = self.replicates
        return {
            name: {
                arm: _interval(drawn[:, i] - values[baseline][:, i], function.centred)
                for arm, drawn in values.items()
                if arm != baseline
            }
            for i, (name, function) in enumerate(self.functions.items())
            if baseline in values
        }


def function_differences(
    sums_by_group: Mapping[str, ArrayLike],
    function: Statistic,
    baseline: str,
    resamples: int,
    seed: int,
    *,
    centred: bool = False,
) -> dict[str, dict[str, Any]]:
    """function(sums of an arm) - function(sums of the baseline): {arm: {"value", "low", "high"}}.

    Arguments as in paired_function_intervals; without the baseline among the arms there is no difference.
    """
    if baseline not in sums_by_group:
        return {}
    sample = FunctionSample.of(sums_by_group, {"": Function(function, centred)}, resamples, seed)
    return sample.differences(baseline)[""]


def function_gaps(
    sums_by_group: Mapping[str, ArrayLike],
    function: Statistic,
    resamples: int,
    seed: int,
    *,
    centred: bool = False,
) -> dict[str, dict[str, dict[str, Any]]]:
    """How much greater function(sum over groups) is for an arm than for a later one, on the same resamples.

    {arm: {later arm: {"value", "low", "high"}}}: every pair once; the last arm has none after it and is
    left out. Arguments as in paired_function_intervals.
    """
    if len(sums_by_group) < 2:
        return {}
    values = _function_replicates(sums_by_group, [function], resamples, seed)
    arms = list(values)
    return {
        arm: {later: _interval((values[arm] - values[later])[:, 0], centred) for later in arms[i + 1 :]}
        for i, arm in enumerate(arms[:-1])
    }


def _function_replicates(
    sums_by_group: Mapping[str, ArrayLike], functions: Sequence[Statistic], resamples: int, seed: int
) -> dict[str, Floats]:
    """Functions of each arm's sum over groups, on the data (first) and on resamples.  [1 + resamples, F]"""
    tables = {arm: np.asarray(sums, np.float64) for arm, sums in sums_by_group.items()}
    if not tables:
        return {}
    if len({table.shape for table in tables.values()}) != 1:
        raise ValueError("arms differ in the shape of their sums")
    for arm, table in tables.items():
        if not np.isfinite(table).all():
            raise ValueError(f"sums of arm {arm!r} are not all finite")
    shape = next(iter(tables.values())).shape

    def evaluate(sums: Floats) -> Floats:
        vectors = sums.reshape(-1, *shape[1:])
        return np.stack([np.asarray(function(vectors), np.float64) for function in functions], axis=1)

    flat = {arm: table.reshape(shape[0], -1) for arm, table in tables.items()}
    return _replicate(flat, dict.fromkeys(flat, evaluate), resamples, seed)


def quantile_intervals(
    values: Floats,
    request: NDArray[np.int64],
    n_requests: int,
    levels: Sequence[float],
    resamples: int,
    seed: int,
) -> list[dict[str, Any]]:
    """{"value", "low", "high"} of each level: the least value that so large a share does not exceed.

    values, request: [I], a value and the request (0 to n_requests - 1) it belongs to. Requests are resampled
    with all their values, as many as there are. No values: None throughout.
    """
    nothing = {"value": None, "low": None, "high": None}
    if not len(values):
        return [dict(nothing) for _ in levels]
    order = np.argsort(values, kind="stable")
    ranked, owner = values[order], request[order]
    on_data = _quantiles(ranked, np.ones((1, len(ranked))), levels)[0]
    rows = []
    step = max(1, COUNTED_AT_ONCE // len(ranked))
    for counts in resample_counts(n_requests, resamples, seed):
        for start in range(0, len(counts), step):
            weights = counts[start : start + step][:, owner]
            rows.append(_quantiles(ranked, weights[weights.any(axis=1)], levels))
    drawn = np.concatenate(rows) if rows else np.zeros((0, len(levels)))
    if not len(drawn):
        return [{**nothing, "value": float(value)} for value in on_data]
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return [
        {"value": float(v), "low": float(a), "high": float(b)}
        for v, a, b in zip(on_data, low, high, strict=True)
    ]


def _quantiles(ranked: Floats, weights: Floats, levels: Sequence[float]) -> Floats:
    """Weighted quantiles of ascending values.  [I], [B, I] -> [B, levels]"""
    below = np.cumsum(weights, axis=1)  # weights are integers: their sums are exact
    return np.stack([ranked[np.argmax(below >= level * below[:, -1:], axis=1)] for level in levels], axis=1)


def variance_reduction(
    current: ArrayLike, variant: ArrayLike, resamples: int, seed: int, stretches: int = STRETCHES
) -> dict[str, Any]:
    """{"value", "low", "high"}: how many times pairing shrinks the variance of a difference of means.

    current, variant [R]: what two arms got from the same requests. Traffic is cut into G stretches of
    consecutive requests; a_g and b_g are the means of the two arms on stretch g.

        paired        d_g = b_g - a_g: the same requests and common random numbers
        independent   u_g = b_h - a_g with h another stretch: other requests and independent random numbers

    The worth of common random numbers is Var(u) / Var(d). Var(u) is the mean of the sample variance of u over
    all ways to shift the second arm by 1 to G - 1 stretches. Over all shifts the covariance of b with a sums
    to 0, so that mean is Var(a) + Var(b) + 2 Cov(a, b) / (G - 1). World and models are the same on both
    sides; with other worlds the independent variance would be larger still.

    Intervals by resampling stretches. All None if the arms never differ (pairing leaves no variance at all)
    or there are too few requests.
    """
    ones = np.ones(len(np.asarray(current)))
    sums = np.stack([np.asarray(current, np.float64), np.asarray(variant, np.float64), ones], axis=1)
    groups = sum_groups(sums, stretches)
    a, b = groups[:, 0] / groups[:, 2], groups[:, 1] / groups[:, 2]
    if len(groups) < MIN_STRETCHES or np.array_equal(a, b):
        return {"value": None, "low": None, "high": None}
    n = len(a)
    ratios = [variance_ratio(a, b, np.ones((1, n)))]
    ratios += [variance_ratio(a, b, counts) for counts in resample_counts(n, resamples, seed)]
    return _interval(np.concatenate(ratios))


def variance_ratio(a: Floats, b: Floats, counts: Floats) -> Floats:
    """Var(u) / Var(d) of stretches taken so many times each.  [G], [G], [B, G] -> [B]; inf if Var(d) = 0"""
    n = counts.sum(axis=1)
    mean_a, mean_b = counts @ a / n, counts @ b / n
    off_a, off_b = a - mean_a[:, None], b - mean_b[:, None]
    var_a = (counts * off_a**2).sum(axis=1) / (n - 1)
    var_b = (counts * off_b**2).sum(axis=1) / (n - 1)
    covariance = (counts * off_a * off_b).sum(axis=1) / (n - 1)
    paired = (counts * (off_b - off_a) ** 2).sum(axis=1) / (n - 1)
    independent = var_a + var_b + 2.0 * covariance / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(paired > 0, independent / paired, np.inf)


def seed_spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean over seeds with its 95 % Student t interval and the standard deviation between seeds.

    Seeds in which the metric is undefined (None or not finite) are left out. One seed left: low, high and
    sd are None; none left: the value as well.
    """
    defined = [float(v) for v in values if v is not None and math.isfinite(v)]
    n = len(defined)
    if n == 0:
        return {"value": None, "low": None, "high": None, "sd": None}
    mean = math.fsum(defined) / n
    if n == 1:
        return {"value": mean, "low": None, "high": None, "sd": None}
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in defined) / (n - 1))
    half = t_quantile(0.975, n - 1) * sd / math.sqrt(n)
    return {"value": mean, "low": mean - half, "high": mean + half, "sd": sd}
