"""Embedding tables: what a net learns of a user, an ad or an advertiser beyond their features.

    x(ad)      = [features of the ad, e(ad), e(its advertiser)]
    y(request) = [features of the request, e(user), P mean of x over the ads of the user's history]
Any net takes x and y for its features; only its widths grow. The tables are a part of the net, under the
name `id_tables`: they are trained, stored and copied with it. Entries start at SCALE, which is small beside
features of unit size: an id that training has not met adds next to nothing, and is predicted by the features
alone. P is linear and has no constant, so that a user without a history adds nothing either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding, embedding_bag

from cascade_sim.models.features import FeatureView

SCALE = 0.01  # standard deviation of the entries at the start


class IdTables(nn.Module):
    """The tables of a view: a row of `width` for each id that it shows, and P where it shows a history."""

    def __init__(self, view: FeatureView, width: int):
        super().__init__()
        self.width = width
        self.rows = nn.ParameterDict(
            {name: SCALE * torch.randn(size, width) for name, size in view.id_sizes.items()}
        )
        ad_width = view.ad_width + self.ad_width
        self.project = nn.Linear(ad_width, width, bias=False) if view.history is not None else None

    @property
    def request_width(self) -> int:
        """Columns that join the features of a request."""
        return self.width * (("user_id" in self.rows) + (self.project is not None))

    @property
    def ad_width(self) -> int:
        """Columns that join the features of an ad."""
        return self.width * (("ad_id" in self.rows) + ("advertiser_id" in self.rows))

    def ads(self, features: torch.Tensor, ads: torch.Tensor, advertiser: torch.Tensor | None) -> torch.Tensor:
        """x of ads; `advertiser` is that of each ad of the world.  [.., Fa], [..], [A] -> [.., Fx]"""
        return torch.cat([features, *(rows for rows, _ in self._of_ads(ads, advertiser, None))], dim=-1)

    def join(
        self,
        request: torch.Tensor,
        ads: torch.Tensor,
        ids: tuple[torch.Tensor, torch.Tensor],
        advertiser: torch.Tensor | None,
        past: ClickHistory | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """y and x of a batch's features [R, Fr] and [R, n, Fa]; `ids` are its users [R] and ads [R, n]."""
        of_user, of_ad = [request], [ads]
        if "user_id" in self.rows:
            of_user.append(_look_up(self.rows["user_id"], ids[0], None)[0])
        means = [] if past is None else [past.features]
        for rows, mean in self._of_ads(ids[1], advertiser, past):
            of_ad.append(rows)
            means.append(mean)
        if self.project is not None:
            of_user.append(self.project(torch.cat(means, dim=-1)))
        return torch.cat(of_user, dim=-1), torch.cat(of_ad, dim=-1)

    def _of_ads(
        self, ads: torch.Tensor, advertiser: torch.Tensor | None, past: ClickHistory | None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Of each table of ads its rows, and their mean over the past, which is empty without one."""
        if "ad_id" in self.rows:
            yield _look_up(self.rows["ad_id"], ads, past)
        if "advertiser_id" in self.rows and advertiser is not None:
            their = (
                None if past is None else replace(past, ads=embedding(past.ads, advertiser[:, None])[..., 0])
            )
            yield _look_up(self.rows["advertiser_id"], embedding(ads, advertiser[:, None])[..., 0], their)


@dataclass(frozen=True)
class ClickHistory:
    """The histories of R requests. An ad that is none has any id, and a share of 0."""

    features: torch.Tensor  # [R, Fa], in the mean
    ads: torch.Tensor  # [R, L]
    share: torch.Tensor  # [R, L] float32: of each ad in the mean


def _look_up(
    table: torch.Tensor, ids: torch.Tensor, past: ClickHistory | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a table [N, E] by ids [..], and their mean over the past [R, E]."""
    lists = (ids.new_zeros(0, 1), table.new_zeros(0, 1)) if past is None else (past.ads, past.share)
    rows, mean = _LookUp.apply(table, ids.long(), lists[0].long(), lists[1])
    return rows, mean


class _LookUp(torch.autograd.Function):
    """Rows by ids [..], and rows summed over lists [R, L] by shares [R, L].

    On the CPU one sparse gradient of both, so that a step costs what its batch has. (That of embedding_bag
    takes five times as long, and adding two may sort them.) Elsewhere one of the whole table: see adam_rows.
    """

    @staticmethod
    def forward(
        ctx: Any, table: torch.Tensor, ids: torch.Tensor, lists: torch.Tensor, share: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(ids, lists, share)
        ctx.size = table.shape
        return embedding(ids, table), embedding_bag(lists, table, mode="sum", per_sample_weights=share)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        ids, lists, share = ctx.saved_tensors
        width = ctx.size[1]
        values = slopes[0].new_empty(ids.numel() + lists.numel(), width)
        values[: ids.numel()] = slopes[0].reshape(-1, width)
        listed = values[ids.numel() :].view(*lists.shape, width)
        torch.mul(slopes[1].unsqueeze(1), share.unsqueeze(-1), out=listed)
        rows = torch.cat([ids.reshape(-1), lists.reshape(-1)])
        if values.device.type != "cpu":
            return values.new_zeros(ctx.size).index_add_(0, rows, values), None, None, None
        gradient = torch.sparse_coo_tensor(rows.unsqueeze(0), values, ctx.size, check_invariants=False)
        return gradient, None, None, None


def id_tables(module: nn.Module) -> IdTables | None:
    """The tables of a net; None if it has none."""
    own = getattr(module, "id_tables", None)
    return own if isinstance(own, IdTables) else None


def table_rows(module: nn.Module) -> list[nn.Parameter]:
    """The parameters of a net, or of several, that are tables, each row an id."""
    own = (part for part in module.modules() if isinstance(part, IdTables))
    return [row for tables in own for row in tables.rows.values()]


def with_tables(module: nn.Module, tables: IdTables | None) -> nn.Module:
    """The module, which owns the tables from here on."""
    if tables is None:
        return module
    if id_tables(module) is None and hasattr(module, "id_tables"):
        raise ValueError("it has an attribute id_tables, which is the name of the engine's embedding tables")
    module.id_tables = tables
    return module


@dataclass(frozen=True)
class JoinedView(FeatureView):
    """A view whose ads and requests are x and y, as of one deployment."""

    user_rows: np.ndarray | None = None  # [U, E]
    past_code: np.ndarray | None = None  # [A + 1, E]: P x of each ad; the last row is 0, for no ad

    def request_features(self, users: np.ndarray, context: np.ndarray) -> np.ndarray:
        parts = [super().request_features(users, context)]
        if self.user_rows is not None:
            parts.append(self.user_rows[users])
        if self.past_code is not None and self.history is not None:
            parts.append(mean_rows(self.past_code, self.history[users]))
        return np.concatenate(parts, axis=1)


@torch.no_grad()
def joined(view: FeatureView, module: nn.Module) -> FeatureView:
    """What a net sees of a view, to serve from; ads once for all. A net without tables sees the view."""
    tables = id_tables(module)
    if tables is None:
        return view
    advertiser = None if view.advertiser is None else torch.from_numpy(view.advertiser)
    ads = tables.ads(torch.from_numpy(view.ad_table), torch.arange(len(view.ad_table)), advertiser)
    code = None
    if tables.project is not None:
        code = np.concatenate([tables.project(ads).numpy(), np.zeros((1, tables.width), np.float32)])
    return JoinedView(
        **{f.name: getattr(view, f.name) for f in fields(view) if f.name != "ad_table"},
        ad_table=ads.numpy(),
        user_rows=tables.rows["user_id"].numpy().copy() if "user_id" in tables.rows else None,
        past_code=code,
    )


def mean_rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The mean of a table's rows over ids of which -1 is none; 0 where all are.  [A + 1, E], [R, L] -> [R, E]

    `table` ends in a row of zeros, where -1 leads. Summed in the order of ids, whatever else is asked for.
    """
    total = np.zeros((len(ids), table.shape[1]), table.dtype)
    for column in ids.T:
        total += table[column]
    n = np.maximum((ids >= 0).sum(axis=1, keepdims=True), 1)
    return total / n.astype(table.dtype)
