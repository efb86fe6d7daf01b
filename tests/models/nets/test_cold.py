import pytest
import torch

from cascade_sim.models.nets.cold import GatedNet


def random_net(pair_width=1, heads=1):
    torch.manual_seed(0)
    net = GatedNet(3, 2, pair_width, hidden=4, dims=5, heads=heads)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def inputs(pair_width=1):
    torch.manual_seed(1)
    return torch.randn(2, 3), torch.randn(2, 4, 2), torch.rand(2, 4, pair_width)


@pytest.mark.parametrize("pair_width", [0, 1])
def test_the_logit_follows_its_formula_pair_by_pair(pair_width):
    net, (request, ads, pair) = random_net(pair_width), inputs(pair_width)
    found = net(request, ads, pair)
    for r in range(2):
        for j in range(4):
            x, y, p = request[r], ads[r, j], pair[r, j]
            cross = net.request_cross(x) * (net.ad_cross.weight @ y + net.ad_cross.bias)
            gates = net.request_gate.weight @ x + net.request_gate.bias + net.ad_gate.weight @ y
            gates = gates + net.cross_gate.weight @ cross + p @ net.pair_gate
            s = 1 / (1 + torch.exp(-gates))
            groups = (
                net.request_hidden.weight @ x,
                net.ad_hidden.weight @ y,
                net.cross_hidden.weight @ cross,
                p @ net.pair,
            )
            h = sum(gate * group for gate, group in zip(s, groups, strict=True)) + net.shift[0]
            expected = h[:4].clamp(min=0) @ net.out + h[4] + net.bias
            assert torch.allclose(found[r, j], expected, atol=1e-5)


def test_a_gate_that_is_shut_leaves_its_group_out():
    net, (request, ads, pair) = random_net(), inputs()
    before = net(request, ads, pair)
    with torch.no_grad():
        net.request_gate.bias[2] = -200.0
        closed = net(request, ads, pair)
        net.cross_hidden.weight.add_(1.0)
    assert torch.equal(net(request, ads, pair), closed) and not torch.allclose(before, closed)


@pytest.mark.parametrize("pair_width", [0, 1])
def test_heads_fold_into_the_net_of_their_weighted_sum_and_widen_from_it(pair_width):
    weights = torch.tensor([0.5, -2.0])
    wide, given = random_net(pair_width, heads=2), inputs(pair_width)
    assert wide(*given).shape == (2, 4, 2)
    folded = wide.folded(weights)
    assert torch.allclose(folded(*given), wide(*given) @ weights, atol=1e-5)
    again = folded.widened(weights)
    assert torch.allclose(again(*given), folded(*given)[..., None] * weights, atol=1e-5)
