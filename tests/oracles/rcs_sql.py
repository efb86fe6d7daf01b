"""Ranking consistency straight from the logs, as SQL: a second way to the same number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow

Log: TypeAlias = str | Path | Sequence[str | Path] | pyarrow.Table

# Ties go to the smaller ad id. NaN would sort above every number, so it is filtered out with -inf and
# padding, as in the array version. Hits are summed by number of ideal winners: integers, exact in any order
# of execution.
_RCS = """
WITH ideal AS (
    SELECT request, ad, row_number() OVER (PARTITION BY request ORDER BY rank_score DESC, ad) AS position
    FROM shadow_log
    WHERE ad >= 0 AND rank_score > '-inf'::DOUBLE AND NOT isnan(rank_score)
), served AS (
    SELECT request, ad, row_number() OVER (PARTITION BY request ORDER BY pre_rank_score DESC, ad) AS position
    FROM service_log
    WHERE ad >= 0 AND pre_rank_score > '-inf'::DOUBLE AND NOT isnan(pre_rank_score)
), per_request AS (
    SELECT ideal.request, count(*) AS winners, count(served.ad) AS hits
    FROM (SELECT * FROM ideal WHERE position <= $k) AS ideal
    LEFT JOIN (SELECT * FROM served WHERE position <= $c) AS served
        ON ideal.request = served.request AND ideal.ad = served.ad
    GROUP BY ideal.request
)
SELECT winners, sum(hits)::BIGINT, count(*)::BIGINT FROM per_request GROUP BY winners ORDER BY winners
"""


def rcs_sql(shadow_log: Log, service_log: Log, c: int, k: int) -> float:
    """RCS from the shadow's log and the service's log.

    The shadow logs (request, ad, rank_score), the service (request, ad, pre_rank_score). The ideal win set
    is the shadow's k best by rank score, the competitive set the service's c best by pre-rank score; ties
    go to the smaller ad id. The mean over requests of the share of ideal winners in the competitive set; a
    request without ideal winners is left out, NaN if none has any. A log is a Parquet path or glob, a list
    of paths, or a pyarrow table.
    """
    connection = duckdb.connect(":memory:")
    try:
        _attach(connection, "shadow_log", shadow_log)
        _attach(connection, "service_log", service_log)
        rows = connection.execute(_RCS, {"c": c, "k": k}).fetchall()
    finally:
        connection.close()
    n_requests = sum(count for _, _, count in rows)
    return sum(hits / winners for winners, hits, _ in rows) / n_requests if n_requests else float("nan")


def _attach(connection: duckdb.DuckDBPyConnection, name: str, log: Log) -> None:
    """Make a log visible to the query as a view; paths are passed as values, never as part of the SQL."""
    if isinstance(log, str | Path):
        connection.read_parquet(str(log)).create_view(name)
    elif isinstance(log, Sequence):
        connection.read_parquet([str(path) for path in log]).create_view(name)
    else:
        connection.register(name, log)
