import pytest
import torch

from cascade_sim.models.nets.inttower import InterTowers


def random_net(heads=1):
    torch.manual_seed(0)
    net = InterTowers(3, 2, 1, hidden=6, dims=5, heads=heads)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def inputs():
    torch.manual_seed(1)
    return torch.randn(2, 3), torch.randn(2, 4, 2), torch.rand(2, 4, 1)


def of(layer, x):
    return layer.weight @ x + (0 if layer.bias is None else layer.bias)


def test_the_logit_follows_its_formula_pair_by_pair():
    net, (request, ads, pair) = random_net(), inputs()
    found = net(request, ads, pair)
    for r in range(2):
        for j in range(4):
            x, y, tower = request[r], ads[r, j], net.ad_tower
            curved = of(tower.outer, of(tower.inner, y).clamp(min=0))
            of_ad = (of(tower.linear, y) + curved).reshape(4, 5)
            expected = of(net.request_line, x)[0] + of(net.ad_line, y)[0] + net.bias
            for i, z in enumerate((x, of(net.request_layer, x).clamp(min=0))):
                for h, code in enumerate(of(net.request_codes[i], z).reshape(4, 5)):
                    expected = expected + net.out[4 * i + h] * max(code @ v for v in of_ad)
            assert torch.allclose(found[r, j], expected, atol=1e-5)


def test_a_fresh_net_sums_the_maxima_as_the_paper_does():
    torch.manual_seed(2)
    net, (request, ads, pair) = InterTowers(3, 2, 1, hidden=6, dims=5), inputs()
    met = torch.einsum("rld,rnhd->rnlh", net.request_code(request), net.ad_code(ads))
    lines = net.request_line(request) + net.ad_line(ads)[..., 0]
    assert torch.allclose(net(request, ads, pair), met.max(-1).values.sum(-1) + lines, atol=1e-6)


def test_heads_fold_into_the_net_of_their_weighted_sum_and_widen_from_it():
    weights = torch.tensor([0.5, -2.0])
    wide, given = random_net(heads=2), inputs()
    assert wide(*given).shape == (2, 4, 2)
    folded = wide.folded(weights)
    assert torch.allclose(folded(*given), wide(*given) @ weights, atol=1e-5)
    again = folded.widened(weights)
    assert torch.allclose(again(*given), folded(*given)[..., None] * weights, atol=1e-5)


def test_the_best_of_the_ads_heads_counts_and_no_sum_of_them():
    """Along a line between two ads the logit of a maximum is convex where both towers are linear."""
    net, (request, _, pair) = random_net(), inputs()
    with torch.no_grad():
        net.out.fill_(1.0)
        net.ad_tower.outer.weight.zero_()
    at = torch.linspace(-2, 2, 9)[:, None] * torch.ones(2)
    logit = net(request[:1], at[None], pair[:1, :1].expand(1, 9, 1))[0]
    bends = logit[2:] - 2 * logit[1:-1] + logit[:-2]
    assert bends.min() > -1e-4 and bends.max() > 1e-2


@pytest.mark.parametrize("dims", [1, 7])
def test_any_length_of_a_code_will_do(dims):
    assert InterTowers(3, 2, 0, dims=dims)(torch.zeros(2, 3), torch.zeros(2, 4, 2), None).shape == (2, 4)
