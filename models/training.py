"""From samples to a trained net by a recipe of `recipes`: one loop for clicks and for teachers' lists.

Repeatable: one torch thread, shuffles and initial weights from a seed, fixed batches.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding

from cascade_sim.models.adam import Adam
from cascade_sim.models.features import FeatureView
from cascade_sim.models.losses.stages import log_chance
from cascade_sim.models.nets.codes import encoders
from cascade_sim.models.nets.ids import ClickHistory, IdTables, id_tables, mean_rows, table_rows
from cascade_sim.models.recipes import Recipe, recipe_named


@dataclass(frozen=True)
class _Columns:
    """Samples by column."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Impressions(_Columns):
    """Shown ads and what became of them; one row each."""

    users: np.ndarray  # [N] int32
    context: np.ndarray  # [N] float32
    ads: np.ndarray  # [N] int32
    examination: np.ndarray  # [N] float32, slot effect
    click: np.ndarray  # [N] float32

    @property
    def base_rate(self) -> float:
        """Clicks per fully examined slot."""
        clicks, seen = self.click.sum(dtype=np.float64), self.examination.sum(dtype=np.float64)
        return float(clicks / max(seen, 1.0))


@dataclass(frozen=True)
class Lists(_Columns):
    """Candidates of a request scored by the teacher in the shadow; one row per request."""

    users: np.ndarray  # [L] int32
    context: np.ndarray  # [L] float32
    ads: np.ndarray  # [L, m] int32
    teacher_logit: np.ndarray  # [L, m] float32
    log_bid: np.ndarray  # [L, m] float32, of the init-bid
    chunk: np.ndarray  # [L, m] int8, larger is better in the ranking stage's order
    log_score: np.ndarray  # [L, m] float32, logarithm of what the ranking stage orders by


@dataclass(frozen=True)
class Positives(_Columns):
    """Logged impressions, each to be preferred to other ads; one row each, and the bids of all ads."""

    users: np.ndarray  # [N] int32
    context: np.ndarray  # [N] float32
    ads: np.ndarray  # [N] int32
    request: np.ndarray  # [N] int64
    log_bid: np.ndarray  # [A] float32, of the init-bid

    def take(self, keep: np.ndarray) -> "Positives":
        """Some of the rows.  keep: [N] bool"""
        rows = {name: column[keep] for name, column in self.arrays().items() if name != "log_bid"}
        return Positives(**rows, log_bid=self.log_bid)


