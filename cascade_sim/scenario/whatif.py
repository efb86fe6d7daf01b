"""The section `what_if`: questions that are asked of the baseline arm after the evaluation.

what_if:
  dearer: [auction.reserve_cpc=0.6, cascade.slots=4]    # one other way to serve, both changed
  reserve:                                              # a curve: one knob, several values
    - auction.reserve_cpc=0.2,0.3,0.4
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from cascade_sim.scenario.yaml import Problem

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario


def _is_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(
            f"expected path.to.knob=value, found {value!r}; "
            "put several values of one knob between quotes: 'auction.reserve_cpc=0.1,0.2'"
        )
    return value


Words = Annotated[str, BeforeValidator(_is_text)]
Changes = Annotated[tuple[Words, ...], Field(strict=False, min_length=1)]


def check_what_if(scenario: Scenario, folder: Path) -> Iterator[Problem]:
    """Each question is checked like an arm of the scenario."""
    from cascade_sim.scenario.changes import Refused, parse_points, turn
    from cascade_sim.scenario.schema import resolve_arm

    baseline = scenario.report.baseline
    if baseline not in scenario.arms:
        return  # said elsewhere
    spec = resolve_arm(scenario, scenario.arms[baseline])
    for name, words in scenario.what_if.items():
        try:
            for point in parse_points(words, scenario, baseline):
                turn(scenario, spec, point, folder)
        except Refused as reason:
            at = ("what_if", name, reason.at)
            yield Problem(at, f"{words[reason.at]}: {reason}", uses=(at, ("arms", baseline)))
