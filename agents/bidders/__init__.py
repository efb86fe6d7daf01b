"""The bidders that a scenario may name."""

from cascade_sim.agents.registry import BIDDERS

__all__ = ["BIDDERS"]
