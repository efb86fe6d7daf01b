"""Does a model keep the contract of the engine? Tests a class the way it will be built, trained and served.

    check_model(MyNet)                                   # or "path/to/file.py:MyNet"
    check_model(MyNet, options={"dims": 8}, features=("user", "quality", "G1"))

The contract: `Class(request_width, ad_width, pair_width, **options)` is a torch module whose
`forward(request [R, Fr], ads [R, n, Fa], pair [R, n, P])` gives logits [R, n], and whose answer for a
request depends on that request and its weights alone. The tests need no run, only a small world. With ids
among the features the engine adds tables to the class, whose rows are further columns of request and ads.
"""

import inspect
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from scipy.special import logit as log_odds
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from cascade_sim.cascade.scorers import ModelScorer
from cascade_sim.cascade.serve import Block
from cascade_sim.checks.contract import Check, CheckFailed, Findings, Listener, Remark, run_checks
from cascade_sim.diagnostics.reopen import load_weights
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.models.adam import Adam
from cascade_sim.models.features import HISTORY, FeatureView
from cascade_sim.models.nets.codes import encoders
from cascade_sim.models.nets.ids import IdTables, id_tables
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.training import (
    Impressions,
    Lists,
    Positives,
    Tables,
    TrainingPlan,
    chunk_of_order,
    predict,
    train,
)
from cascade_sim.scenario.plugins import (
    MODEL_KINDS,
    Reference,
    kind_of,
    require_reference,
    written_faults,
)
from cascade_sim.scenario.schema import BUILT_IN_FEATURES, ModelSpec
from cascade_sim.scenario.schema import World as WorldSpec
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.training.modules import (
    build_module,
    find_class,
    find_recipe,
    input_widths,
    make_scorer,
    module_options,
)
from cascade_sim.world.truth import GroundTruth
from cascade_sim.world.world import World, build_world

SMALL_WORLD = {"users": 64, "ads": 256, "advertisers": 32, "base_logit": -1.0}
SEED = 1
REQUESTS, CANDIDATES = 6, 5
LARGE = 1000.0  # features are standard normal, so this is far outside
DROPOUT_OPS = ("bernoulli", "bernoulli_", "native_dropout", "dropout", "dropout_")
SHAPE_OPS = ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "expand", "permute", "t", "detach")
N_LISTS, LIST = 256, 16  # what is trained on
BATCH = 256
MIN_GAIN = 1e-4  # of the loss; less is rounding
PUSHES, PUSH = 200, 0.05  # steps, and their size, that move weights towards low or high answers
INNER_GAP = 1e-3  # logits, between forward and the inner product of the codes
FAR_OUT = 2.0  # an answer that no probability has
ENDS = ("sigmoid", "softmax", "log_sigmoid_forward", "clamp", "relu", "exp", "softplus")
TIMED_FOR = 0.3  # seconds, of which the quickest scoring counts
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def check_model(
    model: type | str,
    *,
    options: Mapping[str, Any] | None = None,
    features: Sequence[str] = (),
    recipe: str = "logloss",
    home: Path = Path("."),
    on_finding: Listener | None = None,
    **training: Any,
) -> Findings:
    """Check that a model class can be trained, served and restored by the engine.

    Args:
        model: a torch.nn.Module class, or a kind as a scenario names it ("towers", "own.py:MyModel").
        options: keyword arguments of the class.
        features: feature groups; by default those of a pre-ranking model: all but bid, conversion and pairs.
        recipe: training recipe, as "logloss", "distill" or "ltr".
        home: folder that paths are relative to.
        on_finding: called with each Finding as its check ends.
        **training: further keys of a model's section, such as learning_rate.

    Returns:
        Findings: `.ok`, `.frame()`; as text, the output of the command line. Failed checks raise nothing.

    Raises:
        UserError: no such class, or an invalid key.

    >>> check_model("towers").ok
    True
    """
    if not isinstance(model, type | str):
        raise UserError(f"check_model: expected a class or the kind of one, found {model!r}")
    given = {"options": dict(options or {}), "recipe": recipe, **training}
    if features:
        given["features"] = tuple(features)
    try:
        spec = ModelSpec.model_validate(
            {"kind": model if isinstance(model, str) else kind_of(model), **given}
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in wrong["loc"])
        raise UserError(f"check_model: {key}: {wrong['msg']}, found {wrong['input']!r}") from None
    own = None if isinstance(model, str) else model
    return check_subject(make_subject(spec, home=home, own=own), on_finding)


