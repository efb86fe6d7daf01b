import torch

from cascade_sim.models.nets.coaction import CoAction


def random_net(pair_width):
    torch.manual_seed(0)
    net = CoAction(3, 2, pair_width, hidden=4, dims=5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net


def test_the_logit_follows_its_formula_pair_by_pair():
    net = random_net(1)
    request, ads, pair = torch.randn(2, 3), torch.randn(2, 4, 2), torch.rand(2, 4, 1)
    found = net(request, ads, pair)
    for r in range(2):
        for j in range(4):
            matrix = (net.ad_matrix(ads[r, j]) / 5**0.5).reshape(5, 8)
            m = matrix.T @ net.project(request[r])
            h = net.request_hidden(request[r]) + net.ad_hidden(ads[r, j]) + net.mix(m)
            h = h + pair[r, j, 0] * net.pair[0]
            expected = torch.relu(h[:4]) @ net.out + h[4] + net.bias
            assert torch.allclose(found[r, j], expected, atol=1e-5)


def test_user_and_ad_meet_in_a_product_not_only_in_a_sum():
    net = random_net(0)
    u, v, a, b = torch.randn(3), torch.randn(3), torch.randn(2), torch.randn(2)

    def logit(request, ad):
        return net(request[None], ad[None, None], torch.zeros(1, 1, 0)).item()

    assert abs(logit(u, a) - logit(u, b) - logit(v, a) + logit(v, b)) > 1e-2


def test_a_net_without_pair_features_needs_none():
    assert random_net(0)(torch.randn(2, 3), torch.randn(2, 4, 2), torch.zeros(2, 4, 0)).shape == (2, 4)
