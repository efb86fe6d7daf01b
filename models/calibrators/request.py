"""A calibrator that looks at the request: a monotone piecewise-linear map whose shape the request decides.

It sees features of the request alone, never of the item, and rises with the score; so all candidates of a
request go through one rising curve and keep their order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.nn import functional

from cascade_sim.models.adam import Adam
from cascade_sim.models.calibrators.base import Calibrator, fit_inputs, wide
from cascade_sim.models.calibrators.logistic import Platt
from cascade_sim.models.examination import slot_log_odds


class RequestMap(nn.Module):
    """g(q; request), q = σ(slope · score + level): linear on K equal intervals of (0, 1), g(0) = 0, g(1) = 1.

    Heights of the intervals are a = (1 − floor) · softmax(net(request)) + floor / K, so the slope is never
    below `floor` and g rises strictly. Gradients stop at the score and at the request: training the map
    leaves the ranker alone. Fresh from the constructor g(q) = q. Without request features (width 0) one free
    vector of heights serves all requests.

    `start` = (slope > 0, level) brings scores onto the scale of logits before the map; (1, 0) leaves them. A
    score far off that scale sits in an end interval, where g is pinned to 0 or 1 and cannot help.
    """

    shift: torch.Tensor
    scale: torch.Tensor
    start: torch.Tensor

    def __init__(
        self,
        request_width: int,
        hidden: Sequence[int] = (255, 127, 127),
        intervals: int = 100,
        floor: float = 1e-3,
    ) -> None:
        super().__init__()
        if intervals < 1 or not 0 < floor <= 1:
            raise ValueError(f"intervals must be at least 1 and floor in (0, 1], not {intervals}, {floor}")
        self.request_width, self.hidden = request_width, tuple(int(h) for h in hidden)
        self.intervals, self.floor = intervals, floor
        self.common = nn.Parameter(torch.zeros(intervals))
        layers: list[nn.Module] = []
        width = request_width
        for size in self.hidden if request_width else ():
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        if request_width:
            last = nn.Linear(width, intervals, bias=False)
            nn.init.zeros_(last.weight)
            layers.append(last)
        self.net = nn.Sequential(*layers)
        self.register_buffer("shift", torch.zeros(request_width))
        self.register_buffer("scale", torch.ones(request_width))
        self.register_buffer("start", torch.tensor([1.0, 0.0], dtype=torch.float64))

    def heights(self, request: torch.Tensor | None) -> torch.Tensor:
        """Heights of the intervals, positive, summing to 1.  [..., d] -> [..., K]; no request: [K]"""
        logits = self.common
        if self.request_width:
            if request is None or request.shape[-1] != self.request_width:
                seen = None if request is None else tuple(request.shape)
                raise ValueError(f"this map needs {self.request_width} request features, got {seen}")
            features = request.detach().to(self.shift.dtype)
            logits = logits + self.net((features - self.shift) / self.scale)
        return (1.0 - self.floor) * logits.to(wide(logits.device)).softmax(-1) + self.floor / self.intervals

    def log_odds(self, scores: torch.Tensor, request: torch.Tensor | None = None) -> torch.Tensor:
        """logit g, finite and rising for every finite score.

        request [N, d] with scores [N], or one row per request, [R, d] with scores [R, n]: the leading axes of
        the two are the same.
        """
        a = self.heights(request)
        slope, level = self.start.to(a.dtype)
        s = slope * scores.detach().to(a.dtype).reshape(*a.shape[:-1], -1) + level
        size = self.intervals
        q, rest = torch.sigmoid(s), torch.sigmoid(-s)
        k = (q * size).floor().long().clamp(0, size - 1)
        own = a.gather(-1, k)
        below = (a.cumsum(-1) - a).gather(-1, k)
        above = (a.flip(-1).cumsum(-1).flip(-1) - a).gather(-1, k)
        # the way into the interval and what is left of it, each from the end of (0, 1) it is exact at
        left = torch.where(k == size - 1, rest * size, 1.0 - (q * size - k)).clamp(0.0, 1.0)
        gone = torch.where(k == 0, q * size, 1.0 - left).clamp(0.0, 1.0)
        # nothing is below the first interval or above the last: there the logarithm is known without exp
        log_g = torch.where(
            k == 0, own.log() + math.log(size) + functional.logsigmoid(s), _log(below + gone * own)
        )
        log_rest = torch.where(
            k == size - 1, own.log() + math.log(size) + functional.logsigmoid(-s), _log(above + left * own)
        )
        return (log_g - log_rest).reshape(scores.shape)

    def forward(self, scores: torch.Tensor, request: torch.Tensor | None = None) -> torch.Tensor:
        """Calibrated probabilities, in the scores' dtype."""
        return torch.sigmoid(self.log_odds(scores, request)).to(scores.dtype)

    def loss(
        self,
        scores: torch.Tensor,
        labels: torch.Tensor,
        request: torch.Tensor | None = None,
        examination: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Mean log loss; its gradient reaches this map's own parameters only.

        With `examination` [N], the chances x that slots were looked at, labels are clicks: P(click) = x · g.
        """
        odds = self.log_odds(scores, request)
        if examination is not None:
            odds = slot_log_odds(odds, examination.to(odds.dtype))
        return functional.binary_cross_entropy_with_logits(odds, labels.to(odds.dtype))


def _log(x: torch.Tensor) -> torch.Tensor:
    """log, kept finite where the other branch of a `where` is taken (its gradient would be 0 · ∞)."""
    return x.clamp_min(torch.finfo(x.dtype).tiny).log()


@dataclass(frozen=True, eq=False)
class PiecewiseLinear(Calibrator):
    """A trained RequestMap. Keeps the order within a request strictly, as far as floats can tell.

    `fit` is for scores of a model that is done. Platt's line brings them onto the scale of logits; where it
    does not rise (one class, equal scores, scores that mislead) they are taken as they are. From there the
    map is trained by log loss with Adam for `epochs` passes: one class or few samples bend it a little way
    towards 0 or 1 and no further. Without `request` it is one map for all. `untrained` is the map before all
    that, to be trained with a model that is in training itself (`page_training.train_pages`).

    >>> scores, clicks = np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> PiecewiseLinear.fit(scores, clicks, epochs=1)(np.array([-1.0, 1.0])).round(2).tolist()
    [0.45, 0.65]
    """

    map: RequestMap
    name = "piecewise_linear"
    uses_request = True

    @classmethod
    def fit(
        cls,
        scores: ArrayLike,
        labels: ArrayLike,
        *,
        request: ArrayLike | None = None,
        hidden: Sequence[int] = (255, 127, 127),
        intervals: int = 100,
        floor: float = 1e-3,
        epochs: int = 5,
        batch: int = 1024,
        learning_rate: float = 0.003,
        seed: int = 0,
        device: torch.device | None = None,
        **options: Any,
    ) -> PiecewiseLinear:
        """scores, labels [N]; request [N, d], standardised by its own mean and spread.

        Trained on the device, and on the CPU afterwards.
        """
        cls.no_options(options)
        s, y = fit_inputs(scores, labels)
        x = torch.zeros(s.size, 0) if request is None else torch.as_tensor(request, dtype=torch.float32)
        if x.ndim != 2 or len(x) != s.size or not torch.isfinite(x).all():
            raise ValueError(f"request must be finite and [{s.size}, d], not {tuple(x.shape)}")
        net = cls.untrained(x, hidden=hidden, intervals=intervals, floor=floor, seed=seed).map
        line = Platt.fit(s, y)
        if line.slope > 0:
            net.start.copy_(torch.tensor([line.slope, line.intercept], dtype=torch.float64))
        net.requires_grad_().train()
        place = device or torch.device("cpu")
        score, label = (torch.from_numpy(values).to(wide(place)).to(place) for values in (s, y))
        _train(moved(net, place), score, label, x.to(place), epochs, batch, learning_rate, seed)
        return cls(moved(net, torch.device("cpu")).requires_grad_(False).eval())

    @classmethod
    def untrained(
        cls,
        request: ArrayLike,
        *,
        hidden: Sequence[int] = (255, 127, 127),
        intervals: int = 100,
        floor: float = 1e-3,
        seed: int = 0,
    ) -> PiecewiseLinear:
        """g(q) = q, the sigmoid of the score; features will be standardised by those of `request` [N, d]."""
        x = torch.as_tensor(request, dtype=torch.float32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = RequestMap(x.shape[1], hidden, intervals, floor)
        if x.numel():
            spread = x.std(0, correction=0)
            net.shift.copy_(x.mean(0))
            net.scale.copy_(torch.where(spread > 0, spread, 1.0))
        return cls(net.requires_grad_(False).eval())

    def probability(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        probability: torch.Tensor = self.map(scores, request)
        return probability

    def arrays(self) -> dict[str, NDArray[Any]]:
        sizes = [self.map.request_width, self.map.intervals, *self.map.hidden]
        learnt = {name: value.detach().cpu().numpy() for name, value in self.map.state_dict().items()}
        return {"sizes": np.array(sizes, np.int64), "floor": np.array([self.map.floor]), **learnt}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> PiecewiseLinear:
        width, intervals, *hidden = (int(n) for n in arrays["sizes"])
        net = RequestMap(width, hidden, intervals, float(arrays["floor"][0]))
        net.load_state_dict(
            {name: torch.tensor(value) for name, value in arrays.items() if name not in ("sizes", "floor")}
        )
        return cls(net.requires_grad_(False).eval())


def moved(net: RequestMap, device: torch.device) -> RequestMap:
    """The map on that device, with its start in the widest type that there is."""
    net.start = net.start.cpu().to(wide(device)).to(device)
    return net.to(device)


def _train(
    net: RequestMap,
    scores: torch.Tensor,
    labels: torch.Tensor,
    request: torch.Tensor,
    epochs: int,
    batch: int,
    learning_rate: float,
    seed: int,
) -> None:
    """Adam over shuffled batches; the learning rate falls to 0 along a line."""
    optimiser = Adam(net.parameters(), learning_rate)
    steps = epochs * -(-len(scores) // batch)
    numbers = itertools.count()
    shuffle = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(scores), generator=shuffle).to(scores.device).split(batch):
            optimiser.zero_grad()
            features = request[rows] if net.request_width else None
            net.loss(scores[rows], labels[rows], features).backward()
            optimiser.step(1.0 - next(numbers) / steps)
