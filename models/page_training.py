"""Training for an objective: shown ads grouped by request, in batches of whole requests.

Slots count as in `examination`: the served score is that of a fully examined slot. An objective that
trains on samples (self-boosted) is given single impressions in any order, each with the clicks of its page
and the scores that the deployed model had given there. `batching` keeps its pages whole all the same, with
the same loss: what is then left out is the shuffling of samples.

A calibrator's map may be trained in the same batches, by the log loss of its own predictions. It is given the
scores as numbers, so nothing of it reaches the net: that is trained as it would be without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from cascade_sim.models.adam import Adam
from cascade_sim.models.calibrators.request import RequestMap, moved
from cascade_sim.models.examination import slot_log_odds
from cascade_sim.models.features import FeatureView
from cascade_sim.models.nets.ids import id_tables, with_tables
from cascade_sim.models.objectives import LoggedScores, Objective
from cascade_sim.models.slot_effects import SlotEffects
from cascade_sim.models.training import (
    Impressions,
    Tables,
    TrainingPlan,
    on_device,
    outputs,
    run_epochs,
)


@dataclass(frozen=True)
class ClickedPages:
    """N impressions of L requests, as logged, with their clicks. Page l is lists[l]:lists[l + 1]."""

    shown: Impressions
    lists: np.ndarray  # [L + 1] int64 offsets
    request: np.ndarray  # [L] int64
    dumped: np.ndarray  # [N] float32: the deployed ranker's own log-odds of a click; NaN where it gave none

    @property
    def users(self) -> np.ndarray:
        return self.shown.users

    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.shown.arrays(), "lists": self.lists, "request": self.request, "dumped": self.dumped}

    def take(self, keep: np.ndarray) -> ClickedPages:
        """Some of the pages, whole.  keep: [L] bool"""
        sizes = np.diff(self.lists)
        rows = np.repeat(keep, sizes)
        shown = Impressions(**{name: column[rows] for name, column in self.shown.arrays().items()})
        lists = np.concatenate([[0], np.cumsum(sizes[keep])]).astype(np.int64)
        return ClickedPages(shown, lists, self.request[keep], self.dumped[rows])

    @property
    def slots(self) -> np.ndarray:
        """The slot of each impression: pages are filled from the top.  [N] int64"""
        return np.arange(len(self.users)) - np.repeat(self.lists[:-1], np.diff(self.lists))

    @property
    def n_slots(self) -> int:
        """Of the longest page."""
        return int(np.diff(self.lists).max(initial=0))

    def examined(self, effects: np.ndarray) -> ClickedPages:
        """The same pages with other chances that slots are looked at; what is below the last, as that.

        effects: [slots]
        """
        chances = np.asarray(effects, np.float32)
        examination = chances[np.minimum(self.slots, len(chances) - 1)]
        return replace(self, shown=replace(self.shown, examination=examination))


def make_pages(
    shown: Impressions, request: np.ndarray, pctr: np.ndarray, raw_score: np.ndarray | None = None
) -> ClickedPages:
    """Impressions in the order of requests, with the request [N] and the deployed pCTR [N] of each.

    raw_score [N]: the log-odds that the deployed ranker itself gave, where something else was served; NaN
    where the pCTR says it all.
    """
    lists = page_offsets(request)
    return ClickedPages(shown, lists, request[lists[:-1]], dumped_scores(pctr, raw_score).astype(np.float32))


def dumped_scores(pctr: np.ndarray, raw_score: np.ndarray | None = None) -> np.ndarray:
    """What is dumped of ads: their raw score or, without one, the log-odds of the pCTR.  [N] float64"""
    odds = log_odds(pctr)
    return odds if raw_score is None else np.where(np.isnan(raw_score), odds, raw_score)


def page_offsets(request: np.ndarray) -> np.ndarray:
    """Where each page starts, and the last ends, of rows in the order of requests.  [N] -> [L + 1] int64"""
    starts = np.nonzero(np.r_[True, request[1:] != request[:-1]])[0] if len(request) else np.zeros(0, int)
    return np.append(starts, len(request)).astype(np.int64)


def log_odds(probability: np.ndarray) -> np.ndarray:
    """log p / (1 - p), cut where p is so near 0 or 1 that it has none.  [N] float64"""
    p = np.clip(probability.astype(np.float64), 2.0**-60, 1.0 - 2.0**-24)
    return np.log(p) - np.log1p(-p)


def train_pages(
    model: nn.Module,
    view: FeatureView,
    data: ClickedPages,
    objective: Objective,
    plan: TrainingPlan,
    *,
    batching: str | None = None,
    beside: RequestMap | None = None,
    slots: SlotEffects | None = None,
) -> list[float]:
    """Fit a net with the objective's heads in place; the mean loss of each epoch, per page or per sample.

    Repeatable, and otherwise as `training.train`. The plan's batch counts impressions; at least one page.
    `batching`: "samples" in any order, or "lists", whole pages; None: as the objective does by itself. Only
    objectives that can take samples do without whole pages: ValueError for the others. `beside`: a map that
    is trained in place in the same batches, with the same learning rate. `slots`: how often slots are looked
    at, fitted with the net; what the data say of it is then not looked at.
    """
    if batching == "samples" and not objective.can_take_samples:
        raise ValueError(f"{objective.name} compares the ads of a page: its batches are of whole pages")
    if len(data.users) == 0:
        return []
    device, monitor = plan.device, plan.monitor
    model.to(device)
    if slots is not None:
        slots.to(device)
        data = data.examined(slots.effects())  # nothing below sees what they were
    if not plan.warm_start:
        start_at_base_rate(model, data.shown, objective)
    by_sample = (batching or objective.trains_on) == "samples"

    def loss_on(data: ClickedPages) -> tuple[_BatchLoss, Callable[[torch.Tensor], torch.Tensor], int]:
        """The loss, as a function of rows, and how many there are: impressions or pages."""
        loss = _BatchLoss(model, view, data, objective, device, slots)
        of_pages = loss.of_samples_of_pages if objective.trains_on == "samples" else loss.of_pages
        return (loss, loss.of_samples, len(data.users)) if by_sample else (loss, of_pages, len(data.request))

    batches, loss, n = loss_on(data)
    if beside is not None:
        batches.calibration = _Calibration(beside, view, data, plan)
    if monitor is not None:
        monitor.begin(*loss_on(monitor.part)[1:])
    history = run_epochs(
        model, loss, n, max(1, round(plan.batch * n / len(data.users))), plan,
        after_step=batches.after_step, beside=[] if slots is None else slots.parameters(),
    )  # fmt: skip
    if beside is not None:
        moved(beside, torch.device("cpu")).requires_grad_(False).eval()
    return history


class _Calibration:
    """Trains a map on the batches that its net is trained on, one step after each of the net's."""

    def __init__(self, net: RequestMap, view: FeatureView, data: ClickedPages, plan: TrainingPlan) -> None:
        self._device, self._view, self._shown = plan.device, view, data.shown
        self._net = moved(net.requires_grad_().train(), plan.device)
        self._optimiser = Adam(list(net.parameters()), plan.learning_rate, plan.weight_decay)
        self._batch: tuple[np.ndarray, torch.Tensor, torch.Tensor] | None = None

    def watch(self, rows: np.ndarray, scores: torch.Tensor, examination: torch.Tensor) -> None:
        """The batch that is next: scores [S] as the net gives them before its step, for examined slots.

        examination [S]: how often its slots are looked at.
        """
        self._batch = rows, scores.detach(), examination.detach()

    def step(self, share: float) -> None:
        """A step on the batch, with this share of the learning rate."""
        assert self._batch is not None
        (at, scores, examination), shown = self._batch, self._shown
        click, request = torch.from_numpy(shown.click[at]).to(self._device), None
        if self._net.request_width:
            features = self._view.request_features(shown.users[at], shown.context[at])
            request = torch.from_numpy(features).to(self._device)
        self._optimiser.zero_grad()
        self._net.loss(scores, click, request, examination).backward()
        self._optimiser.step(share)


