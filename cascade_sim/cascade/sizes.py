"""How many ads a request sends to ranking, by what they are worth: sizes of its own under a common budget.

After pre-ranking, a request is put into one of a few buckets by a feature of its scores. From requests
served with the largest size one learns, for each bucket, the mean value of the page with each size:
gain[b, c]. Which sizes make the total gain largest while the mean size is at most the budget? Along the
upper hull of each bucket's gains, the next larger size buys value at a falling rate (value per ad). All
those steps, best rate first, are taken until the budget is used up: for some price per ad, every bucket
then has the size with the largest gain - price * size. The step that the budget cuts is taken by part of
its bucket's requests, drawn by their ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cascade_sim.foundation import random as draws
from cascade_sim.foundation.kernels import select_top

BUCKETS = 16
SAMPLE = 1024


@dataclass(frozen=True, eq=False)
class SizeRule:
    """A fitted rule: B buckets of requests, C choices of a size."""

    choices: np.ndarray  # [C] int, ascending
    edges: np.ndarray  # [B - 1] ascending; bucket b holds features in [edges[b-1], edges[b])
    gain: np.ndarray  # [B, C] mean value of a page
    share: np.ndarray  # [B] of the requests in the bucket
    low: np.ndarray  # [B] place in `choices`
    high: np.ndarray  # [B] place in `choices`: taken instead of `low` by a part of the requests
    part: np.ndarray  # [B] that part, in [0, 1]
    price: float  # value that one more ad must bring
    sample: (
        np.ndarray
    )  # [at most SAMPLE] features it was fitted to, evenly spread over all of them, ascending
    seed: int

    @property
    def mean_size(self) -> float:
        """On the requests that the rule was fitted to."""
        low, high = self.choices[self.low], self.choices[self.high]
        return float(np.sum(self.share * (low + self.part * (high - low))))

    @property
    def mean_value(self) -> float:
        """On the requests that the rule was fitted to."""
        bucket = np.arange(len(self.gain))
        low, high = self.gain[bucket, self.low], self.gain[bucket, self.high]
        return float(np.sum(self.share * (low + self.part * (high - low))))

    def feature(self, pre_score: np.ndarray) -> np.ndarray:
        """What buckets are made by.  [R, n] -> [R]"""
        return spread(pre_score, int(self.choices[0]), int(self.choices[-1]))

    def for_features(self, feature: np.ndarray) -> "SizeRule":
        """The same rule where features are of this sample: buckets with the same shares of requests."""
        at = (np.cumsum(self.share)[:-1] * len(feature)).round().astype(int)
        return replace(self, edges=np.sort(feature)[np.minimum(at, len(feature) - 1)])

    def with_mean(self, mean: float) -> "SizeRule":
        """The rule of these gains for another mean size."""
        low, high, part, price = _spend(self.gain, self.share, self.choices, mean)
        return replace(self, low=low, high=high, part=part, price=price)

    def sizes(self, requests: np.ndarray, pre_score: np.ndarray) -> np.ndarray:
        """The size of each request; ids [R], pre-ranking scores [R, n] -> [R] int.

        The smallest where pre-ranking sees nothing at all beyond it, as when most advertisers have run dry.
        """
        feature = self.feature(pre_score)
        bucket = np.searchsorted(self.edges, feature, side="right")
        takes_high = draws.uniform(self.seed, "competitive set size", requests) < self.part[bucket]
        place = np.where(takes_high, self.high[bucket], self.low[bucket])
        return self.choices[np.where(feature > 0, place, 0)]


def select_sizes(
    ids: np.ndarray, score: np.ndarray, sizes: np.ndarray, largest: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `select_top`, with a size for each row; filled up with -1 to the largest.  [R, n] -> [R, largest]"""
    chosen = np.full((len(ids), largest), -1, np.int32)
    columns = chosen.copy()
    for size in np.unique(sizes):
        rows = sizes == size
        chosen[rows, :size], columns[rows, :size] = select_top(ids[rows], score[rows], size)
    return chosen, columns


