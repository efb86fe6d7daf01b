"""Sections on compute: what stages cost, on which servers, how long a page may wait, and sizes by request."""

from typing import Annotated

from pydantic import Field

from cascade_sim.scenario.sections import MAX_ID, Section

STAGES = ("retrieval", "pre_ranking", "ranking")  # in the order a request meets them


class Sizes(Section):
    """A size of its own for every request, by what more candidates are worth to it."""

    choices: Annotated[tuple[Annotated[int, Field(ge=2, le=MAX_ID)], ...], Field(strict=False)] = Field(
        min_length=2,
        max_length=64,
        description="Numbers of ads that may be handed to ranking, rising; more than the slots.",
    )
    mean: float = Field(gt=0, le=MAX_ID, description="Mean number of ads per request that may be ranked.")


class Pool(Section):
    """The servers of one stage. A batch costs per_batch_ms + per_candidate_us for each of its candidates."""

    servers: int = Field(default=1, ge=1, le=10_000, description="Identical servers of this stage.")
    per_batch_ms: float = Field(
        default=2.0, ge=0, le=1e6, description="Milliseconds a batch costs, however small it is."
    )
    per_candidate_us: float = Field(
        default=10.0, ge=0, le=1e6, description="Microseconds each candidate of a request costs."
    )
    batch: int = Field(
        default=4, ge=1, le=10_000, description="Most waiting requests that a free server takes at once."
    )


class Stages(Section):
    """A pool of servers for every stage."""

    retrieval: Pool = Field(
        default=Pool(per_batch_ms=3.0, per_candidate_us=4.0),
        description="Candidates are the ads it retrieves.",
    )
    pre_ranking: Pool = Field(
        default=Pool(per_batch_ms=2.0, per_candidate_us=10.0), description="Candidates are the retrieved ads."
    )
    ranking: Pool = Field(
        default=Pool(per_batch_ms=4.0, per_candidate_us=300.0),
        description="Candidates are the ads of the competitive set.",
    )


class Compute(Section):
    """Stages take time. A request that runs out of it gets the order of the last stage that was done."""

    deadline: float = Field(
        default=100.0, gt=0, le=1e6, description="Milliseconds from arrival to the latest answer."
    )
    stages: Stages = Field(default=Stages(), description="Servers and costs of each stage.")
    jitter: float = Field(
        default=0.1,
        ge=0,
        le=3,
        description="Standard deviation of the log of service times; their mean stays as it is.",
    )
