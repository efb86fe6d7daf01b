import torch

from cascade_sim.models.nets.towers import TwoTowers


def test_the_logit_is_the_product_of_the_codes_plus_both_biases():
    torch.manual_seed(0)
    net = TwoTowers(3, 2, 0, hidden=4, dims=5)
    with torch.no_grad():
        net.bias.fill_(0.7)
    request, ads = torch.randn(2, 3), torch.randn(2, 6, 2)
    u, a = net.request_tower(request), net.ad_tower(ads)
    expected = (u[:, None, :-1] * a[..., :-1]).sum(-1) + u[:, None, -1] + a[..., -1] + 0.7
    assert torch.allclose(net(request, ads, torch.zeros(2, 6, 0)), expected, atol=1e-6)
    assert torch.allclose(
        net.request_code(request)[:, None] @ net.ad_code(ads).mT, expected[:, None], atol=1e-6
    )


def test_the_ad_side_does_not_see_the_request_nor_the_pair_features():
    net = TwoTowers(3, 2, 1)
    ads = torch.randn(1, 4, 2)
    assert torch.equal(net.ad_code(ads), net.ad_code(ads.clone()))
    request = torch.randn(1, 3)
    assert torch.equal(net(request, ads, torch.zeros(1, 4, 1)), net(request, ads, torch.ones(1, 4, 1)))


def test_a_tower_is_not_just_linear():
    torch.manual_seed(0)
    net = TwoTowers(2, 2, 0, hidden=8, dims=3)
    x = torch.randn(1, 2)
    with torch.no_grad():
        middle = (net.request_tower(x) + net.request_tower(-x)) / 2
        assert not torch.allclose(middle, net.request_tower(torch.zeros(1, 2)), atol=1e-3)
