import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.models.nets.ltr_net import LAYERS, RankingNet, symmetric_log


def test_inputs_are_tamed_by_a_symmetric_log():
    x = np.array([0.0, np.e - 1, 1 - np.e, 1e-9], np.float32)
    assert symmetric_log(x).tolist() == pytest.approx([0, 1, -1, 1e-9], rel=1e-6)
    assert symmetric_log(x).dtype == np.float32


def test_the_net_has_the_layers_and_heads_asked_for():
    torch.manual_seed(1)
    net = RankingNet(7, 2, (5, 3), 0.1)
    shapes = [tuple(p.weight.shape) for p in net.modules() if isinstance(p, torch.nn.Linear)]
    assert shapes == [(5, 7), (3, 5), (2, 3)]
    assert net(torch.randn(4, 7)).shape == (4, 2)
    assert LAYERS == (1024, 512, 256)


def test_without_training_items_do_not_see_each_other():
    torch.manual_seed(1)
    net = RankingNet(3, 1, (8,), 0.5)
    net(torch.randn(50, 3))  # moves the running means
    net.eval()
    x = torch.randn(6, 3)
    assert torch.allclose(net(x)[2:3], net(x[2:3]))


def test_a_net_without_layers_is_a_line():
    torch.manual_seed(1)
    net = RankingNet(2, 1, ()).eval()
    net.requires_grad_(False)
    a, b = torch.randn(1, 2), torch.randn(1, 2)
    assert float(net((a + b) / 2)) == pytest.approx(float((net(a) + net(b)) / 2), abs=1e-6)


@pytest.mark.parametrize("wrong", [{"n_features": 0}, {"layers": (4, 0)}, {"dropout": 1.0}, {"n_heads": 0}])
def test_a_net_that_cannot_be_is_refused(wrong):
    with refused("net", kind=ValueError):
        RankingNet(**{"n_features": 3, **wrong})