def chunk_of_order(best_first: np.ndarray, is_shown: np.ndarray, chunks: int, chunking: str) -> np.ndarray:
    """Chunk labels of lists: best_first [L, m] column numbers, is_shown [L, m] -> [L, m] int8

    halving    as `chunk_of_rank`
    quantiles  chunks of equal size, to a rank
    exposed    what was shown is the best chunk whatever its rank; the rest is cut into quantiles
    """
    m = best_first.shape[1]
    if chunking == "halving":
        by_rank = np.broadcast_to(chunk_of_rank(m, chunks), best_first.shape)
    else:
        apart = np.take_along_axis(is_shown, best_first, 1) & (chunking == "exposed")
        rank = np.cumsum(~apart, axis=1) - 1  # among those that are cut
        n, cuts = (m - apart.sum(axis=1, keepdims=True)), chunks - int(chunking == "exposed")
        by_rank = np.where(apart, chunks, cuts - rank * cuts // np.maximum(n, 1)).astype(np.int8)
    labels = np.empty(best_first.shape, np.int8)
    np.put_along_axis(labels, best_first, by_rank, 1)
    return labels


POINTS = 20  # at which a training is looked at, beside its start
GROUPS = 32  # of the samples that it is looked at with

BatchLoss = Callable[[torch.Tensor], torch.Tensor]  # row numbers -> their mean loss


@dataclass
class TrainingMonitor:
    """Looks at a net while it trains: before its first step, and then at POINTS even distances.

    `part`: samples of the form that it learns from, always the same. `look`: more measures of the net, by
    name. What is seen changes nothing of the training.
    """

    part: Any
    look: Callable[[nn.Module], Mapping[str, float]] = lambda model: {}
    steps: list[int] = field(default_factory=list)
    loss: list[float | None] = field(default_factory=list)  # mean of the batches since the last point
    by_group: list[list[float]] = field(default_factory=list)  # the loss of each group of the part
    measures: list[Mapping[str, float]] = field(default_factory=list)
    is_of_own_class: bool = False  # one that fails when it is looked at fails when it serves, and tells there
    _of_part: BatchLoss | None = None
    _groups: tuple[torch.Tensor, ...] = ()
    _since: list[tuple[torch.Tensor, int]] = field(default_factory=list)  # batches: their loss and size

    def begin(self, of_part: BatchLoss, n: int) -> None:
        """`of_part` is the loss of rows of the part, of which there are n."""
        self._of_part, self._groups = of_part, torch.arange(n).tensor_split(min(GROUPS, n))

    def after(self, step: int, steps: int, model: nn.Module, batch: tuple[torch.Tensor, int] | None) -> None:
        """Note the loss and the size of the batch of a step; look at the net if it is time to."""
        if batch is not None:
            self._since.append(batch)
        if step not in {round(point * steps / POINTS) for point in range(POINTS + 1)}:
            return
        model.eval()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            try:
                seen = self._seen(model)
            except Exception:
                if not self.is_of_own_class:
                    raise
                seen = None
        model.train()
        if seen is None:
            return
        self.by_group.append(seen[0])
        self.measures.append(seen[1])
        self.steps.append(step)
        self.loss.append(_mean(*zip(*self._since, strict=True)) if self._since else None)
        self._since.clear()

    def _seen(self, model: nn.Module) -> tuple[list[float], Mapping[str, float]]:
        assert self._of_part is not None
        losses = torch.stack([self._of_part(group) for group in self._groups])
        return losses.cpu().double().tolist(), self.look(model)


CPU = torch.device("cpu")


@dataclass(frozen=True)
class TrainingPlan:
    """How a net is trained, whatever it learns from: the steps, where they are taken, and who looks on.

    The learning rate falls along a line to 0 over all epochs. Shuffles, and what a net draws while it trains,
    come from `seed`. A warm start goes on from the net's own base rate in place of the data's.

        train(net, view, data, "logloss", TrainingPlan(epochs=2, batch=1024, learning_rate=0.01))
    """

    epochs: int
    batch: int  # impressions, or candidates of lists
    learning_rate: float
    weight_decay: float = 0.0
    seed: int = 0
    warm_start: bool = False
    device: torch.device = CPU
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None  # its number from 0, its mean loss
    monitor: TrainingMonitor | None = None


def _mean(values: Iterable[torch.Tensor], sizes: Iterable[int]) -> float:
    """The mean of losses of batches. Summed on the CPU: not every device has float64."""
    weights = torch.tensor(list(sizes), dtype=torch.float64)
    return float((torch.stack(list(values)).cpu().double() * weights).sum()) / float(weights.sum())


def chunk_of_rank(m: int, chunks: int) -> np.ndarray:
    """Chunk label of each rank 0..m-1: halving chunks, so that the head is cut finely.  [m] int8

    The worst half is chunk 1, the next quarter 2, …; the best m/2^(chunks-1) are chunk `chunks`.
    """
    share = (np.arange(m) + 1.0) / m
    label = 1 + np.floor(-np.log2(np.clip(share, 2.0**-60, 1.0)) + 1e-9)
    return np.minimum(label, chunks).astype(np.int8)


def pick_device(name: str) -> torch.device:
    """auto takes cuda, then mps, then cpu. A named device that is not there is an error."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available.get(name, False):
        raise ValueError(
            f"device {name!r} is not available here; available: {[k for k, v in available.items() if v]}"
        )
    return torch.device(name)


def set_base_rate(model: nn.Module, data: Impressions) -> None:
    """Start the output bias at the log odds of the mean click rate, so epochs are not spent on it."""
    rate, bias = data.base_rate, getattr(model, "bias", None)
    if isinstance(bias, nn.Parameter) and bias.shape == () and 0.0 < rate < 1.0:
        with torch.no_grad():
            bias.fill_(math.log(rate / (1 - rate)))


def train(
    model: nn.Module,
    view: FeatureView,
    data: Impressions | Lists | Positives,
    recipe: str | Recipe,
    plan: TrainingPlan,
    options: Mapping[str, Any] | None = None,
) -> list[float]:
    """Fit `model` in place; the mean loss of each epoch. `options`: those of the recipe's loss.

    A non-finite loss stops the training with a ValueError. No samples leave the model as it is.
    """
    named, given = recipe_named(recipe), recipe_named(recipe).with_defaults(options or {})
    learned = learned_numbers(named.learned, plan.device)
    if isinstance(data, Impressions) and not plan.warm_start:
        set_base_rate(model, data)
    if isinstance(data, Positives):
        return _train_crossed(model, view, data, partial(named.loss, **given), plan, int(given["uniform"]))

    def form(logits: list[torch.Tensor], sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return named.loss(logits[0], sample, **given, **learned)

    return train_together([(model, view)], data, form, plan, learned)


def learned_numbers(start: Mapping[str, float], device: torch.device) -> dict[str, nn.Parameter]:
    """Numbers that a loss learns beside the nets, at what they begin with."""
    return {name: nn.Parameter(torch.tensor(value).to(device)) for name, value in start.items()}


def train_together(
    nets: Sequence[tuple[nn.Module, FeatureView]],
    data: Impressions | Lists,
    form: Callable[[list[torch.Tensor], Mapping[str, torch.Tensor]], torch.Tensor],
    plan: TrainingPlan,
    learned: Mapping[str, nn.Parameter],
) -> list[float]:
    """Fit nets in place, each step on one batch for all of them; the mean loss of each epoch.

    `form` gives the loss of a batch from the scores of each net, [R, n] each, and the columns of the batch.
    """
    if len(data.users) == 0:
        return []
    device = plan.device
    tables = [(net.to(device), Tables(view, device)) for net, view in nets]
    per_row = 1 if isinstance(data, Impressions) else data.ads.shape[1]

    def loss_on(data: Impressions | Lists) -> BatchLoss:
        columns = on_device(data.arrays(), device)

        def loss(rows: torch.Tensor) -> torch.Tensor:
            rows = rows.to(device)
            sample = {name: column.index_select(0, rows) for name, column in columns.items()}
            users, ads = sample["users"], sample["ads"]
            expected = (len(users), ads.shape[1] if ads.dim() == 2 else 1)
            logits = []
            for net, seen in tables:
                logit = outputs(net, seen, users, sample["context"], ads)
                if logit.shape != expected:
                    raise ValueError(f"the model returned shape {tuple(logit.shape)}, not {expected}")
                logits.append(logit.float())
            return form(logits, sample)

        return loss

    if plan.monitor is not None:
        plan.monitor.begin(loss_on(plan.monitor.part), len(plan.monitor.part.users))
    rows = max(1, plan.batch // per_row)
    model = nets[0][0] if len(nets) == 1 else nn.ModuleList(net for net, _ in nets)
    return run_epochs(model, loss_on(data), len(data.users), rows, plan, beside=learned.values())


def _train_crossed(
    model: nn.Module,
    view: FeatureView,
    data: Positives,
    form: Callable[[torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor],
    plan: TrainingPlan,
    uniform: int,
) -> list[float]:
    """`train` where every request of a batch meets every ad of it, and as many `uniform` draws of any ad."""
    if len(data.users) == 0:
        return []
    device, tables = plan.device, Tables(view, plan.device)
    model.to(device)
    share = np.bincount(data.ads, minlength=len(data.log_bid)) / len(data.ads)
    of_ads = on_device({"share": share.astype(np.float32), "log_bid": data.log_bid}, device)

    def loss_on(data: Positives, beside: int) -> BatchLoss:
        """`beside`: so many rows join their ads to every batch, so that few rows meet many ads, too."""
        columns = on_device({"users": data.users, "context": data.context, "ads": data.ads}, device)

        def loss(rows: torch.Tensor) -> torch.Tensor:
            drawn = _uniform_ads(uniform, len(data.log_bid), plan.seed + int(rows[0])).to(device)
            rows = rows.to(device)
            users, context, ads = (column.index_select(0, rows) for column in columns.values())
            ads = torch.cat([ads.long(), columns["ads"][:beside].long(), drawn])
            return form(*crossed(model, tables, users, context, ads, of_ads, uniform))

        return loss

    if plan.monitor is not None:
        part = plan.monitor.part
        plan.monitor.begin(loss_on(part, min(plan.batch, len(part.users))), len(part.users))
    return run_epochs(model, loss_on(data, 0), len(data.users), plan.batch, plan)


def _uniform_ads(n: int, n_ads: int, seed: int) -> torch.Tensor:
    """Draws of any ad. Those of a batch belong to its first row, so who looks on takes none away.  [n]"""
    return torch.randint(n_ads, (n,), generator=torch.Generator().manual_seed(seed))


def crossed(
    model: nn.Module,
    tables: "Tables",
    users: torch.Tensor,
    context: torch.Tensor,
    ads: torch.Tensor,
    of_ads: Mapping[str, torch.Tensor],
    uniform: int,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Scores [R, C] of requests by ads, of which the first R are their own, and the columns of the batch.

    users [R], context [R], ads [C], the last `uniform` of them any ad. `of_ads`: `share` [A], how often an ad
    is a positive, and `log_bid` [A]. Columns: `users`, `context`, `ads` [R], `log_bid` and `log_chance` [C],
    `is_same` [R, C], where an ad is that of its row once more.
    """
    codes = encoders(model)
    if codes is None:
        raise ValueError(f"{type(model).__name__} has no encode_users and encode_ads to meet every ad by")
    n = len(users)
    request, features = tables.sides(users, context, ads, id_tables(model))
    logit = codes[0](request) @ codes[1](features).T
    if logit.shape != (n, len(ads)):
        raise ValueError(f"the codes meet in shape {tuple(logit.shape)}, not {(n, len(ads))}")
    place = torch.arange(len(ads), device=ads.device)
    is_same = (ads[:n, None] == ads[None, :]) & (place[:n, None] != place[None, :])
    share, log_bid = (of_ads[name].index_select(0, ads) for name in ("share", "log_bid"))
    chance = log_chance(share, len(ads) - uniform, uniform, len(of_ads["share"]))
    known = {"log_bid": log_bid, "log_chance": chance, "is_same": is_same}
    return logit.float(), {"users": users, "context": context, "ads": ads[:n], **known}


def run_epochs(
    model: nn.Module,
    loss: BatchLoss,
    n: int,
    rows: int,
    plan: TrainingPlan,
    *,
    beside: Iterable[nn.Parameter] = (),
    after_step: Callable[[float], None] = lambda share: None,
) -> list[float]:
    """Passes over n rows in shuffled batches of `rows`; `loss` gives their mean loss from their numbers.

    Row numbers are on the CPU, where what belongs to them can be found without waiting for the device; that
    is waited for once an epoch. The mean loss of each epoch. `beside`: parameters that are fitted with the
    model's. `after_step` is told with which share of the learning rate a batch's step was taken. Leaves the
    model on the CPU, in evaluation mode.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError(f"{type(model).__name__} has no trainable parameters")
    model.train()
    tables = table_rows(model)
    optimiser = Adam([*parameters, *beside], plan.learning_rate, plan.weight_decay, tables=tables)
    steps, monitor = plan.epochs * math.ceil(n / rows), plan.monitor
    numbers = itertools.count()

    def step(part: torch.Tensor, noted: torch.Tensor) -> None:
        """A step, its batch's loss noted. The learning rate falls to 0 along a line."""
        value = loss(part)
        noted.copy_(value.detach())
        optimiser.zero_grad()
        value.backward()
        done = next(numbers)
        share = 1.0 - done / steps
        optimiser.step(share)
        after_step(share)
        if monitor is not None:
            monitor.after(done + 1, steps, model, (noted, len(part)))

    shuffle = torch.Generator().manual_seed(plan.seed)
    history = []
    with torch.random.fork_rng():
        if monitor is not None:
            monitor.after(0, steps, model, None)
        torch.manual_seed(plan.seed)  # for models that draw while they train, such as dropout
        for epoch in range(plan.epochs):
            parts = torch.randperm(n, generator=shuffle).split(rows)
            # In one table: a small tensor kept of each batch would split the room that the large ones leave.
            values = torch.zeros(len(parts), device=plan.device)
            for part, noted in zip(parts, values, strict=True):
                step(part, noted)
            mean = _mean(values, [len(part) for part in parts])
            if not math.isfinite(mean):
                raise ValueError(f"the loss of epoch {epoch + 1} is {mean}: lower learning_rate")
            history.append(mean)
            plan.on_epoch(epoch, mean)
    model.to("cpu").eval()
    return history


def on_device(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(a)).to(device) for name, a in arrays.items()}


