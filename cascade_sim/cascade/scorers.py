"""Scorers for the pre-ranking and ranking stages.

A scorer turns (block, ad ids [R, m]) into predictions [R, m]. Built-in nets run in fused kernels
with the ad side computed once; any other torch module runs batched; three need no training:
`random` (keyed noise), `constant` (1, so that the bid decides) and `truth` (the oracle).
"""

from functools import cached_property

import numpy as np

from cascade_sim.cascade.cache import of_pairs
from cascade_sim.cascade.cost import FLOAT_BYTES, SIGMOID_FLOPS, counted_cost, layers_flops, row_bytes
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import (
    coaction_scores,
    dot_scores,
    hinge_scores,
    is_finite,
    pad_lanes,
    sigmoid_inplace,
    tiled,
)
from cascade_sim.foundation.limits import LANES
from cascade_sim.foundation.net_kernels import cold_scores, inttower_scores
from cascade_sim.protocols import Cost, Scorer
from cascade_sim.scenario.plugins import errors_of

BUILT_IN = ("random", "constant", "truth")
ORDERS = ("exp", "none")  # links whose predictions are no probabilities


def is_probability(scorer: Scorer) -> bool:
    """Whether predictions are probabilities, which may be priced and compared with clicks."""
    return scorer.link not in ORDERS


class RandomScorer:
    name, link, by_pair = "random", "none", True
    cost = Cost()

    def __init__(self, seed: int):
        self._seed = seed

    def predict(self, block, ids):
        return draws.uniform(self._seed, "random seat", block.requests[:, None], ids)


class ConstantScorer:
    name, link, by_pair = "constant", "none", True
    cost = Cost()

    def predict(self, block, ids):
        return np.ones(ids.shape, np.float32)


@of_pairs(lambda truth: True)
def true_ctr(block, ids, truth):
    """The true CTR of these candidates, for any arm.  [R, m]"""
    return truth.ctr(block, ids)


class TruthScorer:
    name, link, by_pair = "truth", "sigmoid", True

    def __init__(self, truth):
        self._truth = truth

    def predict(self, block, ids):
        return true_ctr(block, ids, self._truth)


class KnowableScorer:
    """The CTR as far as features tell it: what the best model of them could predict."""

    name, link, by_pair = "knowable", "sigmoid", True

    def __init__(self, world):
        self._world = world

    def predict(self, block, ids):
        return np.where(ids >= 0, self._world.ctr_without_noise(block, ids), 0.0)


