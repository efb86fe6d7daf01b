"""Compiled loops of the click model, over rows of its matrix without their zeros.

A row has the level's 1, `numbers` [N, d] in the columns from `slots` on, the 1 of its `slot` [N] (the first
has none, nor has one that the model does not know), and a 1 in up to two columns more, which `groups` [N, 2]
names: the segment's and the placement's, -1 where there is none. Models come as beta [F, p] with the slots'
effects [F, slots], exp of their coefficients.
"""

import numpy as np

from cascade_sim.foundation.compilation import kernel

MIN_CLICKED, MAX_CLICKED = 1e-12, 0.999


@kernel
def _ctr(numbers, groups, i, beta, slots):
    """CTR of a row in the first slot."""
    score = beta[0]
    for j in range(numbers.shape[1]):
        score += numbers[i, j] * beta[slots + j]
    for g in range(2):
        if groups[i, g] >= 0:
            score += beta[groups[i, g]]
    return 1.0 / (1.0 + np.exp(-score))


@kernel
def _click(ctr, effects, slot):
    p = ctr * effects[slot] if 0 < slot < len(effects) else ctr
    return min(max(p, MIN_CLICKED), MAX_CLICKED)


@kernel
def _slope(numbers, groups, slot, i, ctr, p, slots, column, z):
    """z = dp / (p (1 - p)) of a row: its columns, ascending, and values that are not 0, and how many."""
    own, n = (1.0 - ctr) / (1.0 - p), 1
    column[0], z[0] = 0, own
    if 0 < slot < slots:
        column[n], z[n] = slot, 1.0 / (1.0 - p)
        n += 1
    for j in range(numbers.shape[1]):
        column[n], z[n] = slots + j, numbers[i, j] * own
        n += 1
    for g in range(2):
        if groups[i, g] >= 0:
            column[n], z[n] = groups[i, g], own
            n += 1
    return n


@kernel
def ctrs(numbers, groups, model, beta, slots):
    """CTR of rows in the first slot, each by the model of its number.  [N], [F, p] -> [N]"""
    out = np.empty(len(numbers))
    for i in range(len(numbers)):
        out[i] = _ctr(numbers, groups, i, beta[model[i]], slots)
    return out


@kernel
def in_slots(ctr, model, at, slot, effects):
    """P(click) of the rows `at` in these slots, of rows with these CTRs.  [N], [N], [M], [M] -> [M]"""
    out = np.empty(len(at))
    for j in range(len(at)):
        i = at[j]
        out[j] = _click(ctr[i], effects[model[i]], slot[j])
    return out


@kernel
def add_step(numbers, groups, slot, click, fold, left_out, beta, effects, score, information):
    """Add the rows' score [F, p] and information [F, p, p] (its upper half) under each of F models.

    Model f learns from all rows but those of fold left_out[f].
    """
    slots, most = effects.shape[1], numbers.shape[1] + 4
    column, z = np.empty(most, np.int64), np.empty(most)
    for i in range(len(numbers)):
        for f in range(len(beta)):
            if fold[i] == left_out[f]:
                continue
            ctr = _ctr(numbers, groups, i, beta[f], slots)
            p = _click(ctr, effects[f], slot[i])
            n = _slope(numbers, groups, slot[i], i, ctr, p, slots, column, z)
            left, spread = click[i] - p, p * (1.0 - p)
            for a in range(n):
                score[f, column[a]] += z[a] * left
                weight = z[a] * spread
                for b in range(a, n):
                    information[f, column[a], column[b]] += weight * z[b]


@kernel
def add_influence(numbers, groups, slot, click, fold, unit, beta, effects, felt, total):
    """Add z (click - p) @ felt[fold] to the row's unit.  beta [1, p], felt [F, p, M], total [U, M]"""
    slots, most = effects.shape[1], numbers.shape[1] + 4
    column, z = np.empty(most, np.int64), np.empty(most)
    for i in range(len(numbers)):
        ctr = _ctr(numbers, groups, i, beta[0], slots)
        p = _click(ctr, effects[0], slot[i])
        n = _slope(numbers, groups, slot[i], i, ctr, p, slots, column, z)
        left, moves = click[i] - p, felt[fold[i]]
        for a in range(n):
            weight = z[a] * left
            for m in range(total.shape[1]):
                total[unit[i], m] += weight * moves[column[a], m]


@kernel
def add_gradient(numbers, groups, ctr, model, at, slot, effects, weights, total):
    """Add the gradient of the weighted sums of clicks on the rows `at` in these slots.

    [M], [M], weights [M, W], total [F, p, W]
    """
    slots, most = effects.shape[1], numbers.shape[1] + 4
    column, z = np.empty(most, np.int64), np.empty(most)
    for j in range(len(at)):
        i = at[j]
        f = model[i]
        p = _click(ctr[i], effects[f], slot[j])
        n = _slope(numbers, groups, slot[j], i, ctr[i], p, slots, column, z)
        for a in range(n):
            move = z[a] * p * (1.0 - p)
            for m in range(total.shape[2]):
                total[f, column[a], m] += move * weights[j, m]
