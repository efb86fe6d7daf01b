"""What runs in another Python beside the bench: another project's code, timed by its own CPU time.

    python beside.py auction-gym FOLDER    the folder is the checkout
    python beside.py auction-net FOLDER
    python beside.py rax FOLDER            jax on one thread

Only the standard library and numpy are needed beside theirs; cascade_sim is not imported. A line of JSON on
stdin asks for a round, a line of JSON on stdout answers. Nothing of theirs is copied or changed on disk.
Where a newer library lacks a name that they ask for, it is put back before their modules are imported:

    numpy.bool    auction-gym, Impression.py: annotations; numpy 1.24 to 1.26 have no such name
"""

import importlib
import json
import os
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


def rax(folder: Path) -> Callable[[Ask], Ask]:
    """Value and gradient of a loss of padded rows, compiled by jax: {"loss", "scores", "labels", "sizes"}.

    An ask without a loss repeats the last one, "calls" times. Losses that rax has no name for are its
    softmax loss on what makes them one: with a virtual item, or of log sigmoids with labels that sum to 1.
    Its pairwise loss is a mean over pairs, ours a sum.
    """
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    sys.path.insert(0, str(folder))
    jax: Any = importlib.import_module("jax")
    theirs: Any = importlib.import_module("rax")
    jnp = jax.numpy

    def softmax(s: Any, y: Any, where: Any) -> Any:
        return theirs.softmax_loss(s, y, where=where)

    def calibrated_softmax(s: Any, y: Any, where: Any) -> Any:
        zero = jnp.zeros_like(s[:, :1])
        joined = [jnp.concatenate(both, 1) for both in ((s, zero), (y, zero + 1), (where, zero == 0))]
        return softmax(*joined)

    def list_ce(s: Any, y: Any, where: Any) -> Any:
        total = jnp.sum(y * where, 1, keepdims=True)
        return softmax(jax.nn.log_sigmoid(s), y / jnp.where(total > 0, total, 1), where)

    def ranknet(s: Any, y: Any, where: Any) -> Any:
        return theirs.pairwise_logistic_loss(s, y, where=where)

    def approx_ndcg(s: Any, y: Any, where: Any) -> Any:
        return theirs.approx_t12n(theirs.ndcg_metric, 0.1)(s, y, where=where)

    losses = {
        loss.__name__: jax.jit(jax.value_and_grad(loss))
        for loss in (softmax, calibrated_softmax, list_ce, ranknet, approx_ndcg)
    }
    last: list[Any] = []

    def round_of(ask: Ask) -> Ask:
        if "loss" in ask:
            scores, labels = (jnp.asarray(ask[name], jnp.float32) for name in ("scores", "labels"))
            where = jnp.arange(scores.shape[1])[None, :] < jnp.asarray(ask["sizes"])[:, None]
            last[:] = [losses[ask["loss"]], scores, labels, where]
            jax.block_until_ready(last[0](*last[1:]))  # compiles
        if not last:
            return {}
        calls = ask.get("calls", 1)
        started = time.process_time()
        for _ in range(calls):
            value, _ = jax.block_until_ready(last[0](*last[1:]))
        return {"seconds": (time.process_time() - started) / calls, "value": float(value)}

    return round_of


PEERS: dict[str, Callable[[Path], Callable[[Ask], Ask]]] = {
    "auction-gym": auction_gym,
    "auction-net": auction_net,
    "rax": rax,
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