class _BatchLoss:
    """The objective's loss of a batch: of whole pages, of samples, or of all samples of some pages."""

    def __init__(
        self,
        model: nn.Module,
        view: FeatureView,
        data: ClickedPages,
        objective: Objective,
        device: torch.device,
        slots: SlotEffects | None = None,
    ) -> None:
        self.model, self.objective, self.device, self.slots = model, objective, device, slots
        columns = {**data.shown.arrays(), "dumped": data.dumped, "slot": data.slots}
        self.columns = on_device(columns, device)
        self.is_scored = np.isfinite(data.dumped)
        self.tables = Tables(view, device)
        self.pages = PageRows(data.lists)
        self.calibration: _Calibration | None = None

    def after_step(self, share: float) -> None:
        """The net has made its step on the batch; the map makes its own."""
        if self.calibration is not None:
            self.calibration.step(share)

    def of_pages(self, picked: torch.Tensor) -> torch.Tensor:
        rows, lists = self.pages.rows(picked.numpy())
        return self._loss(torch.from_numpy(rows), lists, None)

    def of_samples(self, rows: torch.Tensor) -> torch.Tensor:
        each = np.arange(len(rows) + 1)  # a list of its own
        if self.objective.trains_on != "samples":
            return self._loss(rows, each, None)
        context, lists = self.pages.rows(self.pages.owner[rows.numpy()])
        return self._loss(rows, each, self._dump(context, lists))

    def of_samples_of_pages(self, picked: torch.Tensor) -> torch.Tensor:
        return self.of_samples(torch.from_numpy(self.pages.rows(picked.numpy())[0]))

    def _dump(self, rows: np.ndarray, lists: np.ndarray) -> LoggedScores:
        """Page k is that of sample k: the deployed log-odds of a click in each slot, and the clicks.

        Pages that no ranker scored are empty: their samples count by the log loss alone.
        """
        is_scored = self.is_scored[rows]
        kept = np.concatenate([[0], np.cumsum(is_scored)])[lists]
        scored = torch.from_numpy(rows[is_scored]).to(self.device)
        slot = slot_log_odds(self.columns["dumped"][scored], self._examination(scored).detach())
        request = torch.arange(len(lists) - 1, device=self.device)
        return LoggedScores(slot, self.columns["click"][scored], kept, request)

    def _loss(self, rows: torch.Tensor, lists: np.ndarray, dumped: LoggedScores | None) -> torch.Tensor:
        at, rows = rows.numpy(), rows.to(self.device)
        users, context, ads = (self.columns[name][rows] for name in ("users", "context", "ads"))
        given = outputs(self.model, self.tables, users, context, ads).float()
        n_heads = self.objective.n_heads
        wanted = (len(rows), 1) if n_heads == 1 else (len(rows), 1, n_heads)
        if given.shape != wanted:
            raise ValueError(f"the model returned shape {tuple(given.shape)}, not {wanted}")
        heads = given.reshape(len(rows), n_heads)
        examination = self._examination(rows)
        if self.calibration is not None:
            self.calibration.watch(at, self.objective.score(heads), examination)
        slot = self.objective.slot_outputs(heads, examination)
        return self.objective.loss(slot, self.columns["click"][rows], lists, dumped=dumped)

    def _examination(self, rows: torch.Tensor) -> torch.Tensor:
        """How often the slots of these rows are looked at: known, or as estimated by now.  [N]"""
        if self.slots is None:
            return self.columns["examination"][rows]
        effects = self.slots()
        return effects[self.columns["slot"][rows].clamp(max=len(effects) - 1)]


