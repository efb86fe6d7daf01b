"""A `joint` section of a scenario: models that are trained together, on the same lists."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Annotated, Any, ClassVar

from pydantic import Field, JsonValue

from cascade_sim.foundation.errors import unknown_name
from cascade_sim.models.joint import JOINT_OBJECTIVES, JointObjective
from cascade_sim.models.recipes import STEPS
from cascade_sim.scenario.models import ModelSpec, Sample
from cascade_sim.scenario.sections import Name, NameIn, Section
from cascade_sim.scenario.yaml import KeyPath, Problem


def _of_model(key: str) -> Any:
    """A key that says of a joint training what it says of a model's own."""
    return copy(ModelSpec.model_fields[key])


class JointSample(Sample):
    """Which ads of a shadowed request all models of a section learn from."""

    set: Name = Field(default="corpus", description=str(Sample.model_fields["set"].description))


class Joint(Section):
    """Models that are trained together: what they learn from, and for what."""

    models: Annotated[tuple[Name, ...], Field(strict=False)] = Field(
        min_length=2, description="The models, in the order of the cascade, each with recipe: joint."
    )
    objective: Annotated[str, NameIn(JOINT_OBJECTIVES)] = Field(
        default="lcron", description="What they are trained for: lcron or rankflow."
    )
    options: dict[str, JsonValue] = Field(
        default={},
        description="Options of the objective: "
        + "; ".join(f"{name}: {', '.join(known.options)}" for name, known in JOINT_OBJECTIVES.items())
        + ".",
    )
    sample: JointSample = Field(default=JointSample(), description="The lists that all of them learn from.")
    epochs: int = _of_model("epochs")
    batch: int = _of_model("batch")
    learning_rate: float = _of_model("learning_rate")
    weight_decay: float = _of_model("weight_decay")
    validation: float = _of_model("validation")

    # What lists are made of, as of a model's section.
    chunks: ClassVar[int] = 2
    chunking: ClassVar[str] = "halving"
    has_exposed_chunk: ClassVar[bool] = False
    teacher: ClassVar[None] = None  # the arm's ranking model

    @property
    def trained_for(self) -> JointObjective:
        """The objective that the section names."""
        return JOINT_OBJECTIVES[self.objective]

    @property
    def values(self) -> dict[str, Any]:
        """All options of the objective by name; those that are not given at their defaults."""
        return self.trained_for.with_defaults(self.options)

    @property
    def always_listed(self) -> int:
        """How many of the ranking stage's best are in every list."""
        return int(self.values["k"] if self.sample.best is None else self.sample.best)

    @property
    def steps(self) -> dict[str, Any]:
        """The keys of its training loop."""
        return {key: getattr(self, key) for key in STEPS}


def check_options(joint: Joint, at: KeyPath) -> Iterator[Problem]:
    """What is wrong with the options of a joint section, and with the lists that these ask for."""
    own, known = (*at, "options"), joint.trained_for.options
    faults = {}
    for name, value in joint.options.items():
        fault = unknown_name("option", name, known) if name not in known else known[name].fault(value)
        if fault:
            faults[name] = fault
    yield from (Problem((*own, name), text, uses=((*at, "objective"),)) for name, text in faults.items())
    if faults:
        return
    size, values = joint.sample.per_request, joint.values
    if "quota" in joint.options and values["quotas"] == "sizes":
        text = "means nothing with quotas: sizes, by which each model hands on what its stage does; remove it"
        yield Problem((*own, "quota"), text, uses=(own,))
    for name in ("k", "quota"):
        if values[name] >= size and (name == "k" or values["quotas"] == "fixed"):
            text = (
                f"{name}: {values[name]} of lists of {size} leave nothing to choose; raise sample.per_request"
            )
            where = (*own, name) if name in joint.options else (*at, "sample", "per_request")
            yield Problem(where, text, uses=(own, (*at, "sample")))