def check_subject(subject: "Subject", on_finding: Listener | None = None) -> Findings:
    """All checks of a model."""
    more = (
        (name, check, ("constructor", *needs)) for name, check, needs in (*SERVING_CHECKS, *TRAINING_CHECKS)
    )
    with _one_thread():
        return run_checks((*FIRST_CHECKS, *more), subject, on_finding)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on a single thread, as the engine runs it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Subject:
    """The class under test, and a small world to test it in."""

    spec: ModelSpec
    world: World
    truth: GroundTruth
    view: FeatureView
    home: Path = Path(".")
    own: type | None = None  # the class itself, where it was given

    @property
    def kind(self) -> str:
        return self.spec.kind

    @property
    def cls(self) -> type[nn.Module]:
        if self.own is None:
            return find_class(self.kind, self.home)
        if not issubclass(self.own, nn.Module):
            raise CheckFailed(f"{self.kind} is not a torch.nn.Module class")
        return self.own

    def build(self, seed: int = SEED) -> nn.Module:
        """A fresh module, as the engine builds it."""
        return build_module(self.kind, self.spec, self.view, seed, self.home, cls=self.cls)

    def block(self, n_requests: int) -> Block:
        """Requests to try the model on, of different users and contexts."""
        number = np.arange(n_requests)
        users = (number * 7 % self.world.n_users).astype(np.int32)
        context = np.sin(number + 1.0).astype(np.float32)
        return Block(number.astype(np.int64), users, context, number.astype(np.float64))

    def candidates(self, n_requests: int, n: int) -> np.ndarray:
        """Ad ids, ascending in each row as the engine gives them.  [R, n] int32"""
        ids = (np.arange(n_requests)[:, None] * 13 + np.arange(n)[None, :] * 5) % self.world.n_ads
        return np.sort(ids, axis=1).astype(np.int32)

    def inputs(self, n_requests: int, n: int, module: nn.Module | None = None) -> Tensors:
        """request [R, Fr], ads [R, n, Fa], pair [R, n, P]; fresh tensors.

        With ids, the rows of the module's tables are in them, with their gradient; without one, of a fresh
        module's, as they are.
        """
        block, ids = self.block(n_requests), self.candidates(n_requests, n)
        if self.view.has_ids:
            tables = Tables(self.view, torch.device("cpu"))
            users, context, ads = (torch.from_numpy(a) for a in (block.users, block.context, ids))
            given = tables.inputs(users, context, ads, id_tables(module or self.build()))
            return given if module is not None else tuple(tensor.detach() for tensor in given)
        return (
            torch.from_numpy(self.view.request_features(block.users, block.context)).clone(),
            torch.from_numpy(self.view.ad_table[ids]),
            torch.from_numpy(self.view.pair_features(block.users, ids)),
        )


def make_subject(
    spec: ModelSpec,
    world_spec: WorldSpec | None = None,
    home: Path = Path("."),
    own: type | None = None,
    option: str = "features",
) -> Subject:
    """The subject of a model's section. The world keeps its groups, so the widths are the true ones.

    `option` is what an error about the features calls them.
    """
    groups = (world_spec or WorldSpec()).groups
    known = (*BUILT_IN_FEATURES, *groups)
    for name in spec.features:
        if name not in known:
            raise UserError(f"{option}: {unknown_name('feature', name, known)}")
    if own is None:
        require_reference(spec.kind, home, MODEL_KINDS)
    if spec.kind in MODEL_KINDS.built_in:  # would not see them; a custom class has a check of its own
        for given, text in written_faults(Reference(MODEL_KINDS, spec.kind, spec.options), home):
            raise UserError(f"{spec.kind}: option {given}: {text}")
    if HISTORY in spec.features and (world_spec is None or world_spec.history is None):
        raise UserError(
            f"{option}: {HISTORY} needs a world that has one; check a scenario with world.history"
        )
    small = (world_spec or WorldSpec()).model_copy(update=SMALL_WORLD)
    world = build_world(small, SEED)
    features = spec.features or ("user", "context", "quality", "tier", "mismatch", *groups)
    return Subject(
        spec.model_copy(update={"features": features}),
        world,
        GroundTruth(world, small),
        world.view(features),
        home,
        own,
    )