class PageRows:
    """Finds the rows of pages, or of other lists: `rows` of some of them, `owner` the page of each row."""

    def __init__(self, lists: np.ndarray):
        self.starts, self.sizes = lists[:-1], np.diff(lists)
        self.owner = np.repeat(np.arange(len(self.sizes)), self.sizes)

    def rows(self, picked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the picked pages, one page after the other, and their offsets.  [P] -> [M], [P + 1]"""
        sizes = self.sizes[picked]
        lists = np.concatenate([[0], np.cumsum(sizes)])
        return np.arange(lists[-1]) + np.repeat(self.starts[picked] - lists[:-1], sizes), lists


def start_at_base_rate(model: nn.Module, shown: Impressions, objective: Objective) -> None:
    """Start the output bias where the prediction is the mean click rate, so epochs are not spent on it.

    Only for an objective with a scale: one without never learns it, and must not be handed it.
    """
    rate, bias = shown.base_rate, getattr(model, "bias", None)
    fits = isinstance(bias, nn.Parameter) and bias.numel() == objective.n_heads
    if not (objective.has_scale and fits and 0.0 < rate < 1.0):
        return
    with torch.no_grad():
        bias.copy_(torch.tensor(objective.start(rate)).reshape(bias.shape))  # type: ignore[union-attr]


@torch.no_grad()
def scores(model: nn.Module, view: FeatureView, shown: Impressions, at_once: int = 65536) -> np.ndarray:
    """The served score of each impression, of a net with one head.  [N] float64"""
    columns, tables = on_device(shown.arrays(), torch.device("cpu")), Tables(view, torch.device("cpu"))
    parts = [
        outputs(model, tables, *(columns[name][rows] for name in ("users", "context", "ads")))[:, 0].double()
        for rows in torch.arange(len(shown.users)).split(at_once)
    ]
    return torch.cat(parts).numpy() if parts else np.zeros(0)


@torch.no_grad()
def slot_predictions(
    model: nn.Module, view: FeatureView, shown: Impressions, objective: Objective, at_once: int = 65536
) -> tuple[np.ndarray, np.ndarray]:
    """What a net with the objective's heads says of impressions in the slots that they had.

    The score, by which the ads of a page are in order, and the expected click.  [N], [N] float64
    """
    device = next(model.parameters()).device
    columns, tables = on_device(shown.arrays(), device), Tables(view, device)
    parts = []
    for rows in torch.arange(len(shown.users), device=device).split(at_once):
        users, context, ads, examination = (
            columns[name][rows] for name in ("users", "context", "ads", "examination")
        )
        heads = outputs(model, tables, users, context, ads).float().reshape(len(rows), objective.n_heads)
        slot = objective.slot_outputs(heads, examination)
        parts.append(torch.stack([objective.score(slot), objective.predict(slot)]))
    score, expected = torch.cat(parts, dim=1).cpu().double().numpy()
    return score, expected


def served_net(model: nn.Module, objective: Objective) -> nn.Module:
    """The net of one head that gives the objective's score; the model itself if it has one head."""
    if objective.n_heads == 1:
        return model
    weights = objective.score(torch.eye(objective.n_heads))  # a score is linear in the outputs
    with torch.random.fork_rng(devices=[]):  # building a net draws weights
        return with_tables(model.folded(weights), id_tables(model)).eval()  # type: ignore[operator]


def net_to_train(model: nn.Module, objective: Objective, seed: int | None = None) -> nn.Module:
    """The net with the objective's heads that serves as this net of one head does: `served_net` undone.

    With a seed the heads differ by more than the served score asks for, by draws of their own: a start for
    a fresh net. All objectives begin with the layers and the served score of one net.
    """
    if objective.n_heads == 1:
        return model
    weights = objective.score(torch.eye(objective.n_heads))
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed ^ 1)  # not the draws that the net itself was made of
        wide = model.widened(weights / weights.square().sum(), seed is not None)  # type: ignore[operator]
        return with_tables(wide, id_tables(model))
