"""A model's section of a scenario: its net, what it sees, what it is trained for and how it is served."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from cascade_sim.foundation.errors import unknown_name
from cascade_sim.models.nets import NETS, NETS_TEXT
from cascade_sim.models.objectives import OBJECTIVES, Objective, make_objective
from cascade_sim.models.recipes import RECIPES, Recipe, custom_recipe
from cascade_sim.scenario.sections import MAX_ID, Name, NameIn, Section, Share, without_absent
from cascade_sim.scenario.yaml import KeyPath, Problem

Phase = Literal["cold_start", "log"]
Chunking = Literal["halving", "quantiles", "exposed"]
CalibratorName = Literal["platt", "temperature", "isotonic", "histogram", "beta", "piecewise_linear"]
OPTIONS = ("alpha", "beta", "y0", "ranking", "normalisation")
CALIBRATOR_KEYS = ("calibrator", "fit", "held_out", "refit")
OBJECTIVE_KEYS = ("objective", *OPTIONS, "batching", "logged_scores_from", *CALIBRATOR_KEYS, "examination")
DELAY_KEYS = ("delay_correction", "delay_window")
TARGET_KEYS = ("target", *DELAY_KEYS)
POOL = 500  # ads of the corpus that are drawn for a list
# Of what is written, where they say nothing.
LEFT_OUT = (
    *OBJECTIVE_KEYS,
    *TARGET_KEYS,
    "chunking",
    "recipe_options",
    "link",
    "proxy_calibrator",
    "embedding",
    "training_seed",
    "validation",
)


def _takers(option: str, weighs: str = "") -> str:
    """Names of the objectives with an option; of alpha, those where it weighs this part."""
    takers = [
        name
        for name, kind in OBJECTIVES.items()
        if option in kind.options and kind.options[option].weighs == weighs
    ]
    return " and ".join([", ".join(takers[:-1]), takers[-1]] if len(takers) > 1 else takers)


class Sample(Section):
    """Which ads of a shadowed request a student learns from."""

    set: Name = Field(
        default="competitive",
        description="Set the ads are drawn from: competitive (what ranking is handed), pre_ranking (what "
        "pre-ranking is handed), the name of an earlier step of pre-ranking, retrieved (what the first of "
        "these stages is handed), or corpus (all ads that are there).",
    )
    per_request: int = Field(
        default=50, ge=1, le=MAX_ID, description="Ads of a list, or all of the set if there are fewer."
    )
    best: int | None = Field(
        default=None,
        ge=0,
        le=MAX_ID,
        description="So many of a list are the ranking stage's best of the whole set, the rest is drawn. "
        "Absent: as many as the recipe's option k says, none for recipes without it.",
    )
    pool: int | None = Field(
        default=None,
        ge=1,
        le=MAX_ID,
        description="With set corpus: so many ads of it are drawn, and `best` are the best of these, which "
        f"costs a prediction of the ranking stage for each. Absent: {POOL}, or per_request if that is more.",
    )
    arm: Name | None = Field(
        default=None,
        description="Arm whose stages make the set; models that it asks are then trained before. Absent: the "
        "baseline, where the deployed stage stands in for models that are still to be trained.",
    )

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is absent: a scenario that does not say keeps its hash."""
        return without_absent(dump(self), "best", "pool", "arm")

    @property
    def drawn(self) -> int:
        """Ads of the corpus among which the ranking stage looks for the best."""
        return max(POOL, self.per_request) if self.pool is None else self.pool


