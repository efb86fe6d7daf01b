import numpy as np
import pytest

from cascade_sim.cascade.fusion import Fusion, fused_quality, named_fusion
from cascade_sim.scenario.schema import Fusion as FusionWeights


def never() -> np.ndarray:
    raise AssertionError("the pCVR was asked for although it does not count")


PCTR, PCVR, BID = np.array([[0.04, 0.09, 0.01]]), np.array([[0.25, 0.04, 0.5]]), np.array([[2.0, 1.0, 3.0]])


def test_ecpm_is_pctr_times_bid_and_squashing_is_its_exponent():
    assert named_fusion("ecpm", {}) == Fusion(1.0, 0.0)
    assert fused_quality(named_fusion("ecpm", {}), PCTR, never) is PCTR
    assert fused_quality(named_fusion("ecpm", {}, 0.5), PCTR, never) == pytest.approx(
        np.array([[0.2, 0.3, 0.1]])
    )


def test_a_weighted_geometric_fusion_keeps_its_order_when_the_bid_is_made_linear():
    weights = FusionWeights(pctr=1.0, pcvr=0.5, bid=2.0)
    fusion = named_fusion("mixed", {"mixed": weights})
    score = BID * fused_quality(fusion, PCTR, lambda: PCVR)
    direct = PCTR**1.0 * PCVR**0.5 * BID**2.0
    assert score == pytest.approx(direct ** (1 / 2.0))


def test_an_ad_that_nobody_clicks_has_no_quality_for_any_exponent():
    pctr = np.array([[0.0, 0.5]])
    for exponent in (0.0, 0.3, 1.0, 2.0):
        value = fused_quality(Fusion(pctr=exponent), pctr, never)
        assert value[0, 0] == 0 and value[0, 1] == pytest.approx(0.5**exponent)


def test_squashing_0_is_the_order_of_bids():
    assert fused_quality(named_fusion("ecpm", {}, 0.0), PCTR, never).tolist() == [[1, 1, 1]]


def test_the_pcvr_counts_only_with_an_exponent():
    assert fused_quality(Fusion(1.0, 1.0), PCTR, lambda: PCVR) == pytest.approx(PCTR * PCVR)
