"""Checks of a model as it is served: what it answers, and on what the answer depends."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cascade_sim.checks.contract import CheckFailed, Remark
from cascade_sim.checks.model import Subject, Tensors, far_apart, logits
from cascade_sim.training.modules import make_scorer

REQUESTS, CANDIDATES = 6, 5
LARGE = 1000.0  # features are standard normal, so this is far outside
DROPOUT_OPS = ("bernoulli", "bernoulli_", "native_dropout", "dropout", "dropout_")


def output(subject: Subject) -> str:
    """A tensor of floats [R, n]."""
    found: Any = logits(subject.build(), subject.inputs(REQUESTS, CANDIDATES))
    expected = f"expected a float tensor of shape [R, n] = [{REQUESTS}, {CANDIDATES}]"
    if not isinstance(found, torch.Tensor):
        raise CheckFailed(f"{expected}, found {type(found).__name__}")
    if tuple(found.shape) != (REQUESTS, CANDIDATES):
        raise CheckFailed(f"{expected}, found shape {list(found.shape)}")
    if not found.dtype.is_floating_point:
        raise CheckFailed(f"{expected}, found dtype {found.dtype}")
    return f"{found.dtype} of shape [{REQUESTS}, {CANDIDATES}]"


def small_sizes(subject: Subject) -> str:
    """One request or one candidate keeps both axes: training gives one candidate, short pages few."""
    module = subject.build()
    for size in ((1, CANDIDATES), (REQUESTS, 1), (1, 1)):
        found = tuple(logits(module, subject.inputs(*size)).shape)
        if found != size:
            raise CheckFailed(
                f"expected shape {list(size)} for {size[0]} request(s) of {size[1]} candidate(s), "
                f"found {list(found)}; a squeeze() without a dimension does this"
            )
    return "one request, one candidate and both keep their shape"


def finite(subject: Subject) -> str:
    """Numbers, also far away from what was trained on."""
    module = subject.build()
    for scale, what in ((1.0, "ordinary features"), (0.0, "features of 0"), (LARGE, f"features x {LARGE:g}")):
        request, ads, pair = (tensor * scale for tensor in subject.inputs(REQUESTS, CANDIDATES))
        found = logits(module, (request, ads, pair))
        bad = ~torch.isfinite(found)
        if bool(bad.any()):
            row, column = bad.nonzero()[0].tolist()
            value = float(found[row, column])
            raise CheckFailed(
                f"expected finite logits for {what}, found {value} (request {row}, candidate {column})"
            )
    return f"also for features of 0 and x {LARGE:g}"


def eval_mode(subject: Subject) -> str:
    """After eval(), no part still trains and nothing is dropped."""
    module = subject.build().eval()
    left = [name or "the module" for name, part in module.named_modules() if part.training]
    if left:
        raise CheckFailed(f"expected eval() to reach every part, found training mode in: {', '.join(left)}")
    with _Watch() as watch:
        logits(module, subject.inputs(REQUESTS, CANDIDATES))
    left = [name or "the module" for name, part in module.named_modules() if part.training]
    if left:
        raise CheckFailed(
            f"expected forward to leave the mode alone, found train() called on: {', '.join(left)}"
        )
    if watch.dropped:
        raise CheckFailed(
            "expected no dropout after eval(), found some in forward; use nn.Dropout, or "
            "functional.dropout(..., training=self.training)"
        )
    return "no part in training mode, no dropout"


def repeatable(subject: Subject) -> str:
    """The same input twice: the same bits."""
    module, inputs = subject.build(), subject.inputs(REQUESTS, CANDIDATES)
    first, second = logits(module, inputs), logits(module, inputs)
    if not _same_bits(first, second):
        gap = float((first.double() - second.double()).abs().nan_to_num(nan=float("inf")).max())
        raise CheckFailed(
            f"expected the same bits for the same input, found a difference of {gap:.3g}; "
            "forward draws random numbers or remembers earlier calls"
        )
    return "the same input twice gives the same bits"


def batch_is_single(subject: Subject) -> str:
    """The answer to a request does not depend on who is served with it."""
    module, inputs = subject.build(), subject.inputs(REQUESTS, CANDIDATES)
    together = logits(module, inputs)
    for row in range(REQUESTS):
        request, ads, pair = (tensor[row : row + 1] for tensor in inputs)
        gap = far_apart(logits(module, (request, ads, pair)), together[row : row + 1])
        if gap:
            raise CheckFailed(
                f"expected a request alone to score as in a batch (to 1e-5), found a difference of {gap:.3g} "
                f"for request {row}; a statistic over the batch (batch norm in training mode?) does this"
            )
    return "a request alone scores as in a batch"


def candidates(subject: Subject) -> str:
    """The score of an ad does not depend on the other candidates; a listwise model's may."""
    module, (request, ads, pair) = subject.build(), subject.inputs(REQUESTS, CANDIDATES)
    together = logits(module, (request, ads, pair))
    turned = logits(module, (request, ads.flip(1), pair.flip(1))).flip(1)
    alone = torch.cat(
        [logits(module, (request, ads[:, i : i + 1], pair[:, i : i + 1])) for i in range(CANDIDATES)], dim=1
    )
    if far_apart(turned, together):
        raise Remark(
            "the score depends on the place in the row, which is the order of ad ids and means nothing; "
            "is an axis mixed up?"
        )
    gap = far_apart(alone, together)
    if gap:
        raise Remark(
            f"a listwise model: a candidate alone scores differently (by {gap:.3g}). Allowed, but recipe "
            "logloss trains on single candidates, and stages of other sizes get other scores"
        )
    return "each candidate is scored for itself"


