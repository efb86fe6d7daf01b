"""Summary statistics of a log and of a world, side by side.

Every statistic is a function of a sample and of a weight for each of its requests. An interval comes from
weights that count how often a request, or its whole hour, is drawn when as many are drawn with replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade_sim.analysis.statistics.bootstrap import resample_counts
from cascade_sim.analysis.statistics.estimates import finite
from cascade_sim.logs.fidelity.sample import Sample
from cascade_sim.logs.store.format import CHARGED_BY, charged

RESAMPLES = 200
TAIL = 0.05  # share of bids that the tail index looks at
FEWEST = 20  # clicks, conversions, …: with fewer a rate says nothing
MAX_RANKED = 20_000  # rows of which ranks are taken
MICROS = 1e6


@dataclass(frozen=True)
class Statistic:
    """A number of a market. `unit`: percent, money, number or seconds; `of` gives NaN where there is none.

    `is_relative`: two markets are compared by the ratio; else by the difference. `more`: what a larger value
    means, of the world; it completes "in the world …".
    """

    name: str
    label: str
    unit: str
    of: Callable[[Sample, np.ndarray], float]
    more: str
    less: str
    needs: tuple[str, ...] = ()
    is_relative: bool = True
    group: str = "response"


def _ratio(top: np.ndarray, bottom: np.ndarray) -> float:
    total = float(np.sum(bottom))
    return float(np.sum(top)) / total if total > 0 else np.nan


def _rows(sample: Sample, weight: np.ndarray, is_in: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which rows, and their weights."""
    at = np.flatnonzero(is_in)
    return at, weight[sample.request[at]]


def _known_clicks(sample: Sample) -> np.ndarray:
    return sample.is_shown & (sample.candidates["click"] >= 0)


def ctr(sample: Sample, weight: np.ndarray) -> float:
    at, w = _rows(sample, weight, _known_clicks(sample))
    return _ratio(w * (sample.candidates["click"][at] == 1), w)


def _of_slot(slot: int) -> Callable[[Sample, np.ndarray], float]:
    def relative(sample: Sample, weight: np.ndarray) -> float:
        known, column = _known_clicks(sample), sample.candidates["slot"]
        rates = []
        for own in (slot, 0):
            at, w = _rows(sample, weight, known & (column == own))
            clicks = w * (sample.candidates["click"][at] == 1)
            if clicks.sum() < FEWEST:
                return np.nan
            expected = w * sample.candidates["pctr"][at] if sample.has("pctr") else w
            rates.append(_ratio(clicks, expected))
        return rates[0] / rates[1]

    return relative


def _spread_over(
    key: Callable[[Sample, np.ndarray], np.ndarray],
) -> Callable[[Sample, np.ndarray], float]:
    """Coefficient of variation of the CTR between ads, users, …, without the noise of clicks.

    The mean square of a group's CTR is estimated by clicks of one half of the units times those of the other,
    whose noise is independent; squared counts of one sample would add the noise to it.
    """

    def spread(sample: Sample, weight: np.ndarray) -> float:
        at, w = _rows(sample, weight, _known_clicks(sample))
        groups = key(sample, at)
        half = sample.unit[sample.request[at]] % 2
        clicks = sample.candidates["click"][at] == 1
        n = int(groups.max()) + 1 if len(groups) else 0
        tops = [np.bincount(groups, w * clicks * (half == side), n) for side in (0, 1)]
        bottoms = [np.bincount(groups, w * (half == side), n) for side in (0, 1)]
        pairs = float(np.sum(bottoms[0] * bottoms[1]))
        if pairs <= 0 or min(top.sum() for top in tops) < FEWEST:
            return np.nan
        square = np.sum(tops[0] * tops[1]) / pairs
        means = [np.sum(tops[0] * bottoms[1]) / pairs, np.sum(bottoms[0] * tops[1]) / pairs]
        mean = means[0] * means[1]
        return float(np.sqrt(max(0.0, square / mean - 1.0))) if mean > 0 else np.nan

    return spread


def _by_ad(sample: Sample, at: np.ndarray) -> np.ndarray:
    return sample.candidates["ad"][at]


def _by_request(column: str) -> Callable[[Sample, np.ndarray], np.ndarray]:
    return lambda sample, at: sample.codes(column)[sample.request[at]]


