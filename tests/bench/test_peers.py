"""The peers' modes are whole scenarios of the peers' size, and a peer runs in a process of its own."""

import json
import sys
from dataclasses import replace

import pytest

from answers.told import refused
from cascade_sim.bench import Spread, end_to_end, peers
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cli import main
from cascade_sim.storage.tables import read_table


@pytest.mark.parametrize("mode", peers.MODES.values(), ids=list(peers.MODES))
def test_every_bidder_that_is_found_takes_part_in_the_auction(mode):
    sim, arm = end_to_end.ready(mode.scenario())
    block = sim.arrivals.block("bench", 0, 500)
    decision = sim.serve(block, arm)
    assert decision.competitive_set.shape == (500, mode.bidders)
    assert (decision.competitive_set >= 0).all() and sim.world.n_ads == mode.of
    assert decision.win_set.shape == (500, mode.slots) and (decision.win_set >= 0).all()
    assert (decision.cpc_micros > 0).all()


def test_what_is_timed_writes_clicks_and_charges_to_the_log(tmp_path, monkeypatch):
    sim, arm = end_to_end.ready(peers.MODES["auction-net"].scenario())
    monkeypatch.setattr(end_to_end.tempfile, "TemporaryDirectory", lambda: Kept(tmp_path))
    end_to_end.serving(sim, arm, 2000, rate=0.0)
    shown = read_table(tmp_path, "bench")
    requests = read_table(tmp_path, "bench-requests")["request"]
    assert len(shown["request"]) == 3 * 2000 and len(requests) == 2000
    assert shown["click"].any() and (shown["charge_micros"][shown["click"]] > 0).all()


class Kept:
    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        return str(self.folder)

    def __exit__(self, *error):
        pass


@pytest.fixture
def auction_net(tmp_path):
    """A checkout with an environment of that name and call, and nothing else of theirs."""
    folder = tmp_path / "net" / "simul_bidding_env" / "Environment"
    folder.mkdir(parents=True)
    (folder / "BiddingEnv.py").write_text(
        "class BiddingEnv:\n"
        "    NUM_ADVERTISERS = 48\n"
        "    def reset(self, episode):\n"
        "        print('theirs may print')\n"
        "    def simulate_ad_bidding(self, values, sigmas, bids):\n"
        "        assert values.shape == sigmas.shape == bids.shape\n"
        "        (values * bids).sum()\n"
    )
    return tmp_path / "net"


def test_a_peer_answers_with_bids_and_its_own_seconds(auction_net):
    with peers.Peer("auction-net", auction_net, peers.Path(sys.executable)) as peer:
        assert peer.ask()["bids"] == 48 * 10_000 and peer.rate() > 0


def test_ours_and_theirs_take_turns_and_the_ratio_is_of_the_medians(auction_net):
    python = peers.Path(sys.executable)
    gym, net = peers.bench_peers({"auction-net": auction_net}, python, n_auctions=4096, repeats=2)
    assert gym["theirs"] is None and gym["times"] is None and gym["ours"].median > 0
    assert net["times"] == net["ours"].median / net["theirs"].median
    text = peers.peers_text([gym, net])
    assert "2 of 6 bidders, 1 slot" in text and "48 bidders, 3 slots" in text and peers.HOW in text


def test_a_peer_that_stops_says_why(auction_net, tmp_path):
    (auction_net / "simul_bidding_env" / "Environment" / "BiddingEnv.py").write_text("import not_there\n")
    with refused("auction-net", "not_there", kind=peers.UserError):
        peers.Peer("auction-net", auction_net, peers.Path(sys.executable))
    with refused(tmp_path / "gone", kind=peers.UserError):
        peers.Peer("auction-net", tmp_path / "gone", peers.Path(sys.executable))
    with refused(tmp_path / "python", kind=peers.UserError):
        peers.Peer("auction-net", auction_net, tmp_path / "python")


def test_the_command_prints_text_or_json(monkeypatch, capsys):
    spread = Spread.of([1.0, 2.0])
    row = {"peer": "auction-gym", "mode": "2 of 6", "ours": spread, "theirs": spread, "times": 1.0}
    row["unlogged"] = spread
    monkeypatch.setattr(peers, "bench_peers", lambda checkouts, python: [row])
    assert main(["bench", "peers", "--quiet"]) == 0
    assert "1.0 x" in capsys.readouterr().out
    assert main(["bench", "peers", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["ours"]["median"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["auction", "--auction-gym", "x"], "--auction-gym is for `bench peers`"),
        (["peers", "--auction-net", "x"], "needs --peer-python"),
        (["peers", "--rax", "x", "--peer-python", "x"], "--rax is for `bench losses`"),
        (["peers", "--peer-python", "x"], "needs --auction-gym or --auction-net"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, words, capsys):
    assert main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_where_nothing_is_chosen_the_bids_are_asked_for_once(monkeypatch):
    sim, arm = end_to_end.ready(peers.MODES["auction-net"].scenario())
    block = replace(
        sim.arrivals.block("bench", 0, 50), memo=BlockCache()
    )  # who has one is not served in one pass
    asked, bid = [], sim.platform.bids.bid
    monkeypatch.setattr(sim.platform.bids, "bid", lambda *given: asked.append(given[0]) or bid(*given))
    decision = sim.serve(block, arm)
    assert asked == ["init"]
    assert (decision.ranked_bid == sim.world.init_bid[decision.ranked_set]).all()
