"""The bidders that a scenario may name."""

from agents.bidders_fixed import Fixed
from agents.bidders_multiplier import Multiplier
from agents.bidders_paced import Adaptive, Pid
from agents.bidders_shading import Shading
from agents.bidders_target_cpa import TargetCpa
from agents.bidders_throttling import Throttling
from agents.bidding import Bidder

BIDDERS: dict[str, type[Bidder]] = {
    "fixed": Fixed,
    "shading": Shading,
    "target_cpa": TargetCpa,
    "multiplier": Multiplier,
    "adaptive": Adaptive,
    "pid": Pid,
    "throttling": Throttling,
}
