"""A model's section of a scenario: its net, what it sees, what it is trained for and how it is served."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from cascade_sim.scenario.sections import MAX_ID, Name, Section, Share
from cascade_sim.scenario.yaml import KeyPath, Problem

Phase = Literal["bootstrap", "log"]
Objective = Literal[
    "pointwise", "ranknet", "softmax", "approx_ndcg", "listce", "multi_objective", "multi_task",
    "calibrated_softmax", "calibrated_ranknet", "rcr", "rcr_regression", "jrc", "sbcr",
]  # fmt: skip
CalibratorName = Literal["platt", "temperature", "isotonic", "histogram", "beta", "piecewise_linear"]
OPTIONS = ("alpha", "beta", "y0")
OBJECTIVE_KEYS = ("objective", *OPTIONS, "batching", "calibrator", "held_out", "refit")
# Kept here too, because reading a scenario must not wait for torch.
OBJECTIVE_OPTIONS: dict[str, tuple[str, ...]] = {
    "approx_ndcg": ("beta",),
    "multi_objective": ("alpha",),
    "multi_task": ("alpha",),
    "calibrated_softmax": ("y0",),
    "calibrated_ranknet": ("y0",),
    "rcr": ("alpha",),
    "rcr_regression": ("alpha",),
    "jrc": ("alpha",),
    "sbcr": ("alpha",),
}
TWO_HEADS = ("multi_task", "jrc")
BY_SAMPLE = ("pointwise", "sbcr")  # their loss does not need the rest of a page in the batch


class Sample(Section):
    """Which ads of a shadowed request a student learns from."""

    set: Literal["competitive", "pre_ranking"] = Field(
        default="competitive", description="Set the ads are drawn from."
    )
    per_request: int = Field(
        default=50, ge=1, le=MAX_ID, description="Ads drawn per request, or all if there are fewer."
    )


class ModelSpec(Section):
    """A model: its net, what it sees and how it is trained."""

    kind: str = Field(default="towers", description="towers, coaction, path/file.py:Class or module:Class.")
    recipe: Literal["logloss", "distill", "ltr"] = Field(default="logloss", description="Training recipe.")
    objective: Objective = Field(
        default="pointwise", description="For logloss: what its impressions are learned for."
    )
    alpha: Share | None = Field(
        default=None,
        description="For multi_objective, multi_task, rcr and rcr_regression: weight of the ranking part; "
        "for jrc and sbcr: of the log loss. Absent: 0.5.",
    )
    beta: float | None = Field(
        default=None, gt=0, le=1e6, description="For approx_ndcg: sharpness of its ranks. Absent: 10."
    )
    y0: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Label of the virtual item: for calibrated_softmax (absent: 1) and, below 1, "
        "calibrated_ranknet (absent: 0.5).",
    )
    batching: Literal["samples", "lists"] | None = Field(
        default=None,
        description="For logloss: samples, single impressions shuffled freely (pointwise and sbcr only), or "
        "lists, pages that stay whole in a batch. Absent: samples for these two (but lists where the study "
        "trains a pointwise model for a calibrator), lists for the others.",
    )
    calibrator: CalibratorName | None = Field(
        default=None, description="For logloss: what turns its scores into probabilities after training."
    )
    held_out: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="With a calibrator: share of the requests that it learns from, and the model does not.",
    )
    refit: bool = Field(
        default=False,
        description="With a calibrator, in market.training: fitted anew at every deployment, on `held_out` "
        "of the pages learned from; false: it stays as the study fitted it.",
    )
    features: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(),
        min_length=1,
        description="Of user, context, quality, tier, mismatch, conversion, mismatch_pair and groups, "
        "what it sees; when absent, user, context, quality, tier, mismatch and all groups.",
    )
    data: Annotated[tuple[Phase, ...], Field(strict=False)] = Field(
        default=("bootstrap", "log"),
        min_length=1,
        description="For logloss: phases whose impressions it learns from.",
    )
    teacher: Name | None = Field(
        default=None, description="For distill and ltr: name of the logloss model to learn from."
    )
    sample: Sample = Field(
        default=Sample(), description="For distill and ltr: which ads of a request it learns from."
    )
    chunks: int = Field(
        default=5, ge=2, le=10_000, description="For ltr: chunks that the teacher's order is cut into."
    )
    hidden: int = Field(default=32, ge=1, le=65536, description="Width of the hidden layer.")
    dims: int = Field(
        default=12, ge=1, le=65536, description="Length of the embeddings that meet in the dot product."
    )
    epochs: int = Field(default=3, ge=1, le=10_000, description="Passes over the training data.")
    batch: int = Field(default=4096, ge=1, le=MAX_ID, description="Samples per step.")
    learning_rate: float = Field(default=0.01, gt=0, le=10, description="Step size of the optimiser.")
    weight_decay: float = Field(default=0.0, ge=0, le=10, description="Decay of the weights per step.")
    options: dict[str, JsonValue] = Field(
        default={}, description="Keyword arguments for a class of your own."
    )

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What says nothing is left out: a scenario without objectives stays what it was, name and hash."""
        data: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        return {
            key: value
            for key, value in data.items()
            if key not in OBJECTIVE_KEYS or value != fields[key].default
        }

    @property
    def objective_options(self) -> dict[str, float]:
        """The options of the objective that are given."""
        known = OBJECTIVE_OPTIONS.get(self.objective, ())
        return {key: value for key in known if (value := getattr(self, key)) is not None}

    @property
    def is_plain(self) -> bool:
        """Whether it is trained by log loss on single impressions (or by a teacher) and served as it is."""
        return self.objective == "pointwise" and self.calibrator is None and self.batching != "lists"


def check_objective(spec: ModelSpec, given: Collection[KeyPath], at: KeyPath) -> Iterator[Problem]:
    """What is wrong with a model's objective, its options and its calibrator."""
    for key in OBJECTIVE_KEYS:
        path, recipe = (*at, key), (*at, "recipe")
        if path in given and spec.recipe != "logloss":
            text = f"has no meaning for recipe {spec.recipe} (only for logloss); remove it"
            yield Problem(path, text, uses=(recipe,))
    objective = (*at, "objective")
    for option in OPTIONS:
        takers = [name for name, options in OBJECTIVE_OPTIONS.items() if option in options]
        if (*at, option) in given and spec.recipe == "logloss" and spec.objective not in takers:
            text = f"has no meaning for objective {spec.objective} (only for {', '.join(takers)}); remove it"
            yield Problem((*at, option), text, uses=(objective,))
    if spec.objective == "calibrated_ranknet" and spec.y0 is not None and spec.y0 >= 1:
        text = f"must lie between a skip, 0, and a click, 1, for calibrated_ranknet; found {spec.y0:g}"
        yield Problem((*at, "y0"), text, uses=(objective,))
    if spec.recipe == "logloss" and spec.batching == "samples" and spec.objective not in BY_SAMPLE:
        text = f"{spec.objective} compares the ads of a page, which must stay whole: use lists, or remove it"
        yield Problem((*at, "batching"), text, uses=(objective,))
    for key in ("held_out", "refit"):
        if (*at, key) in given and spec.calibrator is None:
            text = "has no meaning without a calibrator; remove it, or add one"
            yield Problem((*at, key), text, uses=((*at, "calibrator"),))
    if spec.objective in TWO_HEADS and ":" in spec.kind:
        text = f"{spec.objective} trains two heads, which only the kinds towers and coaction have"
        yield Problem(objective, text, uses=(objective, (*at, "kind")))
