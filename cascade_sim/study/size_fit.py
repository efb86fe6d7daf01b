"""Learn a size rule from requests served with the largest of its sizes."""

from collections.abc import Callable, Iterable

import numpy as np

from cascade_sim.cascade.serve import Arm, Block, Platform, passes, score
from cascade_sim.cascade.sizes import SizeRule, fit_size_rule, page_values, spread
from cascade_sim.scenario.market import Sizes

REQUESTS = 16_384


def with_size_rule(
    arm: Arm,
    platform: Platform,
    sizes: Sizes,
    block_of: Callable[[int, int], Block],
    seed: int,
    at: int = -2,
) -> Arm:
    """The arm with a rule for these sizes in the scoring stage `at`, learned from REQUESTS requests.

    `block_of(i, n)` is block number i of a traffic of n requests.
    """
    blocks: list[Block] = []
    while sum(map(len, blocks)) < REQUESTS:
        blocks.append(block_of(len(blocks), REQUESTS))
    rule = learn_size_rule(blocks, arm, platform, sizes.choices, sizes.mean, seed, at)
    return arm.with_stage(at, size=max(sizes.choices), size_rule=rule)


def learn_size_rule(
    blocks: Iterable[Block],
    arm: Arm,
    platform: Platform,
    choices: tuple[int, ...],
    mean: float,
    seed: int,
    at: int = -2,
) -> SizeRule:
    """The rule for this arm with these sizes and this mean, fitted to these requests.

    A page is worth the sum of slot effect * ranking score (bid * pCTR, as the ranking stage sees them) of
    the ads on it; ads that the auction does not admit are worth nothing. Of an earlier step it is the page
    that ranking would make of all that the step hands on: steps behind it have rules of their own.
    """
    features, values = [], []
    for block in blocks:
        passed = passes(block, arm.with_stage(at, size_rule=None), platform)[at]
        rank = score(block, passed.ids, arm.last, arm, platform)
        is_in = (rank.bid >= arm.reserve_cpc) & (rank.score >= arm.score_floor)
        features.append(spread(passed.order, choices[0], choices[-1]))
        worth = np.where(is_in, rank.score, 0.0)
        values.append(page_values(passed.order, worth, choices, platform.slot_effects[: arm.slots]))
    return fit_size_rule(np.concatenate(features), np.concatenate(values), choices, mean, seed)
