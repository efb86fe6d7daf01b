"""What stages cost is what their formulas need, and what an arm costs is what its stages were handed."""

import pytest
import torch
from torch import nn

from cascade_sim.cascade.cost import (
    SIGMOID_FLOPS,
    added,
    cost_of,
    counted_cost,
    exact_search,
    listed_search,
)
from cascade_sim.cascade.links import MappedScorer
from cascade_sim.cascade.retrievers.routes import MergedRoutes, Quota
from cascade_sim.cascade.scorers import ConstantScorer, RandomScorer
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.cold import GatedNet
from cascade_sim.models.nets.dcn import CrossNet
from cascade_sim.models.nets.inttower import InterTowers
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.protocols import Cost
from cascade_sim.training.modules import make_scorer


@pytest.fixture(scope="module")
def view(sim):
    return sim.view(("user", "context", "quality", "tier", "G1", "mismatch_pair"))


def scorer_of(cls, view, **sizes):
    torch.manual_seed(0)
    return make_scorer("m", "logloss", view, cls(view.request_width, view.ad_width, view.pair_width, **sizes))


def weights(*layers):
    return 2 * sum(parameter.numel() for layer in layers for parameter in layer.parameters())


def test_towers_are_a_dot_product_for_a_pair(view):
    scorer = scorer_of(TwoTowers, view, hidden=6, dims=14)
    width = 14 + 2  # and the two biases
    assert scorer.cost.pair_flops == 2 * width + SIGMOID_FLOPS
    assert scorer.cost.pair_bytes == 4 * width + 4
    assert scorer.cost.request_flops == weights(scorer.module.request_tower)
    assert scorer.cost.ad_flops == weights(scorer.module.ad_tower)
    assert scorer.cost.request_bytes == 4 * view.request_width


def test_a_co_action_is_a_product_with_the_ads_matrix_and_a_layer(view):
    scorer, pair_dims = scorer_of(CoAction, view, hidden=32, dims=16), view.pair_user.shape[1]
    matrix, mixed, sums, out, pair = 2 * 16 * 8, 2 * 8 * 33, 2 * 33, 2 * 32, 2 * pair_dims + 2 * 33
    assert scorer.cost.pair_flops == matrix + mixed + sums + out + pair + SIGMOID_FLOPS
    assert scorer.cost.pair_bytes == 4 * (16 * 8 + 33 + pair_dims) + 4


def test_interaction_towers_meet_all_codes_with_all_and_take_maxima(view):
    scorer = scorer_of(InterTowers, view, hidden=6, dims=5)
    products, maxima, weighed, lines = 2 * 8 * 4 * 5, 8 * 3, 2 * 8, 2
    assert scorer.cost.pair_flops == products + maxima + weighed + lines + SIGMOID_FLOPS
    assert scorer.cost.pair_bytes == 4 * (4 * 5 + 1) + 4
    assert scorer.cost.ad_flops == weights(scorer.module.ad_tower, scorer.module.ad_line)


def test_a_gated_net_has_crosses_gates_and_a_layer(sim):
    scorer = scorer_of(GatedNet, sim.view(("user", "G1")), hidden=16, dims=8)
    crosses, gates = 8, 3 * (2 * 8 + 2 + SIGMOID_FLOPS)
    layer = 17 * (2 * 8 + 2 * 3)  # each of three groups has a gate, and is added
    assert scorer.cost.pair_flops == crosses + gates + layer + 2 * 16 + SIGMOID_FLOPS
    assert scorer.cost.pair_bytes == 4 * (8 + 3 + 17) + 4


def test_a_net_without_a_kernel_is_counted_by_its_operations(view):
    width = view.request_width + view.ad_width + view.pair_width
    cost = scorer_of(CrossNet, view, hidden=6, dims=5).cost
    crosses = 2 * (
        2 * width * 5 + 2 * 5 * width + width + 2 * width
    )  # two products, a bias, times x0, plus x
    heads = (
        2 * width + (2 * width + 1) * 6 + 6 + 2 * 6
    )  # of the crosses; the hidden layer, its relu and its o
    assert cost.pair_flops == crosses + heads + 2 + SIGMOID_FLOPS
    assert (cost.request_flops, cost.ad_flops) == (0, 0)


class Encoded(nn.Module):
    """A request's code once, an ad's once per deployment, and a product for each pair."""

    def __init__(self, look=lambda logit: logit):
        super().__init__()
        self.u, self.a, self.look = nn.Linear(5, 3), nn.Linear(4, 3), look

    def encode_ads(self, ads):
        return self.a(ads)

    def forward(self, request, ads, pair):
        return self.look(torch.bmm(ads, self.u(request).unsqueeze(2)).squeeze(2))


def counted(net):
    ads = torch.zeros(20, 4)
    return counted_cost(net, 5, net.encode_ads(ads).detach(), 0, ads)


def test_what_a_class_encodes_apart_is_counted_once_per_deployment():
    layer = 2 * 5 * 3 + 3
    assert counted(Encoded()) == Cost(layer, 4 * 5, 2 * 3 + SIGMOID_FLOPS, 4 * 3 + 4, 2 * 4 * 3 + 3)
    assert counted(Encoded(torch.exp)).pair_flops == 2 * 3 + 1 + SIGMOID_FLOPS


@pytest.mark.parametrize(
    "look", [lambda logit: (logit[..., None] * logit[:, None]).sum(-1), lambda logit: logit[:, :, None, 5]]
)
def test_what_looks_at_a_whole_list_or_fails_has_no_known_cost(look):
    assert counted(Encoded(look)) is None


def test_counting_draws_nothing_and_leaves_the_net_as_it_is(view):
    scorer = scorer_of(CrossNet, view)
    before, state = {k: v.clone() for k, v in scorer.module.state_dict().items()}, torch.get_rng_state()
    assert scorer.cost is not None
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in scorer.module.state_dict().items())


def test_those_who_need_no_net_cost_nothing_and_the_truth_is_not_known(sim):
    assert cost_of(RandomScorer(1)) == cost_of(ConstantScorer()) == Cost()
    assert cost_of(sim.scorers["truth"]) is None


def test_a_search_is_a_product_with_every_ad_or_with_those_of_the_lists_looked_into(sim):
    retriever, n_ads = sim.retriever, sim.world.n_ads
    width = retriever._user.shape[1]
    assert retriever.cost(10) == Cost(2 * n_ads * width, 4 * width * (n_ads + 1), is_kept=True)
    assert retriever.cost(n_ads).request_flops == 0  # everybody: nothing is looked for
    assert listed_search(1000, 8, lists=50, probes=5).request_flops == 2 * 8 * (50 + 100)
    assert listed_search(1000, 8, lists=50, probes=500).request_flops == 2 * 8 * (50 + 1000)


def test_a_map_of_scores_counts_as_nothing(view):
    scorer = scorer_of(TwoTowers, view)
    assert MappedScorer(scorer, "calibrator", lambda block, score: score).cost == scorer.cost


class Silent:
    name = "silent"


def test_routes_add_up_and_one_that_says_nothing_leaves_all_unknown(sim):
    two = MergedRoutes((Quota("a", sim.retriever, 5), Quota("b", sim.retriever, 5), Quota("c", Silent(), 0)))
    assert two.cost(10) == sim.retriever.cost(5) + sim.retriever.cost(5) and two.cost(10).is_kept
    assert MergedRoutes((*two.routes, Quota("d", Silent(), 5))).cost(15) is None
    assert not added([exact_search(3, 2, is_kept=True), exact_search(3, 2)]).is_kept