def imports(subject: Subject) -> str:
    """There is such a class, and it is a torch module."""
    assert issubclass(subject.cls, nn.Module)
    return f"{subject.kind}, a torch module"


def constructs(subject: Subject) -> str:
    """The signature takes the widths and the options, and weights come from the engine's seed."""
    cls, view, options = subject.cls, subject.view, module_options(subject.spec)
    tables = IdTables(view, subject.spec.embedding) if view.has_ids else None
    names = ("request_width", "ad_width", "pair_width")
    widths = dict(zip(names, input_widths(view, tables), strict=True))
    call = ", ".join(f"{key}={value!r}" for key, value in {**widths, **options}.items())
    signature = inspect.signature(cls)
    try:
        signature.bind(*widths.values(), **options)
    except TypeError as error:
        raise CheckFailed(
            f"expected {cls.__name__}(request_width, ad_width, pair_width, **options), "
            f"found {cls.__name__}{signature}: {error}"
        ) from error
    first, second = subject.build().state_dict(), subject.build().state_dict()
    differing = [name for name in first if not torch.equal(first[name], second[name])]
    if differing:
        raise CheckFailed(
            f"expected the same initial weights from the same seed, found others in {', '.join(differing)}; "
            "draw them with torch, whose generator the engine seeds"
        )
    return f"{cls.__name__}({call}), {sum(t.numel() for t in first.values()):,} weights"


def output(subject: Subject) -> str:
    """The module returns a float tensor, a logit per request and candidate.  [R, n]"""
    returned: Any = logits(subject.build(), subject.inputs(REQUESTS, CANDIDATES))
    expected = f"expected a float tensor of shape [R, n] = [{REQUESTS}, {CANDIDATES}]"
    if not isinstance(returned, torch.Tensor):
        raise CheckFailed(f"{expected}, found {type(returned).__name__}")
    if tuple(returned.shape) != (REQUESTS, CANDIDATES):
        raise CheckFailed(f"{expected}, found shape {list(returned.shape)}")
    if not returned.dtype.is_floating_point:
        raise CheckFailed(f"{expected}, found dtype {returned.dtype}")
    return f"{returned.dtype} of shape [{REQUESTS}, {CANDIDATES}]"


def inner_product(subject: Subject) -> str:
    """Where the class encodes both sides, a logit is the inner product of its codes: it can retrieve."""
    module = subject.build().eval()
    found = encoders(module)
    if found is None:
        return "no encode_users and encode_ads: it can score candidates, and not retrieve"
    request, ads, _ = inputs = subject.inputs(REQUESTS, CANDIDATES, module if subject.view.has_ids else None)
    with torch.inference_mode():
        users, items = found[0](request), found[1](ads.reshape(-1, ads.shape[-1]))
        if users.dim() != 2 or items.dim() != 2 or users.shape[1] != items.shape[1]:
            raise CheckFailed(
                "expected encode_users [R, Fr] -> [R, D] and encode_ads [A, Fa] -> [A, D], "
                f"found {list(users.shape)} and {list(items.shape)}"
            )
        by_codes = torch.einsum("rd,rnd->rn", users, items.reshape(REQUESTS, CANDIDATES, -1))
        gap = float((by_codes - logits(module, inputs)).abs().max())
    if gap > INNER_GAP:
        raise CheckFailed(
            "expected forward to be the inner product of encode_users and encode_ads, found logits "
            f"{gap:.3g} away; the corpus would be searched by another order than the model's"
        )
    return f"logits are inner products of {users.shape[1]} numbers: it can retrieve"


def small_sizes(subject: Subject) -> str:
    """One request or one candidate keeps both axes: training gives one candidate, short pages few."""
    module = subject.build()
    for size in ((1, CANDIDATES), (REQUESTS, 1), (1, 1)):
        shape = tuple(logits(module, subject.inputs(*size)).shape)
        if shape != size:
            raise CheckFailed(
                f"expected shape {list(size)} for {size[0]} request(s) of {size[1]} candidate(s), "
                f"found {list(shape)}; a squeeze() without a dimension does this"
            )
    return "one request, one candidate and both keep their shape"


