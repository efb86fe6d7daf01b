"""Bugs to be planted, each in a line of the real source, and what must catch it.

`old` stands exactly once in the file. `caught_by` names tests that pass without the bug and of which at least
one must fail with it; CHECK is `cascade_sim check` of a small market against a baseline made without the bug.
"""

from __future__ import annotations

from dataclasses import dataclass

CHECK = "cascade_sim check"


@dataclass(frozen=True)
class Bug:
    """One planted bug. Bugs in compiled loops run as plain Python: compiling them anew would take minutes."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    is_compiled: bool = False


KERNELS = "cascade_sim/auction/kernels.py"
AUCTION = "tests/auction/test_rules.py::"

BUGS = (
    Bug(
        "a click costs what the ad after next offers",
        KERNELS,
        "next_score = score[k + 1] if k + 1 < n_listed else 0.0",
        "next_score = score[k + 2] if k + 2 < n_listed else 0.0",
        (f"{AUCTION}test_two_slots_of_200_and_100_clicks_at_truthful_bids",),
        is_compiled=True,
    ),
    Bug(
        "the last slot is free",
        KERNELS,
        "next_score = score[k + 1] if k + 1 < n_listed else 0.0",
        "next_score = score[k + 1] if k + 1 < min(n_listed, slots) else 0.0",
        (f"{AUCTION}test_the_first_loser_prices_the_last_slot",),
        is_compiled=True,
    ),
    Bug(
        "the price is not divided by the quality",
        KERNELS,
        "critical_bid = next_score / quality[k] + rounding[2] if next_score > 0.0 else 0.0",
        "critical_bid = next_score",
        (f"{AUCTION}test_quality_squashing_and_the_two_reserves",),
        is_compiled=True,
    ),
    Bug(
        "the reserve does not lift a price",
        KERNELS,
        "least = max(score_floor / quality[k], reserve_cpc) if score_floor > 0.0 else reserve_cpc",
        "least = score_floor / quality[k]",
        (f"{AUCTION}test_quality_squashing_and_the_two_reserves",),
        is_compiled=True,
    ),
    Bug(
        "bids below the reserve take part",
        KERNELS,
        "(q > 0.0) & (b >= reserve) & (s >= score_floor)",
        "(q > 0.0) & (s >= score_floor)",
        (f"{AUCTION}test_an_ad_below_the_reserve_neither_wins_nor_prices",),
        is_compiled=True,
    ),
    Bug(
        "the score floor does not lift a price",
        KERNELS,
        "least = max(score_floor / quality[k], reserve_cpc) if score_floor > 0.0 else reserve_cpc",
        "least = reserve_cpc",
        (f"{AUCTION}test_quality_squashing_and_the_two_reserves",),
        is_compiled=True,
    ),
    Bug(
        "a price may exceed the bid",
        KERNELS,
        "price = min(max(price, least), bid[k])",
        "price = max(price, least)",
        ("tests/auction/test_prices.py::test_repricing_keeps_the_order_and_caps_each_price_at_its_bid",),
        is_compiled=True,
    ),
    Bug(
        "VCG forgets the runner-up of the last slot",
        KERNELS,
        "externality += (slot_effects[j] - effect_below) * met",
        "externality += (slot_effects[j] - effect_below) * met * (j < slots - 1)",
        (f"{AUCTION}test_two_slots_of_200_and_100_clicks_at_truthful_bids",),
        is_compiled=True,
    ),
    Bug(
        "VCG reserves bound the finished price only",
        KERNELS,
        "met = max(score[j + 1], min_score) if j + 1 < n_listed else min_score",
        "met = score[j + 1] if j + 1 < n_listed else 0.0",
        ("tests/auction/test_truthful.py::test_the_top_price_with_a_rival_and_a_reserve",),
        is_compiled=True,
    ),
    Bug(
        "ties go to the larger id",
        KERNELS,
        "ids[r, j] < ids[r, first]",
        "ids[r, j] > ids[r, first]",
        (f"{AUCTION}test_ties_go_to_the_smaller_column_or_the_smaller_id",),
        is_compiled=True,
    ),
    Bug(
        "ties of a long page go to the larger id",
        KERNELS,
        "ids[r, ranked[r, place - 1]] <= ids[r, j]",
        "ids[r, ranked[r, place - 1]] >= ids[r, j]",
        ("tests/auction/test_reference.py::test_long_pages_agree_with_the_reference",),
        is_compiled=True,
    ),
    Bug(
        "squashing is ignored",
        "cascade_sim/cascade/fusion.py",
        "return Fusion(pctr=squashing)",
        "return Fusion()",
        ("tests/cascade/test_fusion.py::test_ecpm_is_pctr_times_bid_and_squashing_is_its_exponent",),
    ),
    Bug(
        "every click is charged twice",
        "cascade_sim/cascade/outcome.py",
        "charges_micros=np.where(charged, decision.cpc_micros, 0),",
        "charges_micros=np.where(charged, 2 * decision.cpc_micros, 0),",
        ("tests/cascade/test_outcome.py::test_every_charge_has_a_click_and_every_click_is_charged_its_cpc",),
    ),
    Bug(
        "impressions are charged instead of clicks",
        "cascade_sim/cascade/outcome.py",
        'if charging != "click":',
        "if charging:",
        ("tests/cascade/test_outcome.py::test_every_charge_has_a_click_and_every_click_is_charged_its_cpc",),
    ),
    Bug(
        "the click draw is keyed by the slot instead of the ad",
        "cascade_sim/cascade/outcome.py",
        'draws.uniform(seed, "click", block.requests[:, None], win_set)',
        'draws.uniform(seed, "click", block.requests[:, None], np.arange(win_set.shape[1]))',
        (
            "tests/cascade/test_outcome.py::test_a_better_slot_never_loses_a_click",
            "tests/cascade/test_outcome.py::test_a_draw_depends_on_request_ad_and_seed_but_not_on_the_block",
        ),
    ),
    Bug(
        "every slot is looked at",
        "agents/users.py",
        "slot_effects[None, : true_ctr.shape[1]] * true_ctr",
        "true_ctr",
        ("tests/agents/test_users.py::test_a_click_needs_an_examined_slot_and_a_liked_ad",),
    ),
    Bug(
        "a budget can be overdrawn",
        "cascade_sim/cascade/ledger.py",
        "taken[r, k] = min(due[r, k], available[advertiser])",
        "taken[r, k] = due[r, k]",
        (
            "tests/market/test_settlement.py::"
            "test_nobody_pays_more_than_the_budget_and_the_click_that_empties_it_is_charged_in_part",
        ),
        is_compiled=True,
    ),
    Bug(
        "who has run dry goes on being shown",
        "cascade_sim/market/settlement.py",
        "if available[owner[ads[r, j]]] <= 0 or not is_in[r, j]:",
        "if not is_in[r, j]:",
        (
            "tests/market/test_settlement.py::test_an_ad_that_is_passed_over_prices_nobody",
            "tests/market/test_settlement.py::"
            "test_nobody_pays_more_than_the_budget_and_the_click_that_empties_it_is_charged_in_part",
        ),
        is_compiled=True,
    ),  # fmt: skip
    Bug(
        "yesterday's spend is forgotten",
        "cascade_sim/cascade/ledger.py",
        "self.spent_before = self.spent_before + self.spend_today()",
        "self.spent_before = self.spend_today()",
        (
            "tests/market/test_advertisers.py::"
            "test_a_ledger_begins_each_day_with_the_whole_budget_and_remembers_all_spend",
        ),
    ),
    Bug(
        "a hold that ends is not given back",
        "cascade_sim/cascade/ledger.py",
        "        np.add.at(self.available, advertiser, micros)\n",
        "",
        ("tests/market/test_late_clicks.py::test_holds_end_with_the_click_or_with_its_window",),
    ),
    Bug(
        "holds are never released",
        "cascade_sim/cascade/ledger.py",
        "        np.subtract.at(self.held, advertiser, micros)\n"
        "        np.add.at(self.available, advertiser, micros)\n",
        "        return\n",
        ("tests/market/test_late_clicks.py::test_holds_end_with_the_click_or_with_its_window",),
    ),
    Bug(
        "late clicks are charged beyond the declared slack",
        "cascade_sim/cascade/ledger.py",
        "charges[i] = max(0, min(cpc[i], limit[who] - spent[who]))",
        "charges[i] = cpc[i]",
        (
            "tests/market/test_late_clicks.py::test_without_slack_nothing_is_overspent_and_clicks_beyond_are_free",
        ),
    ),
    Bug(
        "budgets are new every hour",
        "cascade_sim/market/run.py",
        "            if self.now >= (self.day + 1) * DAY:\n",
        "            if self.now % 3600 == 0:\n"
        "                self.ledger.new_day()\n"
        "            if self.now >= (self.day + 1) * DAY:\n",
        (
            "tests/market/test_run.py::"
            "test_who_has_spent_the_budget_shows_nothing_until_midnight_and_then_again[3600.0]",
        ),
    ),
    Bug(
        "the opt-bid leaves its range",
        "cascade_sim/cascade/bids.py",
        "out[r, j] = init_bid[a] * min(max(pcvr / mean[a], low), high)",
        "out[r, j] = init_bid[a] * pcvr / mean[a]",
        (
            "tests/cascade/test_bids.py::test_the_opt_bid_stays_in_the_range_that_keeps_the_advertisers_return",
        ),
        is_compiled=True,
    ),
    Bug(
        "RCS with its two sets swapped",
        "analysis/metrics/consistency.py",
        "    hit = membership(ideal_win_set, competitive_set)\n"
        "    return divide(hit.sum(axis=1), (np.asarray(ideal_win_set) >= 0).sum(axis=1))",
        "    hit = membership(competitive_set, ideal_win_set)\n"
        "    return divide(hit.sum(axis=1), (np.asarray(competitive_set) >= 0).sum(axis=1))",
        (
            "tests/analysis/metrics/test_consistency.py::test_rcs_is_the_share_of_ideal_winners_that_reach_ranking",
        ),
    ),
    Bug(
        "PCOC upside down",
        "analysis/metrics/calibration.py",
        "value = divide(sum_lists(p, offsets), sum_lists(y, offsets))",
        "value = divide(sum_lists(y, offsets), sum_lists(p, offsets))",
        ("tests/analysis/metrics/test_calibration.py::test_pcoc_is_predicted_over_observed",),
    ),
    Bug(
        "an ECE bucket loses its lower edge",
        "analysis/metrics/kernels.py",
        "            if p >= (at + 1) / bins and at < bins - 1:\n                at += 1\n",
        "",
        ("tests/analysis/metrics/test_calibration.py::test_every_edge_falls_into_the_bucket_it_opens",),
        is_compiled=True,
    ),
    Bug(
        "over- and undercharged advertisers cancel",
        "analysis/metrics/money.py",
        "divide(np.abs(paid - paid_oracle).sum(-1), paid_oracle.sum(-1))",
        "divide(np.abs((paid - paid_oracle).sum(-1)), paid_oracle.sum(-1))",
        ("tests/analysis/metrics/test_money.py::test_payment_error_is_taken_per_advertiser",),
    ),
    Bug(
        "lifts are not paired",
        "analysis/statistics/bootstrap.py",
        "sums[:, is_own[arm]] = own[arm](counts)",
        "sums[:, is_own[arm]] = own[arm](np.roll(counts, list(columns).index(arm), axis=1))",
        (
            "tests/analysis/statistics/test_bootstrap.py::test_a_scaled_arm_has_a_certain_lift_because_resamples_are_paired",
        ),
    ),
    Bug(
        "the shadow ranks with the pre-ranker",
        "cascade_sim/cascade/request.py",
        "return replace(self, name=name, stages=(self.last,))",
        "return replace(self, name=name, stages=(self.stages[0].alone,))",
        (
            "tests/cascade/test_serve.py::"
            "test_the_shadow_lets_the_ranking_stage_choose_from_the_whole_pre_ranking_set",
        ),
    ),
    Bug(
        "clicks divided by requests",
        "analysis/metrics/catalogue.py",
        'top="clicks",\n        bottom="impressions",',
        'top="clicks",\n        bottom="requests",',
        (
            "tests/analysis/metrics/test_catalogue.py::"
            "test_a_ratio_is_its_sums_divided_with_its_factor_and_undefined_over_nothing",
        ),
    ),
    Bug(
        "every price half a percent low",
        "cascade_sim/cascade/page.py",
        "cpc_micros=to_micros(result.cpc, result.bid[:, :-1]),",
        "cpc_micros=to_micros(0.995 * result.cpc, result.bid[:, :-1]),",
        (CHECK,),
    ),
    Bug(
        "one ad too few reaches ranking",
        "cascade_sim/cascade/serve.py",
        "return select_top(ids, order, size)",
        "return select_top(ids, order, size - 1)",
        (CHECK,),
    ),
    Bug(
        "revenue counts clicks at the bid",
        "cascade_sim/environments/evaluators/truth.py",
        "shown, cpc = decision.win_set >= 0, decision.cpc_micros / MICROS",
        "shown, cpc = decision.win_set >= 0, decision.ranked_bid[:, :-1]",
        (CHECK,),
    ),
)
