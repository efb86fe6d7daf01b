"""Training of one net for one objective on a learning-to-rank table.

Whole lists in a batch, or single samples of all lists where the objective is made for that: then the net goes
into service a few times per epoch, and the scores it has there are the dump. Repeatable: one order of
sums, shuffles and first weights from the seed. The weights kept are those of the best epoch on the
validation lists, by each measure that is asked for.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from cascade_sim.ltr.files import RankingFile
from cascade_sim.models.adam import Adam
from cascade_sim.models.nets.ltr_net import RankingNet, symmetric_log
from cascade_sim.models.objectives import LoggedScores, Objective
from cascade_sim.models.page_training import PageRows

_ROWS = 65536  # scored at a time
DUMPS = 4  # times per epoch that the net goes into service, where samples are dumped
POINTS = 200  # of the curve of mean scores
STEPS = 32  # least of an epoch, where there are lists enough
MAX_LISTS, MIN_LISTS = 32, 4  # in a step; of fewer, batch norm sees too few items
ALL_STEPS = 2000  # of a training, about
MAX_EPOCHS, MIN_EPOCHS = 40, 5
LAYERS = ((100_000, (1024, 512, 256)), (10_000, (256, 128, 64)), (0, (64, 32)))  # from so many items on
STILL = 0.05  # of all that a training gained: more than that in its last quarter, and it was not at its end


@dataclass(frozen=True)
class Table:
    """A file ready for training. N items, F features, Q lists."""

    features: torch.Tensor  # [N, F] float32 on the device, after the symmetric log if that is asked for
    labels: torch.Tensor  # [N] float32 on the device, as the task has them: 0 and 1, or the grades
    grades: torch.Tensor  # [N] float32 on the device, as in the file: what the order is measured on
    lists: np.ndarray  # [Q + 1] int64
    request: torch.Tensor | None  # [N, d] features of the list itself, on the CPU

    @property
    def n_lists(self) -> int:
        return len(self.lists) - 1

    def take_lists(self, which: np.ndarray) -> Table:
        """Some of the lists, in the given order."""
        rows, lists = PageRows(self.lists).rows(which)
        at = torch.from_numpy(rows)
        request = None if self.request is None else self.request[at]
        at = at.to(self.features.device)
        return Table(self.features[at], self.labels[at], self.grades[at], lists, request)


@dataclass(frozen=True)
class Settings:
    """How a net is made and trained."""

    layers: tuple[int, ...] = (1024, 512, 256)
    dropout: float = 0.2
    momentum: float = field(default=0.1, kw_only=True)  # of batch norm: the weight of the latest batch
    epochs: int = 30
    batch: int = 32  # lists
    device: str = "cpu"


def default_layers(n_items: int) -> tuple[int, ...]:
    """Widths of the net for a file of this size: a small file neither needs nor can fill a large one."""
    return next(layers for least, layers in LAYERS if n_items >= least)


def default_batch(n_lists: int) -> int:
    """Lists a step for a file of this size: fewer of a small file, so that an epoch has steps enough."""
    return max(min(MIN_LISTS, n_lists), min(MAX_LISTS, n_lists // STEPS))


def default_epochs(n_lists: int, batch: int) -> int:
    """Passes over a file of this size: more over a small one, so that a training has steps enough."""
    steps = -(-n_lists // batch)
    return max(MIN_EPOCHS, min(MAX_EPOCHS, -(-ALL_STEPS // steps)))


@dataclass(frozen=True)
class Kept:
    """A net at its best epoch by one measure of the validation lists."""

    net: RankingNet
    epoch: int  # of the kept weights, from 1; 0 if the training diverged at once
    is_learning: bool | None  # whether more epochs would have helped; None: too few to tell


@dataclass(frozen=True)
class Trained:
    """A net at its best epochs, and how the level of its scores went while it was trained."""

    best: Mapping[str, Kept]  # by measure
    curve: np.ndarray  # [at most POINTS] mean score of the training batches
    is_finite: bool


def list_columns(data: RankingFile) -> np.ndarray:
    """Columns that say something of a list and not of its items: constant in every list, not in the file."""
    starts = data.lists[:-1][np.diff(data.lists) > 0]
    low = np.minimum.reduceat(data.features, starts, axis=0)
    high = np.maximum.reduceat(data.features, starts, axis=0)
    return np.flatnonzero((low == high).all(0) & (low.min(0) < low.max(0)))


def make_table(
    data: RankingFile, columns: np.ndarray, positive_from: float | None, device: str, log1p: bool = True
) -> Table:
    """positive_from: labels of at least that are 1, others 0; None leaves the grades, which are kept beside.

    columns: what `list_columns` found in the training file. A list's own features are those of its first row.
    log1p: features through the symmetric log; without it as they are.
    """
    features = symmetric_log(data.features) if log1p else data.features
    labels = data.labels if positive_from is None else (data.labels >= positive_from).astype(np.float32)
    sizes = np.diff(data.lists)
    first = np.repeat(data.lists[:-1], sizes)
    request = torch.from_numpy(features[first][:, columns]) if len(columns) else None
    whole, own, grades = (torch.from_numpy(x).to(device) for x in (features, labels, data.labels))
    return Table(whole, own, grades, data.lists, request)


def outputs_of(net: RankingNet, features: torch.Tensor) -> torch.Tensor:
    """What the net says, without dropout.  [N, F] -> [N, heads] on the CPU"""
    net.eval()
    with torch.no_grad():
        return torch.cat([net(part) for part in features.split(_ROWS)]).cpu()


def train(
    objective: Objective,
    data: Table,
    settings: Settings,
    learning_rate: float,
    seed: int,
    judge: Callable[[RankingNet], Mapping[str, float]],
    on_epoch: Callable[[], None] = lambda: None,
) -> Trained:
    """Train by Adam at a constant rate.

    `judge` gives a net's worth on the validation lists by each measure, more is better, and the net is kept
    at its best epoch by each. A loss that is not finite ends the training; the best epochs so far are kept,
    and the curve is marked. Where that happens in the first epoch nothing is kept.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # first weights and dropout
        net = RankingNet(
            data.features.shape[1], objective.n_heads, settings.layers, settings.dropout, settings.momentum
        )
        net.to(data.features.device)
        optimiser = Adam(net.parameters(), learning_rate)
        shuffle = np.random.Generator(np.random.PCG64(seed))
        first = copy.deepcopy(net.state_dict())
        kept: dict[str, tuple[Mapping[str, torch.Tensor], int]] = {}
        curve: list[float] = []
        worths: dict[str, list[float]] = {}
        is_finite = True
        for epoch in range(1, settings.epochs + 1):
            batches = _sample_batches if objective.trains_on == "samples" else _list_batches
            prepared = batches(objective, net, data, settings.batch, shuffle)
            is_finite = is_finite and _epoch(objective, net, optimiser, data, prepared, curve)
            on_epoch()
            for measure, worth in (judge(net) if is_finite else dict.fromkeys(worths, math.nan)).items():
                before = worths.setdefault(measure, [])
                if worth > max(filter(math.isfinite, before), default=-math.inf):
                    kept[measure] = (copy.deepcopy(net.state_dict()), epoch)
                before.append(worth)
    best = {}
    for measure, history in worths.items():
        weights, epoch = kept.get(measure, (first, 0))
        own = copy.deepcopy(net)
        own.load_state_dict(weights)
        best[measure] = Kept(own.eval(), epoch, still_learning(history))
    return Trained(best, thinned(curve), is_finite)