def side_effects(subject: Subject) -> str:
    """Serving leaves the inputs and the weights as they were."""
    module, inputs = subject.build().eval(), subject.inputs(REQUESTS, CANDIDATES)
    given: Tensors = (inputs[0].clone(), inputs[1].clone(), inputs[2].clone())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.no_grad():
        # What encode_ads gives, forward may change: the engine hands out copies of it.
        encode = getattr(module, "encode_ads", None)
        module(given[0], given[1] if encode is None else encode(given[1]), given[2])
    for name, now, was in zip(("request", "ads", "pair"), given, inputs, strict=True):
        if not _same_bits(now, was):
            raise CheckFailed(
                f"expected the inputs to stay as they are, found `{name}` changed in place by forward"
            )
    changed = [name for name, value in module.state_dict().items() if not _same_bits(value, before[name])]
    if changed:
        raise CheckFailed(
            f"expected the weights to stay as they are in eval mode, found changed: {', '.join(changed)}"
        )
    return "inputs and weights stay as they are"


def served(subject: Subject) -> str:
    """The engine's seat (encoded ads, fused kernels, inference mode) answers what forward does."""
    module = subject.build().eval()
    scorer = make_scorer(subject.spec.kind, subject.spec.recipe, subject.view, module)
    block, ids = subject.block(REQUESTS), subject.candidates(REQUESTS, CANDIDATES)
    seat = torch.from_numpy(scorer.logit(block, ids))
    gap = far_apart(seat, logits(module, subject.inputs(REQUESTS, CANDIDATES)), tolerance=1e-4)
    if gap:
        raise CheckFailed(
            f"expected the seat to score as forward does, found a difference of {gap:.3g}; encode_ads must "
            "give an ad the same code whether alone or in a table"
        )
    how = ", ads encoded once" if hasattr(module, "encode_ads") else ""
    return f"{type(scorer).__name__} scores as forward does{how}"


class _Watch(TorchDispatchMode):
    """Notices dropout below whatever name the user's code called it by."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.dropped |= func.overloadpacket.__name__ in DROPOUT_OPS
        return func(*args, **(kwargs or {}))


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, NaN included."""
    return (
        a.shape == b.shape
        and bool(torch.equal(a.isnan(), b.isnan()))
        and torch.equal(a.nan_to_num(), b.nan_to_num())
    )


SERVING_CHECKS = (
    ("output", output, ()),
    ("small sizes", small_sizes, ("output",)),
    ("finite", finite, ("output",)),
    ("eval mode", eval_mode, ("output",)),
    ("repeatable", repeatable, ("output",)),
    ("batch = single", batch_is_single, ("output", "finite", "repeatable")),
    ("candidates", candidates, ("output", "small sizes", "finite", "repeatable")),
    ("side effects", side_effects, ("output",)),
    ("serving", served, ("output", "finite", "repeatable")),
)