def spread(pre_score: np.ndarray, least: int, most: int) -> np.ndarray:
    """What pre-ranking sees beyond the smallest size: the sum of the scores in places least + 1 to most.  [R]

    Scores below zero (ads that the auction will not admit) count as nothing.
    """
    ranked = -np.sort(-np.maximum(pre_score, 0.0), axis=1)[:, :most]
    # One after the other: a sum must not depend on the number of rows.
    total = np.cumsum(ranked, axis=1, dtype=np.float64)
    return total[:, -1] - total[:, min(least, total.shape[1]) - 1]


def page_values(
    pre_score: np.ndarray, rank_score: np.ndarray, choices: Sequence[int], slot_effects: np.ndarray
) -> np.ndarray:
    """Value of the page, sum of slot effect * ranking score, with each size.  [R, n], [R, n] -> [R, C]

    Both scores are of the same ads, in order of their ids. Of those with the best `size` pre-ranking
    scores, the best by ranking score get the slots.
    """
    order = np.argsort(-pre_score, axis=1, kind="stable")
    by_pre_ranking = np.take_along_axis(rank_score, order, 1).astype(np.float64)
    slots = len(slot_effects)
    values = np.empty((len(pre_score), len(choices)))
    for i, size in enumerate(choices):
        best = -np.sort(-by_pre_ranking[:, :size], axis=1)[:, :slots]
        values[:, i] = np.cumsum(best * slot_effects[: best.shape[1]], axis=1)[:, -1]
    return values


def fit_size_rule(
    feature: np.ndarray,
    values: np.ndarray,
    choices: Sequence[int],
    mean: float,
    seed: int,
    buckets: int = BUCKETS,
) -> SizeRule:
    """The best rule on these requests: features [R], page values [R, C] with each of the sizes.

    The mean size is `mean`, or less where more would bring nothing. Buckets hold equally many requests.
    """
    feature, values = np.asarray(feature, np.float64), np.asarray(values, np.float64)
    sizes = np.asarray(choices, np.int64)
    if not sizes[0] <= mean <= sizes[-1]:
        raise ValueError(f"a mean size of {mean:g} is not between {sizes[0]} and {sizes[-1]}")
    cuts = np.sort(feature)[(np.arange(1, buckets) * len(feature)) // buckets]
    edges = np.unique(cuts[cuts > feature.min()])
    bucket = np.searchsorted(edges, feature, side="right")
    count = np.bincount(bucket, minlength=len(edges) + 1)
    gain = np.stack([np.bincount(bucket, column, len(count)) / count for column in values.T], axis=1)
    share = count / len(feature)
    low, high, part, price = _spend(gain, share, sizes, float(mean))
    sample = np.sort(feature)[np.linspace(0, len(feature) - 1, min(SAMPLE, len(feature))).round().astype(int)]
    return SizeRule(sizes, edges, gain, share, low, high, part, price, sample, seed)


def _spend(
    gain: np.ndarray, share: np.ndarray, sizes: np.ndarray, mean: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Take steps to larger sizes, best value per ad first, until the mean size is used up."""
    steps = [(-rate, b, at, to) for b in range(len(gain)) for at, to, rate in hull_steps(sizes, gain[b])]
    low = np.zeros(len(gain), np.int64)
    left, price = mean - float(sizes[0]), 0.0
    for minus_rate, b, at, to in sorted(steps):
        price = -minus_rate
        cost = share[b] * (sizes[to] - sizes[at])
        if cost > left:
            high, part = low.copy(), np.zeros(len(gain))
            high[b], part[b] = to, left / cost
            return low, high, part, price
        low[b] = to
        left -= cost
    return low, low.copy(), np.zeros(len(gain)), 0.0 if left > 0 else price


def hull_steps(sizes: np.ndarray, gain: np.ndarray) -> list[tuple[int, int, float]]:
    """Steps (from place, to place, gain per ad) up the hull of the gains [C]; rates fall, none is 0."""
    steps, at = [], 0
    while at < len(sizes) - 1:
        rates = (gain[at + 1 :] - gain[at]) / (sizes[at + 1 :] - sizes[at])
        best = rates.max()
        if best <= 0:
            break
        to = at + 1 + int(np.flatnonzero(rates == best)[-1])
        steps.append((at, to, float(best)))
        at = to
    return steps
