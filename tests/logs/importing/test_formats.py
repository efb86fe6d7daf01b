"""Formats known by name, on samples as each format's own description defines them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from answers.told import refused
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.importing.formats import FORMATS, adapter
from cascade_sim.logs.importing.formats.auction_net import COLUMNS as AUCTION_NET
from cascade_sim.logs.importing.formats.rec_flow import COLUMNS as REC_FLOW
from cascade_sim.logs.importing.market import import_format, import_market

# Example 1 of AuctionNet's readme_dataset.md: one opportunity, the top five of its advertisers.
OPPORTUNITY = """\
1,31,2,6500.00,27.00,5,5962.49,101000,0.0103542,0.0021549,0.2845,1,1,0.2702,1,0,0.1832,0
1,22,6,7000.00,38.00,5,5988.25,101000,0.0070297,0.0005213,0.2702,1,2,0.2154,1,1,0.1832,0
1,15,7,7000.00,42.00,5,6132.52,101000,0.0051392,0.0004312,0.2154,1,3,0.1832,0,0,0.1832,0
1,39,3,6000.00,30.00,5,5443.27,101000,0.0062134,0.0007254,0.1832,0,0,0,0,0,0.1832,0
1,43,9,7500.00,25.00,5,6421.81,101000,0.0045392,0.0006215,0.1099,0,0,0,0,0,0.1832,0
"""


def rows_of(store, r, columns):
    """{ad: values} of one request."""
    found = store.candidates(r, r + 1, ("ad", *columns))
    return {
        store.name("ads", ad): tuple(found[name][i].item() for name in columns)
        for i, ad in enumerate(found["ad"])
    }


def test_auction_net_by_its_own_example(tmp_path):
    second = OPPORTUNITY.replace(",101000,", ",101001,").replace(",0.1832,1,3,", ",0.1832,1,3,")
    (tmp_path / "period-1.csv").write_text(",".join(AUCTION_NET) + "\n" + OPPORTUNITY + second)
    store = import_format("auction-net", [tmp_path / "period-1.csv"], tmp_path / "market").store
    assert (store.n_requests, store.n_candidates, store.about.slots) == (2, 10, 3)
    assert store.names("requests") == ["1/5/101000", "1/5/101001"]
    assert store.requests["time"].tolist() == [5 * 1800.0] * 2  # step 5 of 48 a day
    assert (store.about.charging, store.about.level) == ("impression", "bids")
    found = rows_of(store, 0, ("bid", "pctr", "slot", "price_micros", "exposed", "click"))
    assert found == {
        "31": (0.2845, 0.0103542, 0, 270_200, 1, 0),
        "22": (0.2702, 0.0070297, 1, 215_400, 1, 1),
        "15": (0.2154, 0.0051392, 2, 183_200, 0, 0),  # won the third slot, which was not exposed
        "39": (0.1832, 0.0062134, -1, -1, -1, -1),
        "43": (0.1099, 0.0045392, -1, -1, -1, -1),
    }
    budgets = dict(
        zip(store.budgets["advertiser"].tolist(), store.budgets["budget_micros"].tolist(), strict=True)
    )
    assert budgets[store.code("advertisers", "31")] == 6_500_000_000
    assert set(store.budgets["day"].tolist()) == {0}  # the log begins with period 1
    assert store.has("feature.p_value_sigma", "feature.category", "feature.cpa_constraint")


def test_auction_net_pays_nothing_for_what_is_not_exposed(tmp_path):
    hidden = OPPORTUNITY.replace("1,2,0.2154,1,1", "1,2,0,0,0")  # example 2 has such a row: slot won, cost 0
    (tmp_path / "period-1.csv").write_text(",".join(AUCTION_NET) + "\n" + hidden)
    store = import_format("auction-net", [tmp_path / "period-1.csv"], tmp_path / "market").store
    assert rows_of(store, 0, ("slot", "price_micros", "exposed", "click"))["22"] == (1, -1, 0, 0)


def test_auction_net_counts_opportunities_of_each_step_anew(tmp_path):
    """Its own environment numbers them from 0 in every step."""
    later = "\n".join(
        ",".join([*(cells := line.split(","))[:5], "6", *cells[6:]]) for line in OPPORTUNITY.splitlines()
    )
    (tmp_path / "period-1.csv").write_text(",".join(AUCTION_NET) + "\n" + OPPORTUNITY + later + "\n")
    store = import_format("auction-net", [tmp_path / "period-1.csv"], tmp_path / "market").store
    assert store.names("requests") == ["1/5/101000", "1/6/101000"]


def test_open_bandit_slates_are_drawn(tmp_path):
    head = "timestamp,item_id,position,click,{},user_feature_0,user_feature_1,user-item_affinity_0\n"
    rows = (
        "2019-11-24 00:00:12.350000+00:00,41,1,0,0.0125,81ce,d4b2,0.0\n"
        "2019-11-24 00:00:12.350000+00:00,5,3,1,0.025,81ce,d4b2,1.0\n"
        "2019-11-24 00:00:15.520000+00:00,41,2,0,0.0125,0000,d4b2,0.0\n"
    )
    markets = {}
    for name in ("propensity_score", "action_prob"):  # as the data and as their description call it
        (tmp_path / f"{name}.csv").write_text(head.format(name) + rows)
        markets[name] = import_format("open-bandit", [tmp_path / f"{name}.csv"], tmp_path / f"m-{name}").store
    store = markets["action_prob"]
    assert (store.n_requests, store.n_ads, store.about.slots) == (3, 2, 3)
    assert (store.about.level, store.about.is_randomised) == ("winners", True)
    found = store.candidates(0, 3, ("slot", "click", "propensity", "bid"))
    rows = sorted(zip(*(found[name].tolist() for name in ("slot", "click", "propensity")), strict=True))
    assert rows == [(0, 0, 0.0125), (1, 0, 0.0125), (2, 1, 0.025)]
    assert np.isnan(found["bid"]).all()
    assert store.about.counts.segments == 2
    assert store.about.starts == "2019-11-24T00:00:00+09:00"
    np.testing.assert_array_equal(
        markets["propensity_score"].candidates(0, 3, ("propensity",))["propensity"], found["propensity"]
    )


def test_open_bandit_without_propensities_is_refused(tmp_path):
    (tmp_path / "all.csv").write_text("timestamp,item_id,position,click\n2019-11-24 00:00:12+00:00,41,1,0\n")
    with pytest.raises(UserError, match="no column propensity_score or action_prob"):
        import_format("open-bandit", [tmp_path / "all.csv"], tmp_path / "market")


STREAM = [
    {"ts": 1772540000123, "id": "r1", "at": 2, "imp": [{"id": "1", "bidfloor": 0.5, "tagid": "top"},
                                                        {"id": "2", "tagid": "side"}], "user": {"id": "u7"}},
    {"id": "r1", "cur": "USD", "seatbid": [{"seat": "512", "bid": [
        {"id": "b1", "impid": "1", "price": 2.1, "crid": "c9", "adomain": ["shoes.example"]},
        {"id": "b2", "impid": "2", "price": 0.8, "crid": "c9"}]}]},
    {"id": "r1", "cur": "USD", "seatbid": [{"seat": "77", "bid": [
        {"id": "x1", "impid": "1", "price": 1.35, "adid": "314"}]}]},
    {"id": "r1", "impid": "1", "bidid": "b1", "price": 1.35, "click": 1},
    {"id": "r1", "impid": "2", "bidid": "b2", "price": 0.01, "click": 0},
]  # fmt: skip


def write_stream(path, lines):
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def test_open_rtb_each_imp_is_an_auction_in_cpm(tmp_path):
    store = import_format(
        "open-rtb", [write_stream(tmp_path / "bids.jsonl", STREAM)], tmp_path / "market"
    ).store
    assert store.names("requests") == ["r1/1", "r1/2"]
    assert (store.about.charging, store.about.level, store.about.slots) == ("impression", "bids", 1)
    assert store.requests["reserve"].tolist() == [0.0005, 0.0]
    assert rows_of(store, 0, ("bid", "slot", "price_micros", "click")) == {
        "512:c9": (2.1 / 1000, 0, 1350, 1),
        "77:314": (1.35 / 1000, -1, -1, -1),
    }
    assert rows_of(store, 1, ("bid", "slot", "price_micros", "click")) == {"512:c9": (0.8 / 1000, 0, 10, 0)}
    assert store.name("users", store.requests["user"][0]) == "u7"
    assert store.name("placements", store.requests["placement"][1]) == "side"
    assert store.name("advertisers", store.advertiser[store.code("ads", "77:314")]) == "77"


@pytest.mark.parametrize("change, words", [
    (lambda lines: [*lines, {"id": "r9", "impid": "1", "bidid": "b1", "price": 1}], "unknown_request"),
    (lambda lines: [*lines, {**lines[3], "bidid": "b7"}], "outcome_without_candidate"),
    (lambda lines: [*lines[:3], {**lines[3], "price": 9}, lines[4]], "price_above_bid"),
    (lambda lines: [{**lines[0], "ts": None}, *lines[1:]], "missing_value"),
    (lambda lines: [{**lines[0], "ts": "noon"}, *lines[1:]], "wrong_type"),
    (lambda lines: [{"id": "r1", "imp": ["1"]}, *lines[1:]], "row 1: imp, seatbid bid"),
])  # fmt: skip
def test_an_open_rtb_stream_with_a_fault_is_refused(tmp_path, change, words):
    with refused(*words.split()):
        import_format(
            "open-rtb", [write_stream(tmp_path / "bids.jsonl", change(STREAM))], tmp_path / "market"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["bids.jsonl"]


def test_a_line_of_a_stream_that_is_no_json_is_named(tmp_path):
    path = write_stream(tmp_path / "bids.jsonl", STREAM)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UserError, match=r"bids\.jsonl row 5: not JSON"):
        import_format("open-rtb", [path], tmp_path / "market")


def test_rec_flow_stage_labels(tmp_path):
    labels = {  # the furthest stage of each video, and its place in the reranked list
        101: ("realshow rerank_pos rank_pos", 3), 102: ("realshow rerank_pos rank_neg", 0),
        103: ("rerank_neg rank_neg", 11), 104: ("rank_neg", -1),
        105: ("coarse_neg", -1), 106: ("prerank_neg", -1),
    }  # fmt: skip
    table = {name: [] for name in REC_FLOW}
    for video, (stages, place) in labels.items():
        row = {
            "request_id": 9, "request_timestamp": 1705104000123, "user_id": 4, "video_id": video,
            "author_id": video % 2, "duration": 15000, "rerank_index": place, "effective_view": video == 101,
        }  # fmt: skip
        for name in REC_FLOW:
            table[name].append(int(row.get(name, name in stages.split())))
    pa.feather.write_feather(pa.table(table), tmp_path / "2024-01-13.feather")
    store = import_format("rec-flow", [tmp_path / "2024-01-13.feather"], tmp_path / "market").store
    assert rows_of(store, 0, ("stage", "slot", "click")) == {
        "101": (2, 1, 1), "102": (2, 0, 0),  # in the order of the reranked list, without gaps
        "103": (1, -1, -1), "104": (1, -1, -1), "105": (0, -1, -1), "106": (0, -1, -1),
    }  # fmt: skip
    assert store.about.level == "winners"  # nobody bids
    assert store.about.starts == "2024-01-13T00:00:00+08:00"
    assert store.requests["time"][0] == pytest.approx(8 * 3600 + 0.123)


def test_an_unlabelled_video_is_named(tmp_path):
    row = {"request_id": 9, "request_timestamp": 1705104000, "video_id": 1, "rerank_index": -1}
    table = pa.table({name: [row.get(name, 0)] for name in REC_FLOW})
    pa.feather.write_feather(table, tmp_path / "day.feather")
    with refused("unknown_value", "day.feather row 1", "stage: 'unlabelled'"):
        import_format("rec-flow", [tmp_path / "day.feather"], tmp_path / "market")


def test_an_unknown_format_is_refused_with_those_that_are_known(tmp_path):
    with refused("'auctionnet'", "'auction-net'?"):
        import_format("auctionnet", [tmp_path / "x.csv"], tmp_path / "market")


@pytest.mark.parametrize("name", FORMATS)
def test_a_market_says_by_which_mapping_it_was_made(tmp_path, name):
    assert adapter(name).name == name
    assert adapter(name).mapping([])["format"] == name


def test_the_mapping_of_a_market_makes_it_again(tmp_path):
    path = write_stream(tmp_path / "bids.jsonl", STREAM)
    first = import_format("open-rtb", [path], tmp_path / "market").store
    again = import_market(tmp_path / "market" / "mapping.yaml", tmp_path / "again").store
    assert again.about == first.about
