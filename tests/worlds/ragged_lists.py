"""Random lists of uneven length, some empty, some without positives, with and without tied scores."""

from itertools import permutations

import numpy as np


def ragged(seed, *, n_lists=40, longest=12, grades=5, ties=True):
    """(scores, grades, lists): about a third of the lists has no positive grade, one in eight no item."""
    rng = np.random.default_rng(seed)
    items = rng.integers(1, longest + 1, n_lists) * (rng.random(n_lists) > 1 / 8)
    lists = np.concatenate([[0], np.cumsum(items)])
    n = int(lists[-1])
    scores = rng.integers(-3, 4, n) / 2 if ties else rng.permutation(n) / n
    barren = np.repeat(rng.random(n_lists) < 0.3, items)
    labels = np.where(barren, 0, rng.integers(0, grades, n) * (rng.random(n) < 0.6)).astype(float)
    return scores, labels, lists


def each_list(*columns, lists):
    """The columns cut into lists."""
    for begin, end in zip(lists[:-1], lists[1:], strict=True):
        yield tuple(np.asarray(column)[begin:end] for column in columns)


def mean_over_tie_orders(metric, scores, labels):
    """metric(labels in order) averaged over every order that sorts the scores."""
    values = [
        metric(labels[list(order)])
        for order in permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in zip(order, order[1:], strict=False))
    ]
    return np.mean(values)
