"""Does a model keep the contract of the engine? Tests a class the way it will be built, trained and served.

The contract: `Class(request_width, ad_width, pair_width, **options)` is a torch module whose
`forward(request [R, Fr], ads [R, n, Fa], pair [R, n, P])` gives logits [R, n], and whose answer for a
request depends on that request and its weights alone. The tests need no run, only a small world.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cascade_sim.cascade.serve import Block
from cascade_sim.checks.contract import CheckFailed, Finding, Remark
from cascade_sim.errors import UserError
from cascade_sim.models.features import FeatureView, make_view
from cascade_sim.models.training import predict
from cascade_sim.scenario.plugins import check_reference
from cascade_sim.scenario.schema import BUILT_IN_FEATURES, ModelSpec
from cascade_sim.scenario.schema import World as WorldSpec
from cascade_sim.suggest import unknown_name
from cascade_sim.training.modules import KINDS, build_module, find_class, where_and_what
from cascade_sim.world.truth import Truth
from cascade_sim.world.world import World, build_world

SMALL_WORLD = {"users": 64, "ads": 256, "advertisers": 32, "base_logit": -1.0}
SEED = 1
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Subject:
    """The class under test, and a small world to test it in."""

    spec: ModelSpec
    world: World
    truth: Truth
    view: FeatureView
    home: Path = Path(".")

    def build(self, seed: int = SEED) -> nn.Module:
        """A fresh module, as the engine builds it."""
        return build_module(self.spec.kind, self.spec, self.view, seed, self.home)

    def block(self, n_requests: int) -> Block:
        """Requests of different users."""
        number = np.arange(n_requests)
        users = (number * 7 % self.world.n_users).astype(np.int32)
        context = np.sin(number + 1.0).astype(np.float32)
        return Block(number.astype(np.int64), users, context, number.astype(np.float64))

    def candidates(self, n_requests: int, n: int) -> np.ndarray:
        """Ad ids, ascending in each row as the engine gives them.  [R, n] int32"""
        ids = (np.arange(n_requests)[:, None] * 13 + np.arange(n)[None, :] * 5) % self.world.n_ads
        return np.sort(ids, axis=1).astype(np.int32)

    def inputs(self, n_requests: int, n: int) -> Tensors:
        """request [R, Fr], ads [R, n, Fa], pair [R, n, P]; fresh tensors."""
        block, ids = self.block(n_requests), self.candidates(n_requests, n)
        return (
            torch.from_numpy(self.view.request_features(block.users, block.context)).clone(),
            torch.from_numpy(self.view.ad_table[ids]),
            torch.from_numpy(self.view.pair_features(block.users, ids)),
        )


def make_subject(spec: ModelSpec, world_spec: WorldSpec | None = None, home: Path = Path(".")) -> Subject:
    """The subject of a model's section. The world keeps its groups, so the widths are the true ones."""
    groups = (world_spec or WorldSpec()).groups
    known = (*BUILT_IN_FEATURES, *groups)
    for name in spec.features:
        if name not in known:
            raise UserError(f"--features: {unknown_name('feature', name, known)}")
    problem = check_reference(spec.kind, home)
    if (
        problem and "is not valid Python" not in problem
    ):  # a syntax error is shown with its line, as a failed check
        raise UserError(f"{spec.kind}: {problem}")
    small = (world_spec or WorldSpec()).model_copy(update=SMALL_WORLD)
    world = build_world(small, SEED)
    features = spec.features or ("user", "context", "quality", "tier", "mismatch", *groups)
    view = make_view(features, world.user_features, world.ad_features, world.mismatch_threshold)
    return Subject(spec.model_copy(update={"features": features}), world, Truth(world, small), view, home)


def check_model(subject: Subject, on_finding: Callable[[Finding], None] = lambda f: None) -> list[Finding]:
    """All checks in order. What needs an earlier success is skipped without it."""
    from cascade_sim.checks.model_serving import SERVING_CHECKS
    from cascade_sim.checks.model_training import TRAINING_CHECKS

    findings: list[Finding] = []

    def run(name: str, check: Callable[[Subject], str], needs: tuple[str, ...] = ()) -> None:
        bad = [f.check for f in findings if f.check in needs and f.status in ("FAILED", "skipped")]
        if bad:
            finding = Finding(name, "skipped", f"needs {' and '.join(repr(n) for n in bad)} to be ok")
        else:
            finding = verdict(name, check, subject)
        findings.append(finding)
        on_finding(finding)

    run("import", imports)
    run("constructor", constructs, needs=("import",))
    for name, check, needs in (*SERVING_CHECKS, *TRAINING_CHECKS):
        run(name, check, needs=("constructor", *needs))
    return findings


def verdict(name: str, check: Callable[[Subject], str], subject: Subject) -> Finding:
    """Run one check; whatever the user's code raises is a failure with its place."""
    torch.set_num_threads(1)  # as the engine
    try:
        return Finding(name, "ok", check(subject))
    except Remark as remark:
        return Finding(name, "note", str(remark))
    except CheckFailed as failure:
        return Finding(name, "FAILED", str(failure))
    except UserError as error:
        return Finding(name, "FAILED", where_and_what(error.__cause__ or error, subject.spec.kind))
    except Exception as error:  # the user's code may raise anything
        return Finding(name, "FAILED", where_and_what(error, subject.spec.kind))


def imports(subject: Subject) -> str:
    find_class(subject.spec.kind, subject.home)
    return f"{subject.spec.kind}, a torch module"


def constructs(subject: Subject) -> str:
    """The signature takes the widths and the options, and weights come from the engine's seed."""
    cls, view, spec = find_class(subject.spec.kind, subject.home), subject.view, subject.spec
    options = {"hidden": spec.hidden, "dims": spec.dims} if spec.kind in KINDS else dict(spec.options)
    widths = {"request_width": view.request_width, "ad_width": view.ad_width, "pair_width": view.pair_width}
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


def logits(module: nn.Module, inputs: Tensors) -> torch.Tensor:
    """What the module answers, served: evaluation mode, no gradients, inputs of its own."""
    with torch.no_grad():
        request, ads, pair = (tensor.clone() for tensor in inputs)
        return predict(module.eval(), request, ads, pair)


def far_apart(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> float:
    """The largest difference, 0.0 when all are within tolerance * (1 + |expected|)."""
    gap = (found.double() - expected.double()).abs()
    is_far = gap > tolerance * (1 + expected.double().abs())
    return float(gap[is_far].max()) if bool(is_far.any()) else 0.0