def finite(subject: Subject) -> str:
    """Numbers, also far away from what was trained on."""
    module = subject.build()
    for scale, what in ((1.0, "ordinary features"), (0.0, "features of 0"), (LARGE, f"features x {LARGE:g}")):
        request, ads, pair = (tensor * scale for tensor in subject.inputs(REQUESTS, CANDIDATES))
        predicted = logits(module, (request, ads, pair))
        bad = ~torch.isfinite(predicted)
        if bool(bad.any()):
            row, column = bad.nonzero()[0].tolist()
            value = float(predicted[row, column])
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
    """The engine's scorer (encoded ads, fused kernels, inference mode) answers what forward does."""
    module = subject.build().eval()
    scorer = make_scorer(subject.kind, subject.spec.trained_by, subject.view, module)
    block, ids = subject.block(REQUESTS), subject.candidates(REQUESTS, CANDIDATES)
    served = torch.from_numpy(scorer.logit(block, ids))
    gap = far_apart(served, logits(module, subject.inputs(REQUESTS, CANDIDATES)), tolerance=1e-4)
    if gap:
        raise CheckFailed(
            f"expected the engine to score as forward does, found a difference of {gap:.3g}; encode_ads must "
            "give an ad the same code whether alone or in a table"
        )
    how = ", ads encoded once" if hasattr(module, "encode_ads") else ""
    return f"{type(scorer).__name__} scores as forward does{how}"


def gradients(subject: Subject) -> str:
    """A finite gradient reaches every parameter."""
    module = subject.build().train()
    weights = {name: p for name, p in module.named_parameters() if p.requires_grad and p.numel()}
    if not weights:
        raise CheckFailed("expected parameters to train, found none")
    predicted = predict(module, *subject.inputs(32, 4, module))
    if not predicted.requires_grad:
        raise CheckFailed(
            "expected logits with a gradient, found none; is something detached, or under no_grad?"
        )
    # Uneven factors: a plain sum would hide gradients that cancel.
    (
        predicted.float() * torch.linspace(0.5, 1.5, predicted.numel()).reshape(predicted.shape)
    ).sum().backward()
    bad = [
        name
        for name, p in weights.items()
        if p.grad is not None and not bool(torch.isfinite(p.grad.to_dense()).all())
    ]
    if bad:
        raise CheckFailed(f"expected finite gradients, found others in: {', '.join(bad)}")
    idle = [name for name, p in weights.items() if p.grad is None]
    if len(idle) == len(weights):
        raise CheckFailed("expected gradients in the parameters, found none in any")
    if idle:
        raise Remark(f"no gradient reaches: {', '.join(idle)}; not used?")
    return f"reach all {len(weights)} parameters"


def are_logits(subject: Subject) -> str:
    """The output is a log odds, which may have any value, and not a probability.

    What an untrained net answers says little: a logit may well lie between 0 and 1. So the weights are
    pushed, once for low and once for high answers: a sigmoid or softmax at the end still holds them in.
    """
    if not subject.spec.trained_by.gives_probabilities:
        return f"any number will do: of recipe {subject.spec.recipe} only the order counts"
    low, high = _pushed(subject, -1.0), _pushed(subject, 1.0)
    pushed = f"({low:.3g} and {high:.3g} with the weights pushed down and up)"
    with _Watch() as watch:
        logits(subject.build(), subject.inputs(REQUESTS, CANDIDATES))
    last = watch.last.strip("_")
    ends = f", and forward ends in {last}" if last in ENDS else ""
    if low >= 0 and high <= 1:
        raise CheckFailed(
            "expected logits (log odds, of any size), found probabilities: outputs stay within [0, 1] "
            f"{pushed}{ends}; return what comes before the sigmoid or softmax, the engine puts its own on top"
        )
    if low >= 0:
        raise CheckFailed(
            f"expected logits (log odds, of any size), found outputs that are never below 0 {pushed}{ends}; "
            "no click rate below 50 % could be predicted"
        )
    if high <= 0:
        raise Remark(
            f"the output is never above 0 {pushed}: no click rate above 50 %; is it the log of a probability?"
        )
    return "outputs leave [0, 1] when the weights are pushed"


