"""Sums over sets of ads against sums over pages, on random lists of every length."""

from itertools import permutations

import numpy as np
import pytest

from cascade_sim.ope import slate_kernels


@pytest.mark.parametrize(("depth", "slots"), [(1, 1), (3, 3), (4, 2), (6, 3)])
def test_marginals_and_values_agree_with_all_pages(depth, slots):
    rng = np.random.default_rng(depth)
    odds, gain = rng.uniform(0.1, 1, (1, depth)), rng.uniform(size=(1, depth))
    effects = np.linspace(1, 0.3, slots)
    at_slot, worth, total = np.zeros((slots, depth)), 0.0, 0.0
    for page in permutations(range(depth), slots):
        left, p = odds[0].sum(), 1.0
        for ad in page:
            p *= odds[0, ad] / left
            left -= odds[0, ad]
        total += p
        worth += p * sum(effects[k] * gain[0, ad] for k, ad in enumerate(page))
        at_slot[range(slots), page] += p
    assert total == pytest.approx(1.0)
    places = np.arange(slots, dtype=np.int64)[None, :]
    out, of_slot, of_rest = (np.empty((1, slots)) for _ in range(3))
    slate_kernels.marginals(odds, places, out)
    slate_kernels.values(odds, gain, effects, places, of_slot, of_rest)
    assert out[0] == pytest.approx(at_slot[range(slots), range(slots)])
    assert of_rest[0, 0] == pytest.approx(worth)
    assert of_slot[0, -1] == pytest.approx(effects[-1] * gain[0, slots - 1])
