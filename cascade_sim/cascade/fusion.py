"""Fusion: how the objectives of a stage become one score. score = bid * quality.

Every named fusion is a weighted geometric mean, pctr^a * pcvr^b * bid^c. Its order does not change
when the exponents are divided by the bid's, so quality = pctr^(a/c) * pcvr^(b/c) and the score stays
linear in the bid: that is what lets an auction price "the least bid that keeps the slot".
eCPM is (1, 0, 1); squashing s is (s, 0, 1).
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fusion:
    """Exponents of pCTR and pCVR once the bid's is 1."""

    pctr: float | np.ndarray = 1.0  # [R, 1] while a block has a squashing of each request
    pcvr: float = 0.0
    is_bid_alone: bool = False  # the quality is 1: what is charged is the impression, whatever comes of it


def named_fusion(name: str, extra: dict, squashing: float = 1.0, charging: str = "click") -> Fusion:
    """The fusion of this name: "ecpm" (with the auction's squashing) or one of the scenario's own."""
    if charging != "click":
        return Fusion(pctr=0.0, is_bid_alone=True)
    if name == "ecpm":
        return Fusion(pctr=squashing)
    weights = extra[name]
    return Fusion(pctr=squashing * weights.pctr / weights.bid, pcvr=weights.pcvr / weights.bid)


def fused_quality(fusion: Fusion, pctr: np.ndarray, pcvr) -> np.ndarray:
    """pctr^a * pcvr^b; `pcvr` is a function, called only when it counts.  [R, m]

    A zero pCTR has zero quality even for exponent 0: an ad without clicks cannot win a click auction.
    """
    if fusion.is_bid_alone:
        return np.ones(pctr.shape)
    if isinstance(fusion.pctr, np.ndarray):
        with np.errstate(divide="ignore", invalid="ignore"):  # log 0 * 0 is no number, and not wanted
            value = np.where(pctr > 0, np.exp(fusion.pctr * np.log(pctr, dtype=np.float64)), 0.0)
    elif fusion.pctr == 1.0:
        value = pctr
    elif fusion.pctr == 0.0:
        value = (pctr > 0).astype(np.float64)
    else:
        value = np.power(pctr, fusion.pctr, dtype=np.float64)
    return value if fusion.pcvr == 0.0 else value * np.power(pcvr(), fusion.pcvr, dtype=np.float64)
