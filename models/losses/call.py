"""How every loss is called: loss(scores, labels, lists, *, weight=None, reduction="mean", ...).

A loss is written as its form: of what it is `Given`, of options of its own, and of `how` the lists' values
are put together, which it hands on.

    @loss
    def squared(given: Given, **how: Unpack[PerTerm]) -> torch.Tensor:
        batch = make_batch(*given)
        return from_items(0.5 * (batch.labels - batch.scores).square(), batch, **how)

    squared(scores, labels, lists, each="mean")
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypedDict, get_args

import torch

from cascade_sim.models.losses.lists import Offsets, reduce_terms

Options = ParamSpec("Options")

# What holds for every loss; `loss` puts it below the formula of each.
ARGS = """
    Args:
        scores: what the model gives; flat [N] with `lists`, or [L, m] with a list in each row.
        labels: of the same shape.
        lists: offsets [L + 1] of the lists in flat scores; None with [L, m].
        weight: [L] >= 0; a list of weight k counts as k such lists.
        reduction: "mean" over lists, "sum", or "none".
        engine: "auto", "fused" (CPU kernels in float64) or "torch"; of losses on pairs and lists.

    Returns:
        A scalar, or the lists' values [L] with reduction="none"; differentiable in `scores`.
    """


class Given(NamedTuple):
    """What a loss is given, not yet checked: `make_batch(*given)` does."""

    scores: torch.Tensor
    labels: torch.Tensor
    lists: Offsets | None


class PerList(TypedDict, total=False):
    """What every loss takes by keyword, as `lists.reduce` has it."""

    weight: torch.Tensor | None
    reduction: str


class PerTerm(PerList, total=False):
    """What a loss takes whose value of a list is a sum of terms, as `lists.reduce_terms` has it."""

    each: str


class Loss(Protocol[Options]):
    """A loss as it is called. The options are keywords."""

    def __call__(
        self,
        scores: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets | None = None,
        *args: Options.args,
        **options: Options.kwargs,
    ) -> torch.Tensor: ...


def loss(form: Callable[Concatenate[Given, Options], torch.Tensor]) -> Loss[Options]:
    """The loss of this form. Its signature names every option, also those the form just hands on."""
    given = list(inspect.signature(Loss.__call__).parameters.values())[1:4]  # after self
    _, *own, how = inspect.signature(form).parameters.values()
    handed_on = inspect.signature(reduce_terms).parameters
    shared = [handed_on[name] for name in get_args(how.annotation)[0].__annotations__]
    known = {option.name for option in [*own, *shared]}

    @wraps(form)
    def called(
        scores: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets | None = None,
        *args: Options.args,
        **options: Options.kwargs,
    ) -> torch.Tensor:
        unknown = options.keys() - known
        if unknown:
            raise TypeError(f"{form.__name__}() got an unexpected keyword argument {min(unknown)!r}")
        return form(Given(scores, labels, lists), *args, **options)

    signature = inspect.Signature([*given, *own, *shared], return_annotation=torch.Tensor)
    called.__signature__ = signature  # type: ignore[attr-defined]
    called.__doc__ = (form.__doc__ or "").rstrip() + "\n" + ARGS
    return called