def _bids(sample: Sample, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of bids above 0 in rising order, and their weights."""
    logs, at = sample.log_bids
    return logs, weight[sample.request[at]]


def median_bid(sample: Sample, weight: np.ndarray) -> float:
    logs, w = _bids(sample, weight)
    return float(np.exp(quantile(logs, w, 0.5)))


def bid_spread(sample: Sample, weight: np.ndarray) -> float:
    return _deviation(*_bids(sample, weight))


def quantile(rising: np.ndarray, weight: np.ndarray, share: float) -> float:
    """The value below which a share of the weight lies."""
    total = np.cumsum(weight)
    if not len(total) or total[-1] <= 0:
        return np.nan
    return float(rising[np.searchsorted(total, share * total[-1]).clip(0, len(rising) - 1)])


def _deviation(values: np.ndarray, weight: np.ndarray) -> float:
    total = weight.sum()
    if total <= 0:
        return np.nan
    mean = np.sum(weight * values) / total
    return float(np.sqrt(np.sum(weight * (values - mean) ** 2) / total))


def tail_index(sample: Sample, weight: np.ndarray) -> float:
    """Hill's estimate from the highest bids: the share above b falls as b^-index. Less is heavier."""
    logs, w = _bids(sample, weight)
    total = np.cumsum(w)
    if not len(total) or total[-1] <= 0:
        return np.nan
    start = int(np.searchsorted(total, (1.0 - TAIL) * total[-1]))
    above = w[start:] * (logs[start:] - logs[min(start, len(logs) - 1)])
    mean = _ratio(above, w[start:])
    return 1.0 / mean if mean > 0 else np.nan


def spread_within_ad(sample: Sample, weight: np.ndarray) -> float:
    """Standard deviation of the log-bid of an ad from request to request."""
    logs, at = sample.log_bids
    w, ads = weight[sample.request[at]], sample.candidates["ad"][at]
    n = int(ads.max()) + 1 if len(ads) else 0
    total = np.bincount(ads, w, n)
    mean = np.bincount(ads, w * logs, n) / np.maximum(total, 1e-300)
    spread = float(np.sqrt(_ratio(w * (logs - mean[ads]) ** 2, w)))
    return 0.0 if spread < ROUNDED else spread


ROUNDED = 1e-9  # below, a spread is what rounding made of bids that are all the same


def _mean(column: str, where: str = "all") -> Callable[[Sample, np.ndarray], float]:
    def mean(sample: Sample, weight: np.ndarray) -> float:
        values = sample.candidates[column]
        is_in = np.isfinite(values) if where == "all" else np.isfinite(values) & sample.is_shown
        at, w = _rows(sample, weight, is_in)
        return _ratio(w * values[at], w)

    return mean


def pctr_spread(sample: Sample, weight: np.ndarray) -> float:
    """Standard deviation of the logarithm of the pCTR over candidates."""
    pctr = sample.candidates["pctr"]
    at, w = _rows(sample, weight, pctr > 0)
    return _deviation(np.log(pctr[at].astype(np.float64)), w)


def calibration(sample: Sample, weight: np.ndarray) -> float:
    """Clicks over predicted clicks of shown ads."""
    at, w = _rows(sample, weight, _known_clicks(sample))
    return _ratio(w * (sample.candidates["click"][at] == 1), w * sample.candidates["pctr"][at])


def _count(of: Callable[[Sample], np.ndarray]) -> Callable[[Sample, np.ndarray], float]:
    return lambda sample, weight: _ratio(weight * of(sample), weight)


def candidates_of(sample: Sample) -> np.ndarray:
    return np.bincount(sample.request, minlength=len(sample)).astype(np.float64)


def ranked_of(sample: Sample) -> np.ndarray:
    return np.bincount(sample.request, sample.candidates["stage"] >= 1, minlength=len(sample))


def shown_of(sample: Sample) -> np.ndarray:
    return np.bincount(sample.request, sample.is_shown, minlength=len(sample))


def candidate_spread(sample: Sample, weight: np.ndarray) -> float:
    return _deviation(candidates_of(sample), weight)


def filled(sample: Sample, weight: np.ndarray) -> float:
    return _ratio(weight * shown_of(sample), weight * sample.requests["slots"])


def _priced(sample: Sample, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _rows(sample, weight, sample.is_shown & (sample.candidates["price_micros"] >= 0))


def price(sample: Sample, weight: np.ndarray) -> float:
    at, w = _priced(sample, weight)
    return _ratio(w * sample.candidates["price_micros"][at] / MICROS, w)


def price_to_bid(sample: Sample, weight: np.ndarray) -> float:
    at, w = _priced(sample, weight)
    return _ratio(w * sample.candidates["price_micros"][at] / MICROS, w * sample.candidates["bid"][at])


def revenue_per_request(sample: Sample, weight: np.ndarray) -> float:
    at, w = _priced(sample, weight)
    by = {name: sample.candidates[name][at] for name in CHARGED_BY if sample.has(name)}
    is_paid = charged(sample.charging, by)
    return float(np.sum(w * is_paid * sample.candidates["price_micros"][at]) / MICROS / weight.sum())


def _top_share(share: float, of_shown: bool) -> Callable[[Sample, np.ndarray], float]:
    def top(sample: Sample, weight: np.ndarray) -> float:
        is_in = sample.is_shown if of_shown else np.ones(len(sample.request), bool)
        at, w = _rows(sample, weight, is_in)
        counts = np.sort(np.bincount(sample.candidates["ad"][at], w, sample.n_ads))[::-1]
        n = max(1, round(share * sample.n_ads))
        return float(counts[:n].sum() / counts.sum()) if counts.sum() > 0 else np.nan

    return top


def returning(sample: Sample, weight: np.ndarray) -> float:
    known = sample.visits >= 0
    return _ratio(weight[known] * (sample.visits[known] > 0), weight[known])


def pages_clicked(sample: Sample, weight: np.ndarray) -> float:
    """Share of pages with a click."""
    return _ratio(weight * (_page_clicks(sample) > 0), weight)


def pages_clicked_again(sample: Sample, weight: np.ndarray) -> float:
    """Of pages with a click, those with more than one."""
    clicks = _page_clicks(sample)
    if np.sum(weight * (clicks > 1)) < FEWEST:
        return np.nan
    return _ratio(weight * (clicks > 1), weight * (clicks > 0))


def _page_clicks(sample: Sample) -> np.ndarray:
    clicks = _known_clicks(sample) & (sample.candidates["click"] == 1)
    return np.bincount(sample.request, clicks, minlength=len(sample))


def _clicked(sample: Sample, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    candidates = sample.candidates
    return _rows(sample, weight, (candidates["click"] == 1) & (candidates["conversion"] >= 0))


def conversions_per_click(sample: Sample, weight: np.ndarray) -> float:
    at, w = _clicked(sample, weight)
    converted = w * (sample.candidates["conversion"][at] == 1)
    return _ratio(converted, w) if converted.sum() >= FEWEST else np.nan


def median_delay(sample: Sample, weight: np.ndarray) -> float:
    delay = sample.candidates["conversion_delay"]
    at, w = _rows(sample, weight, np.isfinite(delay))
    if w.sum() < FEWEST:
        return np.nan
    order = np.argsort(delay[at], kind="stable")
    return quantile(delay[at][order].astype(np.float64), w[order], 0.5)


def _correlation(a: str, b: str, of_shown: bool = False) -> Callable[[Sample, np.ndarray], float]:
    def correlation(sample: Sample, weight: np.ndarray) -> float:
        is_in = sample.is_shown if of_shown else np.ones(len(sample.request), bool)
        at = _thinned(np.flatnonzero(is_in))
        w = weight[sample.request[at]]
        return float(
            rank_correlations(np.stack([sample.candidates[a][at], sample.candidates[b][at]]), w)[0, 1]
        )

    return correlation


def _thinned(at: np.ndarray) -> np.ndarray:
    """At most `MAX_RANKED` of these rows, evenly."""
    if len(at) <= MAX_RANKED:
        return at
    return at[np.linspace(0, len(at) - 1, MAX_RANKED).astype(np.int64)]


def rank_correlations(columns: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Spearman's correlations of rows of a table, each value with a weight; ties share their mean rank.

    [k, n], [n] -> [k, k]; NaN for a column that does not vary.
    """
    ranks = np.stack([_ranks(column, weight) for column in columns])
    total = weight.sum()
    centred = ranks - (ranks @ weight / total)[:, None] if total > 0 else ranks
    covariance = (centred * weight) @ centred.T
    scale = np.sqrt(np.diag(covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.outer(scale, scale) > 0, covariance / np.outer(scale, scale), np.nan)


def _ranks(column: np.ndarray, weight: np.ndarray) -> np.ndarray:
    place = np.unique(column, return_inverse=True)[1]
    of_value = np.bincount(place, weight)
    return (np.cumsum(of_value) - of_value / 2)[place]


STATISTICS: tuple[Statistic, ...] = (
    Statistic("ctr", "CTR of shown ads", "percent", ctr, "shown ads are clicked more often",
           "shown ads are clicked less often", ("click",)),
    Statistic("ctr_spread_ads", "CTR spread between ads", "number", _spread_over(_by_ad),
           "ads differ more in how often they are clicked", "ads differ less in how often they are clicked",
           ("click",)),
    Statistic("ctr_spread_segments", "CTR spread between segments", "number",
           _spread_over(_by_request("segment")), "segments differ more in how often they click",
           "segments differ less in how often they click", ("click", "request:segment")),
    Statistic("ctr_spread_users", "CTR spread between users", "number", _spread_over(_by_request("user")),
           "users differ more in how often they click", "users differ less in how often they click",
           ("click", "request:user")),
    Statistic("slot_2", "Slot 2 against slot 1", "number", _of_slot(1), "slot 2 is nearer to slot 1",
           "slot 2 falls off more", ("click",)),
    Statistic("slot_3", "Slot 3 against slot 1", "number", _of_slot(2), "slot 3 is nearer to slot 1",
           "slot 3 falls off more", ("click",)),
    Statistic("pages_clicked", "Pages with a click", "percent", pages_clicked, "more pages get a click",
           "fewer pages get a click", ("click",)),
    Statistic("pages_clicked_again", "Of those, with several clicks", "percent", pages_clicked_again,
           "clicks come together on a page more often", "clicks come together on a page less often",
           ("click",)),
    Statistic("conversion_rate", "Conversions per click", "percent", conversions_per_click,
           "clicks convert more often", "clicks convert less often", ("click", "conversion")),
    Statistic("conversion_delay", "Median delay of conversions", "seconds", median_delay,
           "conversions come later", "conversions come sooner", ("conversion_delay",)),
    Statistic("bid", "Median bid", "money", median_bid, "bids are higher", "bids are lower", ("bid",),
           group="bids"),
    Statistic("bid_spread", "Spread of bids (SD of the log)", "number", bid_spread, "bids are spread wider",
           "bids are spread less", ("bid",), group="bids"),
    Statistic("bid_tail", "Tail index of bids", "number", tail_index, "the highest bids are less extreme",
           "the highest bids are more extreme", ("bid",), group="bids"),
    Statistic("bid_within_ad", "Spread of an ad's own bids", "number", spread_within_ad,
           "an ad's bid changes more from request to request",
           "an ad's bid changes less from request to request", ("bid",), is_relative=False, group="bids"),
    Statistic("bid_pctr", "Correlation of bid and pCTR", "number", _correlation("bid", "pctr"),
           "bid and pCTR go together more", "bid and pCTR go together less", ("bid", "pctr"),
           is_relative=False, group="bids"),
    Statistic("bid_click", "Correlation of bid and click, shown ads", "number",
           _correlation("bid", "click", of_shown=True), "dear ads are clicked relatively more",
           "dear ads are clicked relatively less", ("bid", "click"), is_relative=False, group="bids"),
    Statistic("price", "Mean price", "money", price, "prices are higher", "prices are lower",
           ("price_micros",), group="bids"),
    Statistic("price_to_bid", "Price over bid of shown ads", "number", price_to_bid,
           "winners pay more of their bids", "winners pay less of their bids", ("price_micros", "bid"),
           group="bids"),
    Statistic("revenue_per_request", "Revenue per request", "money", revenue_per_request,
           "a request earns more", "a request earns less", ("price_micros", "click"), group="bids"),
    Statistic("pctr", "Mean pCTR of candidates", "percent", _mean("pctr"), "predictions are higher",
           "predictions are lower", ("pctr",), group="predictions"),
    Statistic("pctr_shown", "Mean pCTR of shown ads", "percent", _mean("pctr", "shown"),
           "predictions of shown ads are higher", "predictions of shown ads are lower", ("pctr",),
           group="predictions"),
    Statistic("pctr_spread", "Spread of the pCTR (SD of the log)", "number", pctr_spread,
           "predictions are spread wider", "predictions are spread less", ("pctr",), group="predictions"),
    Statistic("calibration", "Clicks over predicted clicks", "number", calibration,
           "predictions are too low by more", "predictions are too high by more", ("pctr", "click"),
           group="predictions"),
    Statistic("candidates", "Candidates per request", "number", _count(candidates_of),
           "requests have more candidates", "requests have fewer candidates", group="stages"),
    Statistic("candidates_spread", "Their spread over requests", "number", candidate_spread,
           "requests differ more in how many candidates they have",
           "requests differ less in how many candidates they have", is_relative=False, group="stages"),
    Statistic("ranked", "Ranked per request", "number", _count(ranked_of), "more ads are ranked",
           "fewer ads are ranked", group="stages"),
    Statistic("slots", "Slots per page", "number", _count(lambda s: s.requests["slots"]),
           "pages have more slots", "pages have fewer slots", group="stages"),
    Statistic("filled", "Fill rate", "percent", filled, "more slots are filled", "fewer slots are filled",
           group="stages"),
    Statistic("top_1", "Impressions of the top 1 % of ads", "percent", _top_share(0.01, True),
           "a few ads get more of the impressions", "a few ads get less of the impressions", group="traffic"),
    Statistic("top_10", "Impressions of the top 10 %", "percent", _top_share(0.1, True),
           "popular ads get more of the impressions", "popular ads get less of the impressions",
           group="traffic"),
    Statistic("candidates_top_10", "Candidacies of the top 10 % of ads", "percent", _top_share(0.1, False),
           "popular ads are candidates more often", "popular ads are candidates less often",
           group="traffic"),
    Statistic("returning", "Requests of users who had come before", "percent", returning,
           "more requests are of users who come again", "fewer requests are of users who come again",
           ("request:user",), group="traffic"),
)  # fmt: skip


def is_there(statistic: Statistic, sample: Sample) -> bool:
    """Whether a sample has the columns of a statistic."""
    for column in statistic.needs:
        table, _, name = column.rpartition(":")
        if table == "request":
            if name not in sample.requests or len(np.unique(sample.codes(name))) < 2:
                return False
        elif not sample.has(name):
            return False
    return True


def replicate(sample: Sample, statistics: Sequence[Statistic], resamples: int, seed: int) -> np.ndarray:
    """The statistics on the data (row 0) and on every resample.  [1 + resamples, statistics]"""
    units = int(sample.unit.max()) + 1 if len(sample) else 0
    rows = [_values(sample, statistics, np.ones(len(sample)))]
    for counts in resample_counts(units, resamples, seed) if units else ():
        rows += [_values(sample, statistics, own[sample.unit]) for own in counts]
    return np.array(rows)


def _values(sample: Sample, statistics: Sequence[Statistic], weight: np.ndarray) -> list[float]:
    return [statistic.of(sample, weight) for statistic in statistics]


def entry(values: np.ndarray) -> dict[str, float | None]:
    """{"value", "low", "high"} from the data (first) and the resamples; None where it is undefined."""
    drawn = values[1:][np.isfinite(values[1:])]
    enough = len(drawn) >= 0.95 * (len(values) - 1) and len(drawn) > 1 and np.isfinite(values[0])
    low, high = np.percentile(drawn, [2.5, 97.5]) if enough else (np.nan, np.nan)
    return {"value": finite(float(values[0])), "low": finite(float(low)), "high": finite(float(high))}


def gaps(statistic: Statistic, log: np.ndarray, world: np.ndarray) -> np.ndarray:
    """How far the world is from the log, on the data (first) and on pairs of resamples.

    The ratio less 1, or the difference.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(log != 0, world / log - 1.0, np.nan) if statistic.is_relative else world - log


def side_by_side(
    log: Sample, world: Sample, periods: tuple[Sample, Sample] | None, resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Every statistic that both have: of the log, of the world, the gap, and that between the log's periods.

    `differs`: the gap is significant, adjusted for all statistics, and beyond that between the periods.
    """
    from scipy.special import ndtri

    shared = [
        statistic for statistic in STATISTICS if is_there(statistic, log) and is_there(statistic, world)
    ]
    of_log, of_world = (
        replicate(sample, shared, resamples, seed + place) for place, sample in enumerate((log, world))
    )
    apart = None
    if periods is not None:
        apart = [replicate(sample, shared, resamples, seed + 2 + i) for i, sample in enumerate(periods)]
    level = float(ndtri(1.0 - 0.025 / max(1, len(shared))))
    found = []
    for i, statistic in enumerate(shared):
        gap = gaps(statistic, of_log[:, i], of_world[:, i])
        if not np.isfinite(gap[0]):
            continue
        between = entry(gaps(statistic, apart[0][:, i], apart[1][:, i])) if apart is not None else None
        deviation = float(np.nanstd(gap[1:])) if np.isfinite(gap[1:]).any() else np.inf
        usual = abs(between["value"]) if between and between["value"] is not None else 0.0
        found.append(
            {
                "name": statistic.name, "label": statistic.label, "unit": statistic.unit,
                "group": statistic.group,
                "log": entry(of_log[:, i]), "world": entry(of_world[:, i]), "gap": entry(gap),
                "is_relative": statistic.is_relative, "between_periods": between,
                "differs": bool(abs(gap[0]) > level * deviation and abs(gap[0]) > usual),
                "words": statistic.more if gap[0] > 0 else statistic.less,
            }
        )  # fmt: skip
    return found


PAIRED = ("bid", "init_bid", "pctr", "pcvr", "pre_score", "slot", "price_micros", "click", "conversion")


def pair_columns(sample: Sample, of_shown: bool) -> list[str]:
    """The columns whose ranks are compared: numbers that every such row has."""
    more = [name for name in sample.candidates if name.startswith(("score.", "feature."))]
    only_shown = ("slot", "price_micros", "click")
    names = [
        name
        for name in (*PAIRED, *more)
        if name in sample.candidates and name != "conversion" and (of_shown or name not in only_shown)
    ]
    is_in = sample.is_shown if of_shown else np.ones(len(sample.request), bool)
    return [name for name in names if np.isfinite(sample.candidates[name][is_in].astype(np.float64)).all()]


def pairs(log: Sample, world: Sample, resamples: int, seed: int) -> list[dict[str, Any]]:
    """Rank correlations of columns, of candidates and of shown ads, in both, with intervals of the gap."""
    from scipy.special import ndtri

    found: list[dict[str, Any]] = []
    for of_shown in (False, True):
        names = [n for n in pair_columns(log, of_shown) if n in pair_columns(world, of_shown)]
        if len(names) < 2:
            continue
        of_log, of_world = (
            _correlations(sample, names, of_shown, resamples, seed + place)
            for place, sample in enumerate((log, world))
        )
        for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
            if of_shown and not {names[i], names[j]} & {"slot", "price_micros", "click"}:
                continue  # has its place among candidates
            sides = of_log[:, i, j], of_world[:, i, j]
            if not all(np.isfinite(side[0]) for side in sides):
                continue
            gap = sides[1] - sides[0]
            found.append(
                {
                    "columns": [names[i], names[j]], "of": "shown" if of_shown else "candidates",
                    "log": entry(sides[0]), "world": entry(sides[1]), "gap": entry(gap),
                    "deviation": finite(float(np.nanstd(gap[1:]))),
                }
            )  # fmt: skip
    level = float(ndtri(1.0 - 0.025 / max(1, len(found))))
    for row in found:
        deviation = row.pop("deviation")
        row["differs"] = bool(
            deviation is not None and abs(row["gap"]["value"]) > max(level * deviation, MIN_GAP)
        )
    return sorted(found, key=lambda row: -abs(row["gap"]["value"]))


MIN_GAP = 0.03  # of a rank correlation, below which it does not matter


def _correlations(
    sample: Sample, names: Sequence[str], of_shown: bool, resamples: int, seed: int
) -> np.ndarray:
    """[1 + resamples, k, k]"""
    is_in = sample.is_shown if of_shown else np.ones(len(sample.request), bool)
    at = _thinned(np.flatnonzero(is_in))
    columns = np.stack([sample.candidates[name][at].astype(np.float64) for name in names])
    places = [np.unique(column, return_inverse=True)[1] for column in columns]
    units, unit = int(sample.unit.max()) + 1, sample.unit[sample.request[at]]
    found = [rank_correlations(columns, np.ones(len(at)))]
    for counts in resample_counts(units, resamples, seed):
        found += [rank_correlations(np.stack(places), own[unit]) for own in counts]
    return np.array(found)


def hours(log: Sample, world: Sample) -> dict[str, Any]:
    """Share of the requests by hour of the day, and how much of it would have to move to another hour."""
    shares = [sample.hours / max(1, sample.hours.sum()) for sample in (log, world)]
    return {
        "log": shares[0].round(6).tolist(),
        "world": shares[1].round(6).tolist(),
        "traffic_shift": float(np.abs(shares[0] - shares[1]).sum() / 2),
        "days": {"log": round(log.days, 3), "world": round(world.days, 3)},
    }