def training(subject: Subject) -> str:
    """An epoch of the recipe lowers the loss, and the same seed trains the same weights."""
    before = _train(subject, subject.build(), epochs=1, learning_rate=0.0)[0]
    first, second = subject.build(), subject.build()
    after = _train(subject, first, epochs=2, learning_rate=subject.spec.learning_rate)[-1]
    _train(subject, second, epochs=2, learning_rate=subject.spec.learning_rate)
    if not after < before * (1 - MIN_GAIN):
        raise CheckFailed(
            f"expected an epoch of {subject.spec.recipe} to lower the loss, found {before:.4f} before "
            f"and {after:.4f} after"
        )
    twin = second.state_dict()
    differing = [name for name, value in first.state_dict().items() if not torch.equal(value, twin[name])]
    if differing:
        raise CheckFailed(
            f"expected the same weights from the same seed, found others in {', '.join(differing)}; "
            "forward draws numbers that torch's seed does not govern"
        )
    return f"{subject.spec.recipe}: loss {before:.4f} -> {after:.4f} after an epoch; repeatable"


def save_and_load(subject: Subject) -> str:
    """All that was learned is in the file, and a fresh module reads it."""
    module, fresh = subject.build(), subject.build(SEED + 1)
    _train(subject, module, epochs=1, learning_rate=subject.spec.learning_rate)
    expected = logits(module, subject.inputs(6, 5, module))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        ModelStore(folder).export(module, path)
        size = path.stat().st_size
        load_weights(path, fresh)
    reloaded = logits(fresh, subject.inputs(6, 5, fresh))
    if not torch.equal(reloaded, expected):
        gap = float((reloaded - expected).abs().max())
        raise CheckFailed(
            f"expected the same logits after loading, found a difference of {gap:.3g}; state that is neither "
            "a parameter nor a buffer is lost (use register_buffer)"
        )
    return f"{size:,} bytes as safetensors; a fresh module reads them back to the bit"


def speed(subject: Subject) -> str:
    """Candidates per second as a scorer, against the built-in towers."""
    recipe, view = subject.spec.trained_by, subject.view
    own = make_scorer(subject.kind, recipe, view, subject.build())
    towers = TwoTowers(view.request_width, view.ad_width, view.pair_width, hidden=32, dims=12)
    rate = _rate(subject, own)
    built_in = _rate(subject, make_scorer("towers", recipe, view, towers))
    return (
        f"{rate / 1e6:.2f} million candidates/s on one core, {rate / built_in:.2f} of the built-in towers "
        f"({built_in / 1e6:.1f})"
    )


def logits(module: nn.Module, inputs: Tensors) -> torch.Tensor:
    """What the module answers, served: evaluation mode, no gradients, inputs of its own."""
    with torch.no_grad():
        request, ads, pair = (tensor.clone() for tensor in inputs)
        return predict(module.eval(), request, ads, pair)