class ModelSpec(Section):
    """A model: its net, what it sees and how it is trained."""

    kind: str = Field(default="towers", description=f"{', '.join(NETS)}, path/file.py:Class or module:Class.")
    recipe: Annotated[str, NameIn(RECIPES, or_class=True)] = Field(
        default="logloss",
        description=f"Training recipe: {', '.join(RECIPES)}, or path/file.py:Class or module:Class, whose "
        "method loss(scores, lists) is minimised on lists that a teacher has scored.",
    )
    link: Literal["exp", "sigmoid"] = Field(
        default="exp",
        description="For a recipe of a class: what its scores mean. exp, a factor of the bid that orders "
        "ads; sigmoid, the log-odds of a click.",
    )
    recipe_options: dict[str, JsonValue] = Field(
        default={},
        description="Options of the recipe's loss: "
        + "; ".join(
            f"{name}: {', '.join(recipe.options)}" for name, recipe in RECIPES.items() if recipe.options
        )
        + ".",
    )
    target: Literal["click", "conversion"] = Field(
        default="click",
        description="What it predicts: the click of an ad that is examined, or the conversion after a click "
        "(then a logloss model learns from the clicked impressions alone).",
    )
    delay_correction: Literal["none", "wait", "elapsed"] = Field(
        default="none",
        description="For conversions that come late: none, what has not come by the end of the log counts "
        "as no conversion; wait, only clicks older than delay_window are learned from; elapsed, all clicks "
        "are, younger ones by the share of conversions that is seen by their age, estimated from the log.",
    )
    delay_window: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        default=None,
        description="With a delay_correction: a conversion within so many seconds of its click is predicted.",
    )
    objective: Annotated[str, NameIn(OBJECTIVES)] = Field(
        default="pointwise", description="For logloss: what its impressions are learned for."
    )
    alpha: Share | None = Field(
        default=None,
        description=f"For {_takers('alpha', 'ranking')}: weight of the ranking part; "
        f"for {_takers('alpha', 'regression')}: of the log loss. Absent: 0.5.",
    )
    beta: float | None = Field(
        default=None, gt=0, le=1e6, description=f"For {_takers('beta')}: sharpness of its ranks. Absent: 10."
    )
    y0: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Label of the virtual item: for calibrated_softmax (absent: 1) and, below 1, "
        "calibrated_ranknet (absent: 0.5).",
    )
    ranking: Literal["softmax", "ranknet"] | None = Field(
        default=None,
        description=f"For {_takers('ranking')}: its ranking part. Absent: softmax.",
    )
    normalisation: Literal["sum", "mean"] | None = Field(
        default=None,
        description=f"For {_takers('normalisation')}: what alpha weighs of a page's ranking part: sum, all "
        "of it, or mean, per click of the page (of ranknet: per pair). Absent: as in the paper of each, sum "
        "for multi_objective and multi_task, mean for rcr and rcr_regression; equal alphas are alike where "
        "this is alike.",
    )
    batching: Literal["samples", "lists"] | None = Field(
        default=None,
        description="For logloss: samples, single impressions shuffled freely (pointwise and sbcr only), or "
        "lists, pages that stay whole in a batch. Absent: samples for these two, lists for the others.",
    )
    logged_scores_from: Name | None = Field(
        default=None,
        description="For sbcr in the ranking stage, in market.training: the model whose scores of its pages "
        "it learns beside. That one learns from the same pages and is not served. Absent: the model itself, "
        "as it was deployed when a page was shown. The study's log has the scores of its own models.",
    )
    calibrator: CalibratorName | None = Field(
        default=None, description="For logloss: what turns its scores into probabilities."
    )
    fit: Literal["held_out", "training", "joint"] = Field(
        default="held_out",
        description="With a calibrator: fitted after training, on pages that the model is not shown "
        "(held_out) or on those that it learned from (training); or, of piecewise_linear, trained in the "
        "same batches as the model, whose weights it leaves as they would be without (joint; in "
        "market.training it goes on from what is deployed).",
    )
    proxy_calibrator: CalibratorName | None = Field(
        default=None,
        description="For a model of the pre-ranking stage that predicts probabilities: what maps its scores "
        "to the predictions of its teacher or, without one, of the baseline arm's ranking model, on the "
        "pre-ranking set of shadowed requests.",
    )
    held_out: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="With a calibrator: share of the requests that it learns from, and the model does not. "
        "With a proxy_calibrator: share of the shadowed requests that it learns from, and no student does.",
    )
    refit: bool = Field(
        default=False,
        description="With a calibrator, in market.training: fitted anew at every deployment, on `held_out` "
        "of the pages learned from; false: it stays as the study fitted it.",
    )
    examination: Literal["known", "estimated"] = Field(
        default="known",
        description="For logloss: how often its training takes slots to be examined: known, as the world's "
        "slot_effects say, or estimated, learned with the net from clicks, relative to the first slot.",
    )
    features: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(),
        min_length=1,
        description="Of user, context, quality, tier, mismatch, conversion, mismatch_pair, groups, user_id, "
        "ad_id, advertiser_id and history, what it sees; when absent, user, context, quality, tier, mismatch "
        "and all groups, and conversion if that is its target. Of each id it learns a row of numbers; "
        "history is the mean of the ads in world.history, as the model sees ads.",
    )
    embedding: int = Field(
        default=8,
        ge=1,
        le=4096,
        description="With user_id, ad_id, advertiser_id or history: numbers that it learns of each id, and "
        "that a history is summed up in. They start near 0: an unknown id is predicted by features alone.",
    )
    data: Annotated[tuple[Phase, ...], Field(strict=False)] = Field(
        default=("cold_start", "log"),
        min_length=1,
        description="For recipes that learn from logged impressions: the phases that they are of.",
    )
    teacher: Name | None = Field(
        default=None,
        description="For recipes that learn from a teacher: name of the logloss model to learn from.",
    )
    sample: Sample = Field(
        default=Sample(),
        description="For recipes that learn from a teacher: which ads of a request it learns from.",
    )
    chunks: int = Field(
        default=5,
        ge=2,
        le=10_000,
        description="For recipes of chunks (ltr, copr, head_distill): how many the ranking stage's order is "
        "cut into.",
    )
    chunking: Chunking = Field(
        default="halving",
        description="For recipes of chunks: halving, the worse half is a chunk, the worse half of the rest "
        "another, and so on; quantiles, chunks of equal size; exposed, what the cascade showed is the best "
        "chunk and the rest is cut into quantiles (all that was shown is then in the sample).",
    )
    hidden: int = Field(default=32, ge=1, le=65536, description="Width of the hidden layer.")
    dims: int = Field(
        default=12, ge=1, le=65536, description="Length of the embeddings that meet in the dot product."
    )
    epochs: int = Field(default=3, ge=1, le=10_000, description="Passes over the training data.")
    batch: int = Field(default=4096, ge=1, le=MAX_ID, description="Samples per step.")
    learning_rate: float = Field(default=0.01, gt=0, le=10, description="Step size of the optimiser.")
    weight_decay: float = Field(default=0.0, ge=0, le=10, description="Decay of the weights per step.")
    validation: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="Share of the requests that it does not learn from: on these its training is watched "
        "(at most 20,000 impressions). 0: it is watched on some that it learns from, and learns from all.",
    )
    training_seed: int = Field(
        default=0,
        ge=0,
        le=MAX_ID,
        description="Seed of weight initialisation and shuffling. Models of one kind with equal features and "
        "sizes share the initial weights unless their seeds differ.",
    )
    options: dict[str, JsonValue] = Field(default={}, description="Keyword arguments of a custom class.")

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What says nothing is left out: a scenario without it stays what it was, name and hash."""
        data: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        return {
            key: value for key, value in data.items() if key not in LEFT_OUT or value != fields[key].default
        }

    @property
    def trained_by(self) -> Recipe:
        """The recipe that the section names; of a class of the user's all but its loss."""
        return RECIPES.get(self.recipe) or custom_recipe(self.link)

    @property
    def has_custom_recipe(self) -> bool:
        """Whether its loss is a class of the user's."""
        return self.recipe not in RECIPES

    @property
    def recipe_values(self) -> dict[str, Any]:
        """All options of its recipe by name; those that are not given at their defaults."""
        return self.trained_by.with_defaults(self.recipe_options)

    @property
    def has_exposed_chunk(self) -> bool:
        """Whether what was shown is a chunk of the lists that it learns from."""
        return "chunking" in self.trained_by.keys and self.chunking == "exposed"

    @property
    def always_listed(self) -> int:
        """How many of the ranking stage's best are in every list that it learns from."""
        k = self.recipe_values.get("k", 0)
        return int(k if self.sample.best is None else self.sample.best)

    @property
    def objective_options(self) -> dict[str, float | str]:
        """The options of the objective that are given."""
        known = OBJECTIVES[self.objective].options
        return {key: value for key in known if (value := getattr(self, key)) is not None}

    @property
    def learns_by_sample(self) -> bool:
        """Whether log loss on single impressions is all there is to its objective."""
        return OBJECTIVES[self.objective].is_log_loss and self.batching != "lists" and not self.is_joint

    @property
    def is_joint(self) -> bool:
        """Whether its calibrator is trained with it."""
        return self.calibrator is not None and self.fit == "joint"

    @property
    def is_plain(self) -> bool:
        """Whether it is trained by log loss on single impressions (or by a teacher) and served as it is."""
        return self.learns_by_sample and self.calibrator is None

    @property
    def is_shadowed(self) -> bool:
        """Whether it learns anything from the requests of the shadow phase."""
        return self.trained_by.has_teacher or self.proxy_calibrator is not None

    @property
    def has_calibrator(self) -> bool:
        """Whether a calibrator, of whichever kind, is kept and served with it."""
        return self.calibrator is not None or self.proxy_calibrator is not None

    def as_first_deployed(self) -> ModelSpec:
        """The section of its first deployment: whatever it is, by log loss on impressions."""
        plain = {
            "recipe": "logloss",
            "objective": "pointwise",
            "batching": None,
            "calibrator": None,
            "proxy_calibrator": None,
        }
        return self.model_copy(update=plain)


