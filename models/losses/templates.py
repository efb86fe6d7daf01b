"""Order-preserving template losses: only scores in the order of the expected utilities minimise them.

The labels are utilities v, in [0, eta] where a loss has an eta. Pairs are all pairs, and v weighs both
directions of each: a loss on the pairs v_i > v_j alone, as RankNet, is not order-preserving in general.
An empty list is 0; so is one item for the pairwise losses. Exponentials overflow to inf where their value
does: from 88 on in float32, from 709 in float64.
"""

from collections.abc import Callable
from typing import Unpack

import torch
from torch.nn import functional

from cascade_sim.models.known import check_known
from cascade_sim.models.losses import engine as loss_engine
from cascade_sim.models.losses.call import Given, PerTerm, loss
from cascade_sim.models.losses.lists import make_batch, reduce_terms
from cascade_sim.models.losses.pointwise import from_items, log_terms

Elementwise = Callable[[torch.Tensor], torch.Tensor]


@loss
def pointwise_squared(given: Given, **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: sum_i (v_i - s_i)^2; each="mean": per item.

    >>> round(pointwise_squared(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    2.0
    """
    batch = make_batch(*given)
    return from_items((batch.labels - batch.scores).square(), batch, **how)


@loss
def pointwise_logistic(given: Given, *, eta: float = 1.0, **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: sum_i v_i log(1 + e^-s_i) + (eta - v_i) log(1 + e^s_i); each="mean": per item.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(pointwise_logistic(scores, labels).item(), 3)
    2.133
    """
    batch = make_batch(*given, low=0, high=eta)
    s, v = batch.scores, batch.labels
    terms = -v * functional.logsigmoid(s) - (eta - v) * functional.logsigmoid(-s)
    return from_items(terms, batch, **how)


@loss
def pointwise_exponential(given: Given, *, eta: float = 1.0, **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: sum_i v_i e^-s_i + (eta - v_i) e^s_i; each="mean": per item.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(pointwise_exponential(scores, labels).item(), 3)
    3.854
    """
    batch = make_batch(*given, low=0, high=eta)
    s, v = batch.scores, batch.labels
    # 0 times an overflow is not 0: where a weight is 0 its exponential is not taken.
    rise, fall = torch.exp((-s).masked_fill(v == 0, 0)), torch.exp(s.masked_fill(v == eta, 0))
    return from_items(v * rise + (eta - v) * fall, batch, **how)


@loss
def pointwise_square_hinge(
    given: Given, *, eta: float = 1.0, margin: float = 1.0, **how: Unpack[PerTerm]
) -> torch.Tensor:
    """Value of a list: sum_i v_i max(0, t - s_i)^2 + (eta - v_i) max(0, s_i)^2; each="mean": per item.

    t = margin > 0.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(pointwise_square_hinge(scores, labels).item(), 3)
    1.0
    """
    _check_positive("margin", margin)
    batch = make_batch(*given, low=0, high=eta)
    s, v = batch.scores, batch.labels
    terms = v * torch.relu(margin - s).square() + (eta - v) * torch.relu(s).square()
    return from_items(terms, batch, **how)


@loss
def pointwise_differentiable_hinge(
    given: Given, *, eta: float = 1.0, width: float = 1.0, **how: Unpack[PerTerm]
) -> torch.Tensor:
    """Value of a list: sum_i v_i h(1 - s_i) + (eta - v_i) h(s_i); each="mean": per item.

    h(x) = 0 for x <= 0, x^2 / (2 width) up to width, x - width / 2 above; width > 0.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(pointwise_differentiable_hinge(scores, labels).item(), 3)
    0.5
    """
    _check_positive("width", width)
    batch = make_batch(*given, low=0, high=eta)
    s, v = batch.scores, batch.labels

    def hinge(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(0, width).square() / (2 * width) + torch.relu(x - width)

    return from_items(v * hinge(1 - s) + (eta - v) * hinge(s), batch, **how)


def _pairwise(phi: str, given: Given, engine: str, *, low: float, **how: Unpack[PerTerm]) -> torch.Tensor:
    batch = make_batch(*given, low=low)
    values = loss_engine.pairs(batch, phi, is_ordered=False, engine=engine)
    return reduce_terms(values, batch.scores.dtype, lambda: batch.sizes * (batch.sizes - 1) / 2, **how)


@loss
def pairwise_squared(given: Given, *, engine: str = "auto", **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: sum_{i<j} (v_i - v_j - d)^2, d = s_i - s_j; each="mean": per pair. O(n) on the CPU.

    >>> round(pairwise_squared(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    2.0
    """
    return _pairwise("squared", given, engine, low=-torch.inf, **how)


@loss
def pairwise_logistic(given: Given, *, engine: str = "auto", **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: sum_{i<j} v_i log(1 + e^-d) + v_j log(1 + e^d); each="mean": per pair.

    d = s_i - s_j, v >= 0.

    >>> round(pairwise_logistic(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    0.44
    """
    return _pairwise("logistic", given, engine, low=0, **how)


@loss
def pairwise_exponential(given: Given, *, engine: str = "auto", **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: sum_{i<j} v_i e^-d + v_j e^d; each="mean": per pair.

    d = s_i - s_j, v >= 0. O(n) on the CPU.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(pairwise_exponential(scores, labels).item(), 3)
    0.503
    """
    return _pairwise("exponential", given, engine, low=0, **how)


def _entropy(v: torch.Tensor) -> torch.Tensor:
    """v log v, 0 at 0."""
    return torch.special.xlogy(v, v)


# Name -> greatest label, and B(v || g(s)) of one item in a closed form that has no cancellation in the tails.
BREGMAN: dict[str, tuple[float, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "squared": (torch.inf, lambda v, s: 0.5 * (v - s).square()),
    "logistic": (
        1.0,
        lambda v, s: _entropy(v) + _entropy(1 - v) + log_terms(s, v),
    ),
    "poisson": (torch.inf, lambda v, s: _entropy(v) - v * s + torch.exp(s) - v),
}


@loss
def bregman(
    given: Given, *, psi: str | tuple[Elementwise, Elementwise] = "logistic", **how: Unpack[PerTerm]
) -> torch.Tensor:
    """Value of a list: psi(v) - psi(g(s)) - <grad psi(g(s)), v - g(s)>, the divergence of v from g(s).

    psi is a sum over items of one of these, by name, with its g; or two elementwise functions (psi, g) of
    one's own, psi strictly convex and g increasing, and the gradient of psi is then taken by torch:
    - squared: x^2 / 2, g(s) = s; 1-strongly convex.
    - logistic: x log x + (1 - x) log(1 - x), g = sigmoid, labels in [0, 1]; 4-strongly convex.
    - poisson: x log x - x, g = exp, labels >= 0; 1/eta-strongly convex for values up to eta.
    Every one is 0 at g(s) = v and least in expectation at g(s) = E[v]. each="mean": per item.

    >>> round(bregman(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    2.133
    """
    if isinstance(psi, str):
        check_known("psi", psi, BREGMAN)
        high, form = BREGMAN[psi]
        batch = make_batch(*given, low=-torch.inf if psi == "squared" else 0, high=high)
        return from_items(form(batch.labels, batch.scores), batch, **how)
    batch = make_batch(*given)
    convex, g = psi
    with torch.enable_grad():
        x = g(batch.scores)
        at = x if x.requires_grad else x.detach().requires_grad_()
        (rise,) = torch.autograd.grad(convex(at).sum(), at, create_graph=x.requires_grad)
    terms = convex(batch.labels) - convex(x) - rise * (batch.labels - x)
    return from_items(terms, batch, **how)


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be greater than 0, not {value}")
