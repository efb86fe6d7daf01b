"""The bidders that a scenario may name."""

from cascade_sim.agents.bidders.fixed import Fixed
from cascade_sim.agents.bidders.multiplier import Multiplier
from cascade_sim.agents.bidders.paced import Adaptive, Pid
from cascade_sim.agents.bidders.shading import Shading
from cascade_sim.agents.bidders.target_cpa import TargetCpa
from cascade_sim.agents.bidders.throttling import Throttling
from cascade_sim.agents.bidding import Bidder

BIDDERS: dict[str, type[Bidder]] = {
    "fixed": Fixed,
    "shading": Shading,
    "target_cpa": TargetCpa,
    "multiplier": Multiplier,
    "adaptive": Adaptive,
    "pid": Pid,
    "throttling": Throttling,
}
