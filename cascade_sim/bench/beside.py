"""What runs in another Python beside the bench: somebody else's code, timed by its own CPU time.

    python beside.py auction-gym FOLDER    the folder is the checkout
    python beside.py auction-net FOLDER
    python beside.py rax FOLDER

Only the standard library and numpy are needed beside theirs; cascade_sim is not imported. A line of JSON on
stdin asks for a round, a line of JSON on stdout answers. Nothing of theirs is copied or changed on disk.
Where a newer library lacks a name that they ask for, it is put back before their modules are imported:

    numpy.bool    auction-gym, Impression.py: annotations; numpy 1.24 to 1.26 have no such name
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Ask = dict[str, Any]
OPPORTUNITIES = 5_000  # of AuctionGym in a round
PAGE_VIEWS = 10_000  # of AuctionNet in a tick: its own 500,000 in 48 ticks


def auction_gym(folder: Path) -> Callable[[Ask], Ask]:
    """6 truthful bidders that know the CTR, 2 of them in each second-price auction for one slot."""
    import numpy as np

    if not hasattr(np, "bool"):
        setattr(np, "bool", np.bool_)  # noqa: B010 - for a type checker it is there
    sys.path.insert(0, str(folder / "src"))
    main: Any = importlib.import_module("main")
    rng, config, agent_configs, items, values, _, *sizes = main.parse_config(
        str(folder / "config" / "SP_Oracle.json")
    )
    agents = main.instantiate_agents(rng, agent_configs, values, items)
    auction, *_ = main.instantiate_auction(rng, config, items, values, agents, *sizes)

    def round_of(ask: Ask) -> Ask:
        started = time.process_time()
        for _ in range(OPPORTUNITIES):
            auction.simulate_opportunity()
        taken = time.process_time() - started
        for agent in agents:
            agent.clear_logs()
        return {"bids": OPPORTUNITIES * config["num_participants_per_round"], "seconds": taken}

    return round_of


def auction_net(folder: Path) -> Callable[[Ask], Ask]:
    """Its environment alone: bids and values of 48 advertisers are there from the beginning, no log."""
    import numpy as np

    sys.path.insert(0, str(folder))
    environment: Any = importlib.import_module("simul_bidding_env.Environment.BiddingEnv")
    env = environment.BiddingEnv()
    env.reset(episode=0)
    generator = np.random.default_rng(1)
    shape = (PAGE_VIEWS, env.NUM_ADVERTISERS)
    values = generator.lognormal(np.log(0.0005), 0.5, shape)
    sigmas, bids = values * 0.15, values * generator.uniform(50, 150, shape)

    def round_of(ask: Ask) -> Ask:
        started = time.process_time()
        env.simulate_ad_bidding(values, sigmas, bids)
        return {"bids": values.size, "seconds": time.process_time() - started}

    return round_of


PEERS: dict[str, Callable[[Path], Callable[[Ask], Ask]]] = {
    "auction-gym": auction_gym,
    "auction-net": auction_net,
}


def main() -> None:
    name, folder = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr  # theirs may print
    round_of = PEERS[name](Path(folder))
    for line in sys.stdin:
        answers.write(json.dumps(round_of(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
