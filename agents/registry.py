"""The bidders and click models that a scenario may name. A new one is its class and one line here.

Names alone cost nothing: a class is imported when it is first asked for, so that a scenario can be checked
without numpy.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class Classes(Mapping[str, type[Any]]):
    """Classes by name, from `package.module:Class` by name."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> type[Any]:
        module, _, class_name = self._places[name].partition(":")
        named_class: type[Any] = getattr(import_module(module), class_name)
        return named_class

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


BIDDERS = Classes(
    {
        "fixed": "cascade_sim.agents.bidders.fixed:Fixed",
        "shading": "cascade_sim.agents.bidders.shading:Shading",
        "target_cpa": "cascade_sim.agents.bidders.target_cpa:TargetCpa",
        "multiplier": "cascade_sim.agents.bidders.multiplier:Multiplier",
        "adaptive": "cascade_sim.agents.bidders.paced:Adaptive",
        "pid": "cascade_sim.agents.bidders.paced:Pid",
        "throttling": "cascade_sim.agents.bidders.throttling:Throttling",
    }
)

CLICK_MODELS = Classes(
    {
        "position": "cascade_sim.agents.click_models:PositionBased",
        "cascade": "cascade_sim.agents.click_models:Cascade",
    }
)
