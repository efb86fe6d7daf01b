import pytest
import torch

from cascade_sim.models.nets.dcn import CrossNet


def random_net(pair_width=1, heads=1):
    torch.manual_seed(0)
    net = CrossNet(3, 2, pair_width, hidden=4, dims=5, heads=heads)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net


def inputs(pair_width=1):
    torch.manual_seed(1)
    return torch.randn(2, 3), torch.randn(2, 4, 2), torch.rand(2, 4, pair_width)


def test_the_logit_follows_its_formula_pair_by_pair():
    net, (request, ads, pair) = random_net(), inputs()
    found = net(request, ads, pair)
    for r in range(2):
        for j in range(4):
            x0 = torch.cat([request[r], ads[r, j], pair[r, j]])
            x = x0
            for down, up in zip(net.down, net.up, strict=True):
                x = x0 * (up.weight @ (down.weight @ x) + up.bias) + x
            hidden = torch.relu(net.deep.weight @ x0 + net.deep.bias)
            expected = net.out_crossed.weight[0] @ x + net.out_deep.weight[0] @ hidden + net.bias
            assert torch.allclose(found[r, j], expected, atol=1e-5)


def test_two_crosses_reach_products_of_three_inputs():
    """The third difference of a cubic does not vanish; of the hidden layer nothing is left here."""
    net = random_net(0)
    with torch.no_grad():
        net.out_deep.weight.zero_()
    request, ads, pair = inputs(0)

    def logit(scale):
        return net(scale * request, scale * ads, pair).double()

    third = logit(3) - 3 * logit(2) + 3 * logit(1) - logit(0)
    fourth = logit(4) - 4 * logit(3) + 6 * logit(2) - 4 * logit(1) + logit(0)
    assert third.abs().min() > 1e-2 and fourth.abs().max() < 1e-3


@pytest.mark.parametrize("pair_width", [0, 1])
def test_heads_fold_into_the_net_of_their_weighted_sum_and_widen_from_it(pair_width):
    weights = torch.tensor([0.5, -2.0])
    wide, given = random_net(pair_width, heads=2), inputs(pair_width)
    assert wide(*given).shape == (2, 4, 2)
    folded = wide.folded(weights)
    assert torch.allclose(folded(*given), wide(*given) @ weights, atol=1e-5)
    again = folded.widened(weights)
    assert torch.allclose(again(*given), folded(*given)[..., None] * weights, atol=1e-5)
