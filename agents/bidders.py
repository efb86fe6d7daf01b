"""The bidders that a scenario may name."""

from cascade_sim.agents.bidders_fixed import Fixed
from cascade_sim.agents.bidders_multiplier import Multiplier
from cascade_sim.agents.bidders_paced import Adaptive, Pid
from cascade_sim.agents.bidders_shading import Shading
from cascade_sim.agents.bidders_target_cpa import TargetCpa
from cascade_sim.agents.bidders_throttling import Throttling
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