class ModelScorer:
    """Shared by all trained models: applies the link and refuses what is not a number.

    `view` are the features that the model names; `seen`, in the scorers of nets, those and the rows of the
    net's embedding tables.
    """

    by_pair = False

    def __init__(self, name: str, view, link: str):
        self.name, self.link, self.view = name, link, view

    def logit(self, block, ids: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def predict(self, block, ids):
        logit = self.checked_logit(block, ids)
        if self.link == "exp":
            return np.exp(np.clip(logit, -60.0, 60.0))
        return sigmoid_inplace(logit)

    def log_odds(self, block, ids: np.ndarray) -> np.ndarray:
        """What a student imitates: the logit of the prediction."""
        return self.checked_logit(block, ids)

    def checked_logit(self, block, ids: np.ndarray) -> np.ndarray:
        """The logits, or a UserError that names the model, the request and the ad."""
        logit = self.logit(block, ids)
        self._refuse_bad(logit, block, ids)
        return logit

    def _refuse_bad(self, logit, block, ids):
        if logit.shape != ids.shape:
            raise UserError(
                f"model {self.name!r} returned shape {logit.shape} for candidates of shape {ids.shape}"
            )
        if not (is_finite(logit) if logit.dtype == np.float32 else np.isfinite(logit).all()):
            row, column = np.argwhere(~np.isfinite(logit))[0]
            raise UserError(
                f"model {self.name!r} predicted {logit[row, column]} for request "
                f"{block.requests[row]}, ad {ids[row, column]}"
            )


class TowersScorer(ModelScorer):
    """TwoTowers in a fused kernel: one dot product a pair."""

    by_pair = True

    def __init__(self, name, view, link, module):
        import torch

        super().__init__(name, view, link)
        self.module, self.seen = module, _seen(view, module)
        with torch.no_grad():
            code = module.ad_code(torch.from_numpy(self.seen.ad_table)).numpy()
        self.ad_code, self._width = pad_lanes(code), code.shape[1]

    @property
    def cost(self) -> Cost:
        net, width = self.module, self._width
        return _sided_cost(net, 2 * width, width, of_request=[net.request_tower], of_ad=[net.ad_tower])

    @cached_property
    def tiles(self) -> np.ndarray:
        """The codes of all ads, eight side by side, for scorers of all ads."""
        return tiled(self.ad_code[:, : self._width])

    def request_code(self, block) -> np.ndarray:
        import torch

        with torch.no_grad():
            request = torch.from_numpy(self.seen.request_features(block.users, block.context))
            return pad_lanes(self.module.request_code(request).numpy())

    def logit(self, block, ids):
        return dot_scores(self.request_code(block), self.ad_code, ids)


class PairFeature:
    """The pair feature of a view, the hinge of the mismatch, in a fused kernel; 0 where it is not seen."""

    def __init__(self, view):
        self.dims, self._threshold = 0, view.pair_threshold
        if view.pair_width:
            self.dims = view.pair_user.shape[1]
            self._user, self._ad = pad_lanes(view.pair_user), pad_lanes(view.pair_ad)

    def of(self, block, ids: np.ndarray) -> np.ndarray:
        """[R, m] float32"""
        if not self.dims:
            return np.zeros(ids.shape, np.float32)
        return hinge_scores(self._user[block.users], self._ad, ids, self._threshold)


class CoActionScorer(ModelScorer):
    """CoAction in a fused kernel: the ad's matrix and hidden terms are kept per ad."""

    by_pair = True

    def __init__(self, name, view, link, module):
        import torch

        super().__init__(name, view, link)
        self.module, self.seen = module, _seen(view, module)
        with torch.no_grad():
            ads = torch.from_numpy(self.seen.ad_table)
            self._ad_matrix = np.ascontiguousarray(module.matrix(ads).numpy())
            self._ad_hidden = pad_lanes(module.ad_hidden(ads).numpy())
            hidden = module.out.shape[0]
            if hidden % 8:
                raise UserError(
                    f"model {name!r}: hidden must be a multiple of 8 for kind coaction, not {hidden}"
                )
            self._ad_hidden[:, hidden] += float(module.bias)
            self._mix = pad_lanes(module.mix.weight.T.numpy())
            pair = module.pair.numpy()
            self._pair_weight = pad_lanes(pair[0] if len(pair) else np.zeros(hidden + 1, np.float32))
            self._out = module.out.numpy()[None, :].copy()
        self._pairs = PairFeature(view)

    @property
    def cost(self) -> Cost:
        net, hidden, pair = self.module, self.module.hidden + 1, self._pairs.dims
        matrix = net.dims * net.UNITS
        flops = 2 * matrix + 2 * net.UNITS * hidden + 2 * hidden + 2 * net.hidden
        flops += 2 * pair + 2 * hidden if pair else 0
        of_request, of_ad = [net.project, net.request_hidden], [net.ad_matrix, net.ad_hidden]
        return _sided_cost(net, flops, matrix + hidden + pair, of_request=of_request, of_ad=of_ad)

    def request_code(self, block):
        import torch

        with torch.no_grad():
            request = torch.from_numpy(self.seen.request_features(block.users, block.context))
            return (
                self.module.project(request).numpy(),
                pad_lanes(self.module.request_hidden(request).numpy()),
            )

    def logit(self, block, ids):
        request_in, request_hidden = self.request_code(block)
        return coaction_scores(
            request_in, request_hidden, self._ad_matrix, self._ad_hidden,
            self._mix, self._pair_weight, self._out, self._pairs.of(block, ids), ids,
        )  # fmt: skip


class InterTowersScorer(ModelScorer):
    """InterTowers in a fused kernel: the codes of both sides meet, and the best of each counts."""

    by_pair = True

    def __init__(self, name, view, link, module):
        import torch

        super().__init__(name, view, link)
        self.module, self.seen = module, _seen(view, module)
        assert len(module.out) == LANES, "the layers and heads of the request are the lanes of the kernel"
        with torch.no_grad():
            ads = torch.from_numpy(self.seen.ad_table)
            codes = module.ad_code(ads).transpose(1, 2).flatten(1)  # number by number, all heads
            line = module.ad_line(ads) + module.bias
            self._ad_rows = torch.cat([codes, line], dim=1).contiguous().numpy()
            self._out = module.out.numpy().copy()

    @property
    def cost(self) -> Cost:
        net = self.module
        met = net.LAYERS * net.CODES
        flops = 2 * met * net.CODES * net.dims + met * (net.CODES - 1) + 2 * met + 2
        of_request = [net.request_layers, net.request_codes, net.request_line]
        of_ad = [net.ad_layers, net.ad_codes, net.ad_line]
        return _sided_cost(net, flops, net.CODES * net.dims + 1, of_request=of_request, of_ad=of_ad)

    def request_code(self, block):
        import torch

        with torch.no_grad():
            request = torch.from_numpy(self.seen.request_features(block.users, block.context))
            codes = self.module.request_code(request).transpose(1, 2).contiguous()
            return codes.numpy(), self.module.request_line(request)[:, 0].contiguous().numpy()

    def logit(self, block, ids):
        codes, line = self.request_code(block)
        return inttower_scores(codes, line, self._ad_rows, self._out, ids)


class GatedScorer(ModelScorer):
    """GatedNet in a fused kernel: crosses, gates and the hidden layer of each pair."""

    by_pair = True

    def __init__(self, name, view, link, module):
        import torch

        super().__init__(name, view, link)
        self.module, self.seen = module, _seen(view, module)
        with torch.no_grad():
            ads = torch.from_numpy(self.seen.ad_table)
            self._ad_rows = np.hstack(
                [
                    pad_lanes(module.ad_cross(ads).numpy()),
                    self._columns(module.ad_gate(ads), module.ad_hidden(ads)),
                ]
            )
            self._cross = self._columns(module.cross_gate.weight.T, module.cross_hidden.weight.T)
            self._cross = np.pad(self._cross, ((0, -len(self._cross) % LANES), (0, 0)))
            nothing = torch.zeros(1, module.GROUPS)
            self._shift = self._columns(nothing, module.shift)[0]
            self._shift[module.GROUPS] += float(module.bias)
            weights = self._columns(module.pair_gate, module.pair)
            self._pair_weight = weights[0] if len(weights) else np.zeros_like(self._shift)
            self._out = pad_lanes(module.out.numpy())
        self._pairs = PairFeature(view)

    @property
    def cost(self) -> Cost:
        net, hidden, pair = self.module, self.module.hidden + 1, self._pairs.dims
        groups = net.GROUPS if pair else net.GROUPS - 1
        gates = groups * (2 * net.dims + 2 + SIGMOID_FLOPS) + (2 * groups if pair else 0)
        flops = net.dims + gates + hidden * (2 * net.dims + 2 * groups) + 2 * net.hidden + 2 * pair
        of_request = [net.request_cross, net.request_gate, net.request_hidden]
        of_ad = [net.ad_cross, net.ad_gate, net.ad_hidden]
        width = net.dims + groups + hidden + pair
        return _sided_cost(net, flops, width, of_request=of_request, of_ad=of_ad)

    def _columns(self, gates, hidden) -> np.ndarray:
        """Gates and line, then hidden units, each filled up to lanes.  [m, 4], [m, H + 1] -> [m, 8 + H]"""
        gates, hidden = gates.numpy(), hidden.numpy()
        return np.hstack([pad_lanes(np.hstack([gates, hidden[:, -1:]])), pad_lanes(hidden[:, :-1])])

    def request_code(self, block):
        import torch

        module = self.module
        with torch.no_grad():
            request = torch.from_numpy(self.seen.request_features(block.users, block.context))
            cross = pad_lanes(module.request_cross(request).numpy())
            return np.hstack(
                [cross, self._columns(module.request_gate(request), module.request_hidden(request))]
            )

    def logit(self, block, ids):
        return cold_scores(
            self.request_code(block), self._ad_rows, self._cross, self._pair_weight, self._shift, self._out,
            self._pairs.of(block, ids), ids,
        )  # fmt: skip


class TorchScorer(ModelScorer):
    """Any torch module with forward(request [R, Fr], ads [R, n, Fa], pair [R, n, P]) -> logits [R, n].

    A module with a method `encode_ads` ([.., Fa] -> [.., E]) gets its encoded ads [R, n, E] in forward
    in place of the features: the ad side is then computed once per deployment, not once per request.
    """

    REQUESTS_AT_ONCE = 64  # the gathered ads of so many requests stay in the cache

    def __init__(self, name, view, link, module):
        import torch

        super().__init__(name, view, link)
        self.seen = _seen(view, module)
        self._ads = torch.from_numpy(self.seen.ad_table)
        with errors_of(f"model {name!r}", type(module).__name__):
            self.module = module.eval()
            if hasattr(module, "encode_ads"):
                with torch.inference_mode():
                    self._ads = _rows(module.encode_ads(self._ads), len(view.ad_table)).contiguous()

    @cached_property
    def cost(self) -> Cost | None:
        import torch

        of_request = self.seen.request_features(np.zeros(1, np.int32), np.zeros(1, np.float32))
        ads = torch.from_numpy(self.seen.ad_table)
        return counted_cost(self.module, of_request.shape[1], self._ads, self.view.pair_width, ads)

    def logit(self, block, ids):
        import torch

        request = torch.from_numpy(self.seen.request_features(block.users, block.context))
        parts = []
        for start in range(0, len(ids), self.REQUESTS_AT_ONCE):
            cut = slice(start, start + self.REQUESTS_AT_ONCE)
            safe = np.maximum(ids[cut], 0)
            pair = torch.from_numpy(self.view.pair_features(block.users[cut], safe))
            with torch.inference_mode():
                ads = torch.nn.functional.embedding(torch.from_numpy(safe), self._ads)
                place = f"model {self.name!r} failed at request {block.requests[start]}"
                with errors_of(place, type(self.module).__name__):
                    logit = self.module(request[cut], ads, pair)
            if not isinstance(logit, torch.Tensor):
                raise UserError(f"model {self.name!r} returned {type(logit).__name__}, expected a tensor")
            if logit.shape != safe.shape:
                raise UserError(
                    f"model {self.name!r} returned shape {tuple(logit.shape)} for candidates of shape "
                    f"{safe.shape}, from request {block.requests[start]} on"
                )
            parts.append(logit.float().numpy())
        return np.concatenate(parts) if parts else np.zeros(ids.shape, np.float32)


def _sided_cost(net, pair_flops: float, ad_width: float, *, of_request, of_ad) -> Cost:
    """Of a net whose sides are computed apart: layers of a request and of an ad; of a pair a sigmoid, too.

    `ad_width` numbers are read of an ad.
    """
    return Cost(
        layers_flops(*of_request),
        FLOAT_BYTES * net.widths[0],
        float(pair_flops + SIGMOID_FLOPS),
        row_bytes(ad_width),
        layers_flops(*of_ad),
    )


def _seen(view, module):
    """The view as a net sees it, with the rows of its embedding tables if it has any."""
    from cascade_sim.models.nets.ids import joined

    return joined(view, module)


def _rows(encoded, n: int):
    """What `encode_ads` gave: a row per ad, or a UserError."""
    import torch

    if not isinstance(encoded, torch.Tensor):
        raise UserError(f"encode_ads returned {type(encoded).__name__}, expected a tensor")
    if encoded.dim() != 2 or len(encoded) != n:
        raise UserError(
            f"encode_ads returned shape {tuple(encoded.shape)} for {n} ads, expected ({n}, width)"
        )
    return encoded
