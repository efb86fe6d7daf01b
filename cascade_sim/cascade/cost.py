"""What a scorer or a retriever costs: FLOPs and bytes of a request, of a candidate and of an ad.

They say it themselves (`protocols.Cost`). Counted is what the formulas need, without the
filling of lanes: FLOPs with a multiply-add as two, and the rows of users and ads that are read. Weights stay
in the nearest cache and count as nothing, as do selection, fusion, hashes and the auction.

>>> exact_search(1000, 16).request_flops
32000.0
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cascade_sim.protocols import Cost

FLOAT_BYTES = ID_BYTES = 4
SIGMOID_FLOPS = 20  # a float32 exponential (8 multiply-adds and 2 for its range), one addition, one division
COUNTED_AT = (8, 16, 24)  # candidates at which a custom net is counted


def exact_search(n_ads: int, width: int, *, is_kept: bool = False) -> Cost:
    """The inner product with every ad."""
    return Cost(2.0 * n_ads * width, FLOAT_BYTES * width * (n_ads + 1.0), is_kept=is_kept)


def listed_search(n_ads: int, width: int, lists: int, probes: int, *, is_kept: bool = False) -> Cost:
    """The inner product with the centre of every list, and with the ads of the lists that are looked into.

    These hold their share of the corpus, as if all lists had one length.
    """
    met = lists + n_ads * min(probes / lists, 1.0)
    return Cost(2.0 * width * met, FLOAT_BYTES * width * (met + 1.0), is_kept=is_kept)


def layers_flops(*modules: Any) -> float:
    """FLOPs of linear layers on one row: a multiply-add for every weight."""
    return 2.0 * sum(p.numel() for module in modules for p in module.parameters())


def row_bytes(width: float) -> float:
    """Bytes of a candidate: its id, and so many numbers of its ad."""
    return FLOAT_BYTES * width + ID_BYTES


def cost_of(part: Any, *arguments: Any) -> Cost | None:
    """What a scorer, or a retriever of so many candidates, says that it costs; None: it does not say."""
    said = getattr(part, "cost", None)
    said = said(*arguments) if callable(said) else said
    return said if isinstance(said, Cost) else None


def added(costs: Iterable[Cost | None]) -> Cost | None:
    """Of several parts one after the other; None if one is not known. Kept if all are."""
    total: Cost | None = None
    for cost in costs:
        if cost is None:
            return None
        total = cost if total is None else total + cost
    return total


def counted_cost(module: Any, request_width: int, ads: Any, pair_width: int, seen_ads: Any) -> Cost | None:
    """The cost of any torch module, from the operations that it runs for a few candidates.

    Matrix products by their formula, a FLOP for each number that another operation gives or sums up. None
    where the operations do not grow evenly with the candidates, as when a list is looked at as a whole, or
    the module fails. `ads` are rows that it is given, `seen_ads` those that `encode_ads` makes them of.
    """
    import torch

    def of(n: int) -> float:
        rows = torch.arange(n) % len(ads)
        return _flops(module, torch.zeros(1, request_width), ads[rows][None], torch.zeros(1, n, pair_width))

    try:
        few, more, most = (of(n) for n in COUNTED_AT)
        encode = getattr(module, "encode_ads", None)
        encoded = 0.0 if encode is None else _flops(encode, seen_ads[torch.arange(8) % len(seen_ads)]) / 8
    except Exception:  # its own words come when it serves
        return None
    pair = (more - few) / (COUNTED_AT[1] - COUNTED_AT[0])
    if most - more != more - few:
        return None
    request_flops = few - pair * COUNTED_AT[0]
    pair_bytes = row_bytes(ads.shape[-1])
    return Cost(request_flops, FLOAT_BYTES * request_width, pair + SIGMOID_FLOPS, pair_bytes, encoded)


def _flops(call: Any, *inputs: Any) -> float:
    """FLOPs of the operations of one call."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    counted = []

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            numbers = out.numel() if isinstance(out, torch.Tensor) else 0
            formula = flop_registry.get(func.overloadpacket)
            if formula is not None:
                counted.append(formula(*args, **(kwargs or {}), out_val=out))
            if func.overloadpacket is torch.ops.aten.addmm or torch.Tag.pointwise in func.tags:
                counted.append(numbers)
            elif torch.Tag.reduction in func.tags:
                counted.append(args[0].numel())
            return out

    with torch.random.fork_rng(devices=[]), torch.no_grad(), Counter():
        call(*inputs)
    return float(sum(counted))