def far_apart(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> float:
    """The largest difference, 0.0 when all are within tolerance * (1 + |expected|)."""
    gap = (actual.double() - expected.double()).abs()
    is_far = gap > tolerance * (1 + expected.double().abs())
    return float(gap[is_far].max()) if bool(is_far.any()) else 0.0


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have one shape and equal values, NaN in the same places."""
    return (
        a.shape == b.shape
        and bool(torch.equal(a.isnan(), b.isnan()))
        and torch.equal(a.nan_to_num(), b.nan_to_num())
    )


class _Watch(TorchDispatchMode):
    """Notices dropout and the last step that changes values, by whatever name the user's code called them."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False
        self.last = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.dropped |= name in DROPOUT_OPS
        self.last = self.last if name in SHAPE_OPS else name
        return func(*args, **(kwargs or {}))


def _pushed(subject: Subject, direction: float) -> float:
    """The furthest answer, down (-1) or up (1), of a net whose weights are moved that way."""
    module, (request, ads, pair) = subject.build().eval(), subject.inputs(REQUESTS, CANDIDATES)
    optimiser = Adam([p for p in module.parameters() if p.requires_grad], PUSH)
    furthest = -float("inf")
    for _ in range(PUSHES):
        outputs = direction * predict(module, request.clone(), ads.clone(), pair.clone()).double()
        finite_ones = outputs.detach()[torch.isfinite(outputs.detach())]
        if len(finite_ones) == 0:
            break
        furthest = max(furthest, float(finite_ones.max()))
        if furthest > FAR_OUT:
            break
        optimiser.zero_grad()
        (-outputs.mean()).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return direction * furthest


def _rate(subject: Subject, scorer: ModelScorer) -> float:
    block, ids = subject.block(256), subject.candidates(256, 50)
    scorer.predict(block, ids)  # compiled kernels and caches are warm from here on
    best, deadline = float("inf"), time.perf_counter() + TIMED_FOR
    while best == float("inf") or time.perf_counter() < deadline:
        started = time.perf_counter()
        scorer.predict(block, ids)
        best = min(best, time.perf_counter() - started)
    return ids.size / best


def _train(subject: Subject, module: nn.Module, epochs: int, learning_rate: float) -> list[float]:
    """The engine's training on samples of the small world; losses per epoch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)  # dropout while training draws from torch's own generator
        plan = TrainingPlan(epochs, BATCH, learning_rate, subject.spec.weight_decay, SEED)
        recipe = find_recipe(subject.kind, subject.spec, subject.home)
        return train(module, subject.view, samples(subject), recipe, plan, subject.spec.recipe_options)


def samples(subject: Subject) -> Impressions | Lists | Positives:
    """What the recipe learns from: clicks drawn from the truth, its best ads, or lists in its order."""
    block = subject.block(N_LISTS)
    rows = np.arange(N_LISTS)[:, None]
    draw = draws.uniform(SEED, "check ads", rows, np.arange(LIST)[None, :])
    ads = (draw * subject.world.n_ads).astype(np.int32)
    ctr = subject.truth.ctr(block, ads)
    if subject.spec.trained_by.crosses:
        best = np.take_along_axis(ads, ctr.argmax(axis=1)[:, None], 1)[:, 0]
        log_bid = np.log(subject.world.init_bid).astype(np.float32)
        return Positives(block.users, block.context, best, block.requests, log_bid)
    if not subject.spec.trained_by.has_teacher:
        click = draws.uniform(SEED, "check clicks", rows, np.arange(LIST)[None, :]) < ctr
        return Impressions(
            users=np.repeat(block.users, LIST),
            context=np.repeat(block.context, LIST),
            ads=ads.ravel(),
            examination=np.ones(ads.size, np.float32),
            click=click.ravel().astype(np.float32),
        )
    bid = subject.world.init_bid[ads]
    best_first = np.lexsort((ads, -ctr * bid), axis=1)
    is_shown = ads == np.take_along_axis(ads, best_first[:, :1], 1)  # the best
    chunk = chunk_of_order(best_first, is_shown, subject.spec.chunks, subject.spec.chunking)
    return Lists(
        users=block.users,
        context=block.context,
        ads=ads,
        teacher_logit=log_odds(ctr).astype(np.float32),
        log_bid=np.log(bid).astype(np.float32),
        chunk=chunk,
        log_score=np.log(ctr * bid).astype(np.float32),
    )


FIRST_CHECKS: tuple[Check[Subject], ...] = (
    ("import", imports, ()),
    ("constructor", constructs, ("import",)),
)
SERVING_CHECKS: tuple[Check[Subject], ...] = (
    ("output", output, ()),
    ("small sizes", small_sizes, ("output",)),
    ("finite", finite, ("output",)),
    ("eval mode", eval_mode, ("output",)),
    ("repeatable", repeatable, ("output",)),
    ("batch = single", batch_is_single, ("output", "finite", "repeatable")),
    ("candidates", candidates, ("output", "small sizes", "finite", "repeatable")),
    ("side effects", side_effects, ("output",)),
    ("serving", served, ("output", "finite", "repeatable")),
    ("inner product", inner_product, ("output", "finite")),
)
TRAINING_CHECKS: tuple[Check[Subject], ...] = (
    ("gradients", gradients, ("output",)),
    ("logits", are_logits, ("output", "finite", "gradients")),
    ("training", training, ("output", "gradients")),
    ("save and load", save_and_load, ("output", "repeatable", "gradients")),
    ("speed", speed, ("output", "finite")),
)
