"""The parameters of an arm: what decides how requests are served, and how a scenario file writes it."""

from collections.abc import Iterable
from typing import get_args

from cascade_sim.scenario.messages import path_text
from cascade_sim.scenario.schema import ArmOverrides, Override, PreRankingStepOverride, RouteOverride

ParamPath = tuple[str, ...]  # as an arm writes it: ("pre_ranking", "size"); or ("fusions", NAME, …)


def scenario_path(parameter: ParamPath) -> str:
    """A parameter as the scenario file writes it."""
    return path_text(
        parameter if parameter[0] in ("auction", "bidding", "fusions") else ("cascade", *parameter)
    )


def arm_parameters(steps: Iterable[str] = (), routes: Iterable[str] = ()) -> list[ParamPath]:
    """Every parameter of an arm, from the schema of its overrides; exploration only matters in a market.

    `steps` are the names of the earlier steps of pre-ranking, `routes` those of retrieval: each has its own.
    """
    parameters: list[ParamPath] = []
    for name, field in ArmOverrides.model_fields.items():
        kinds = [kind for kind in get_args(field.annotation) if isinstance(kind, type)]
        section = next((kind for kind in kinds if issubclass(kind, Override)), None)
        if section is not None:
            parameters += [(name, key) for key in section.model_fields if key != "earlier"]
        elif name != "exploration":
            parameters.append((name,))
    parameters += [
        ("pre_ranking", "earlier", step, key) for step in steps for key in PreRankingStepOverride.model_fields
    ]
    parameters += [
        ("retrieval", "routes", route, key) for route in routes for key in RouteOverride.model_fields
    ]
    return parameters