def objective_of(spec: ModelSpec) -> Objective:
    """The objective that a model's section names, with its options."""
    return make_objective(spec.objective, task="binary", **spec.objective_options)


def check_objective(spec: ModelSpec, given: Collection[KeyPath], at: KeyPath) -> Iterator[Problem]:
    """What is wrong with a model's objective, its options and its calibrator."""
    yield from _check_proxy(spec, at)
    if not spec.trained_by.has_objective:
        fits = " and ".join(name for name, recipe in RECIPES.items() if recipe.has_objective)
        for key in OBJECTIVE_KEYS:
            if (*at, key) in given and not (key == "held_out" and spec.proxy_calibrator is not None):
                text = f"has no meaning for recipe {spec.recipe} (only for {fits}); remove it"
                yield Problem((*at, key), text, uses=((*at, "recipe"),))
    else:
        yield from _check_options(spec, given, at)
    yield from _check_calibrator(spec, given, at)
    heads, objective = OBJECTIVES[spec.objective].n_heads, (*at, "objective")
    if heads > 1 and ":" in spec.kind:
        number = "two" if heads == 2 else heads
        text = f"{spec.objective} trains {number} heads, which only the kinds {NETS_TEXT} have"
        yield Problem(objective, text, uses=(objective, (*at, "kind")))


