"""From samples to a trained net by a recipe of `recipes`: one loop for clicks and for teachers' lists.

Repeatable: one torch thread, shuffles and initial weights from a seed, fixed batches.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding

from cascade_sim.models.adam import Adam
from cascade_sim.models.features import FeatureView
from cascade_sim.models.nets.ids import IdTables, Past, id_tables, mean_rows
from cascade_sim.models.recipes import recipe_named


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
    data: Impressions | Lists,
    recipe: str,
    *,
    epochs: int,
    batch: int,
    learning_rate: float,
    weight_decay: float = 0.0,
    device: torch.device | None = None,
    seed: int = 0,
    warm_start: bool = False,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> list[float]:
    """Fit `model` in place; the mean loss of each epoch. The learning rate falls linearly to zero.

    A non-finite loss stops the training with a ValueError. No samples leave the model as it is. A warm start
    goes on from the model's own base rate in place of the data's.
    """
    if len(data.users) == 0:
        return []
    form, device = recipe_named(recipe).loss, device or torch.device("cpu")
    model.to(device)
    if isinstance(data, Impressions) and not warm_start:
        set_base_rate(model, data)
    per_row = 1 if isinstance(data, Impressions) else data.ads.shape[1]
    columns, tables = on_device(data.arrays(), device), Tables(view, device)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        sample = {name: column.index_select(0, rows) for name, column in columns.items()}
        users, ads = sample["users"], sample["ads"]
        logit = outputs(model, tables, users, sample["context"], ads)
        expected = (len(users), ads.shape[1] if ads.dim() == 2 else 1)
        if logit.shape != expected:
            raise ValueError(f"the model returned shape {tuple(logit.shape)}, not {expected}")
        return form(logit.float(), sample)

    return run_epochs(
        model, loss, len(data.users), max(1, batch // per_row), epochs=epochs, learning_rate=learning_rate,
        weight_decay=weight_decay, device=device, seed=seed, on_epoch=on_epoch,
    )  # fmt: skip


def run_epochs(
    model: nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    n: int,
    rows: int,
    *,
    epochs: int,
    learning_rate: float,
    weight_decay: float,
    device: torch.device,
    seed: int,
    on_epoch: Callable[[int, float], None],
) -> list[float]:
    """Passes over n rows in shuffled batches; `loss` gives a batch's mean loss from its row numbers.

    The mean loss of each epoch. Leaves the model on the CPU, in evaluation mode.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError(f"{type(model).__name__} has no trainable parameters")
    model.train()
    optimiser = Adam(parameters, learning_rate, weight_decay)
    steps = epochs * math.ceil(n / rows)
    numbers = itertools.count()

    def step(part: torch.Tensor) -> torch.Tensor:
        """The loss of the batch before the step, detached. The learning rate falls to 0 along a line."""
        value = loss(part)
        optimiser.zero_grad()
        value.backward()
        optimiser.step(1.0 - next(numbers) / steps)
        return value.detach()

    shuffle = torch.Generator().manual_seed(seed)
    history = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # for models that draw while they train, such as dropout
        for epoch in range(epochs):
            parts = torch.randperm(n, generator=shuffle).to(device).split(rows)
            values = [step(part) for part in parts]
            # Summed on the CPU: not every device has float64.
            sizes = torch.tensor([len(part) for part in parts], dtype=torch.float64)
            mean = float((torch.stack(values).cpu().double() * sizes).sum()) / n
            if not math.isfinite(mean):
                raise ValueError(f"the loss of epoch {epoch + 1} is {mean}: lower learning_rate")
            history.append(mean)
            on_epoch(epoch, mean)
    model.to("cpu").eval()
    return history


def on_device(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(a)).to(device) for name, a in arrays.items()}


def outputs(
    model: nn.Module, tables: "Tables", users: torch.Tensor, context: torch.Tensor, ads: torch.Tensor
) -> torch.Tensor:
    """What the model says of a batch; in mixed precision where the device has it."""
    kind = users.device.type
    with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
        return predict(model, *tables.inputs(users, context, ads, id_tables(model)))


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
        request = self.user.index_select(0, users)
        if self.has_context:
            request = torch.cat([request, context.unsqueeze(1)], dim=1)
        if self.pair_user is None:
            pair = request.new_zeros((*ads.shape, 0))
        else:
            pair_user, pair_ad = self.pair_user.index_select(0, users), embedding(ads, self.pair_ad)
            affinity = (pair_user.unsqueeze(1) * pair_ad).sum(-1, keepdim=True)
            pair = torch.relu(affinity - self.threshold)
        features = embedding(ads, self.ad)
        if ids is None:
            return request, features, pair
        past = None if self.history is None else self._past(users)
        return *ids.join(request, features, (users, ads), self.advertiser, past), pair

    def _past(self, users):
        return Past(*(table.index_select(0, users) for table in (self.past, self.history, self.share)))