def still_learning(worths: Sequence[float]) -> bool | None:
    """Whether the worth on the validation lists still rose in the last quarter of the epochs.

    What counts is the best so far, and a rise of more than the share STILL of all that was gained: the noise
    of a net that has come to its end goes up as often as down. None for less than two epochs that count.
    """
    best = np.fmax.accumulate(np.asarray(worths, np.float64))
    best = best[np.isfinite(best)]
    if len(best) < 2:
        return None
    before = best[-1 - -(-len(best) // 4)]
    return bool(best[-1] - before > STILL * (best[-1] - best[0]))


def _epoch(
    objective: Objective,
    net: RankingNet,
    optimiser: Adam,
    data: Table,
    batches: Iterator[tuple[np.ndarray, np.ndarray, LoggedScores | None]],
    curve: list[float],
) -> bool:
    """One pass; appends the batches' mean scores. False, and no further, if a loss is not finite."""
    for rows, lists, dumped in batches:
        at = torch.from_numpy(rows).to(data.features.device)
        net.train()  # each time: a dump leaves it without dropout
        outputs = net(data.features[at])
        loss = objective.loss(outputs, data.labels[at], lists, dumped=dumped)
        curve.append(float(objective.score(outputs.detach()).double().mean().cpu()))
        if not math.isfinite(float(loss.detach())):
            curve[-1] = math.nan
            return False
        optimiser.zero_grad()
        if loss.requires_grad:
            loss.backward()
            optimiser.step()
    return True


def _list_batches(
    objective: Objective, net: RankingNet, data: Table, size: int, shuffle: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray, LoggedScores | None]]:
    """Rows and offsets of about `size` lists at a time, in random order.

    Batches are of even length: batch norm on a short last one would upset what was learnt.
    """
    order = shuffle.permutation(data.n_lists)
    pages = PageRows(data.lists)
    for part in np.array_split(order, -(-len(order) // size)):
        rows, lists = pages.rows(part)
        if len(rows) > 1:  # batch norm has nothing to say about one item
            yield rows, lists, None


def _sample_batches(
    objective: Objective, net: RankingNet, data: Table, size: int, shuffle: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray, LoggedScores | None]]:
    """Rows of all lists mixed, in as many batches as there would be of lists, with their lists' dumps."""
    labels = data.labels.cpu()
    order = shuffle.permutation(len(labels))
    pages = PageRows(data.lists)
    n_batches = -(-data.n_lists // size)
    dump = torch.empty(0)
    device = data.features.device
    for number, rows in enumerate(np.array_split(order, n_batches)):
        if number % -(-n_batches // DUMPS) == 0:  # the net as it now is goes into service
            dump = objective.score(outputs_of(net, data.features))
        if len(rows) < 2:
            continue
        of, request = np.unique(pages.owner[rows], return_inverse=True)
        dumped_rows, lists = pages.rows(of)
        dumped = LoggedScores(
            dump[dumped_rows].to(device), labels[dumped_rows].to(device), lists, torch.from_numpy(request)
        )
        yield rows, np.array([0, len(rows)]), dumped


def thinned(curve: Sequence[float]) -> np.ndarray:
    """At most POINTS means over equal parts of a curve: the last hundred are then its second half."""
    values = np.asarray(curve, np.float64)
    if len(values) <= POINTS:
        return values
    return np.array([part.mean() for part in np.array_split(values, POINTS)])