def check_recipe(spec: ModelSpec, given: Collection[KeyPath], at: KeyPath) -> Iterator[Problem]:
    """What is wrong with the options of a model's recipe, and with the lists that these ask for."""
    known, own, recipe = spec.trained_by.options, (*at, "recipe_options"), (*at, "recipe")
    if (*at, "link") in given and not spec.has_custom_recipe and spec.link != spec.trained_by.link:
        text = f"recipe {spec.recipe} has link {spec.trained_by.link}; only a custom class is told"
        yield Problem((*at, "link"), text, uses=(recipe,))
    if spec.has_custom_recipe:
        return  # its class says what it takes
    faults = {}
    for name, value in spec.recipe_options.items():
        if name not in known:
            faults[name] = unknown_name("option", name, known)
            if not known:
                faults[name] = f"recipe {spec.recipe} has no options; remove it"
        else:
            faults[name] = known[name].fault(value)
    yield from (Problem((*own, name), text, uses=(recipe,)) for name, text in faults.items() if text)
    if any(faults.values()) or not spec.trained_by.has_teacher:
        return
    options, size = spec.recipe_values, (*at, "sample", "per_request")
    for name in ("k", "quota"):
        if name in options and options[name] >= spec.sample.per_request:
            text = f"{options[name]} of lists of {spec.sample.per_request} leave nothing to choose"
            where = (*own, name) if name in spec.recipe_options else size
            yield Problem(where, f"{name}: {text}; raise sample.per_request", uses=(recipe, size))
    if spec.sample.best is not None and spec.sample.best > spec.sample.per_request:
        text = f"{spec.sample.best} do not fit into lists of {spec.sample.per_request}"
        yield Problem((*at, "sample", "best"), text, uses=(size,))