def outputs(
    model: nn.Module, tables: "Tables", users: torch.Tensor, context: torch.Tensor, ads: torch.Tensor
) -> torch.Tensor:
    """What the model says of a batch, in float32 on every device.

    The nets are small, and logits of half precision would be too coarse to rank by.
    """
    return predict(model, *tables.inputs(users, context, ads, id_tables(model)))


@torch.no_grad()
def list_scores(model: nn.Module, view: FeatureView, lists: Lists, at_once: int = 1024) -> np.ndarray:
    """The served score of each candidate of the lists, of a net with one head.  [L, m] float64"""
    columns, tables = on_device(lists.arrays(), torch.device("cpu")), Tables(view, torch.device("cpu"))
    parts = [
        outputs(model, tables, *(columns[name][rows] for name in ("users", "context", "ads"))).double()
        for rows in torch.arange(len(lists.users)).split(at_once)
    ]
    return torch.cat(parts).numpy() if parts else np.zeros(lists.ads.shape)


def predict(model: nn.Module, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
    """Logits [R, n] from raw features; a model that encodes its ads apart is given them encoded."""
    encode = getattr(model, "encode_ads", None)
    return model(request, ads if encode is None else encode(ads), pair)


class Tables:
    """The view's matrices on the device; gathers the inputs of a batch."""

    def __init__(self, view: FeatureView, device: torch.device):
        def on_device(a):
            return None if a is None else torch.from_numpy(np.ascontiguousarray(a)).to(device)

        self.user, self.ad = on_device(view.user_table), on_device(view.ad_table)
        self.pair_user, self.pair_ad = on_device(view.pair_user), on_device(view.pair_ad)
        self.has_context, self.threshold = view.has_context, view.pair_threshold
        self.advertiser, self.history = on_device(view.advertiser), None
        if view.history is not None:  # the features in the mean of a history are always the same
            features = np.concatenate([view.ad_table, np.zeros((1, view.ad_width), np.float32)])
            self.past = on_device(mean_rows(features, view.history))
            is_ad = view.history >= 0
            self.history = on_device(np.maximum(view.history, 0))
            n = np.maximum(is_ad.sum(axis=1, keepdims=True), 1)
            self.share = on_device((is_ad / n).astype(np.float32))  # of an ad in the mean

    def inputs(self, users, context, ads, ids: IdTables | None = None):
        """users [R], context [R], ads [R] or [R, n] -> request [R, Fr], ads [R, n, Fa], pair [R, n, P]

        With the tables of a net, whose rows then join the features of requests and ads.
        """
        ads = ads if ads.dim() == 2 else ads.unsqueeze(1)
        request, features = self.sides(users, context, ads, ids)
        if self.pair_user is None:
            pair = request.new_zeros((*ads.shape, 0))
        else:
            pair_user, pair_ad = self.pair_user.index_select(0, users), embedding(ads, self.pair_ad)
            affinity = (pair_user.unsqueeze(1) * pair_ad).sum(-1, keepdim=True)
            pair = torch.relu(affinity - self.threshold)
        return request, features, pair

    def sides(self, users, context, ads, ids: IdTables | None = None):
        """users [R], context [R], ads [..] -> request [R, Fr], ads [.., Fa]: each side by itself"""
        request = self.user.index_select(0, users)
        if self.has_context:
            request = torch.cat([request, context.unsqueeze(1)], dim=1)
        features = embedding(ads, self.ad)
        if ids is None:
            return request, features
        past = None if self.history is None else self._past(users)
        return ids.join(request, features, (users, ads), self.advertiser, past)

    def _past(self, users):
        return ClickHistory(
            *(table.index_select(0, users) for table in (self.past, self.history, self.share))
        )