def _check_calibrator(spec: ModelSpec, given: Collection[KeyPath], at: KeyPath) -> Iterator[Problem]:
    """What is wrong with the keys that say how a calibrator is fitted."""
    for key in ("fit", "held_out", "refit"):
        maps = (spec.calibrator, spec.proxy_calibrator if key == "held_out" else None)
        if (*at, key) in given and not any(maps):
            text = "has no meaning without a calibrator; remove it, or add one"
            yield Problem((*at, key), text, uses=((*at, "calibrator"),))
    fit: KeyPath = (*at, "fit")
    if spec.is_joint and spec.calibrator != "piecewise_linear":
        text = f"{spec.calibrator} is not trained in batches; use piecewise_linear, held_out or training"
        yield Problem(fit, text, uses=(fit, (*at, "calibrator")))
    if spec.calibrator is not None and spec.fit != "held_out" and (*at, "held_out") in given:
        text = f"nothing is held out with fit {spec.fit}; remove it"
        yield Problem((*at, "held_out"), text, uses=(fit,))
    if spec.is_joint and (*at, "refit") in given:
        text = "a calibrator with fit joint goes on learning with its model; remove it"
        yield Problem((*at, "refit"), text, uses=(fit,))


def _check_proxy(spec: ModelSpec, at: KeyPath) -> Iterator[Problem]:
    """What a proxy calibrator does not go with: scores that are no probabilities, and another calibrator."""
    if spec.proxy_calibrator is None:
        return
    own, recipe, calibrator = (*at, "proxy_calibrator"), (*at, "recipe"), (*at, "calibrator")
    if not spec.trained_by.gives_probabilities:
        text = f"recipe {spec.recipe} learns an order, not the ranker's pCTR; use logloss or distill"
        yield Problem(own, text, uses=(own, recipe))
    if spec.calibrator is not None:
        text = "the model has a calibrator already, and only one map can be served; remove one of them"
        yield Problem(own, text, uses=(own, calibrator))


def _check_options(spec: ModelSpec, given: Collection[KeyPath], at: KeyPath) -> Iterator[Problem]:
    """What is wrong with the keys that an objective takes, of a model that learns from clicks."""
    kind, objective = OBJECTIVES[spec.objective], (*at, "objective")
    for option in OPTIONS:
        takers = [name for name, other in OBJECTIVES.items() if option in other.options]
        if (*at, option) in given and spec.objective not in takers:
            text = f"has no meaning for objective {spec.objective} (only for {', '.join(takers)}); remove it"
            yield Problem((*at, option), text, uses=(objective,))
    for option, value in spec.objective_options.items():
        fault = kind.fault_for_clicks(option, value)
        if fault:
            yield Problem((*at, option), fault, uses=(objective,))
    if (*at, "logged_scores_from") in given and kind.trains_on != "samples":
        takers = [name for name, other in OBJECTIVES.items() if other.trains_on == "samples"]
        text = f"has no meaning for objective {spec.objective} (only for {', '.join(takers)}); remove it"
        yield Problem((*at, "logged_scores_from"), text, uses=(objective,))
    if spec.batching == "samples" and not kind.can_take_samples:
        text = f"{spec.objective} compares the ads of a page, which must stay whole: use lists, or remove it"
        yield Problem((*at, "batching"), text, uses=(objective,))
