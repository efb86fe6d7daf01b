import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cascade_sim.analysis.metrics.consistency import rcs, top_ids
from oracles.rcs_sql import rcs_sql


def log(ids, score, name):
    """Log rows of every candidate, padding left out, in shuffled order."""
    row, column = np.nonzero(ids >= 0)
    order = np.random.default_rng(0).permutation(len(row))
    row, column = row[order], column[order]
    return pa.table(
        {
            "request": pa.array(row, pa.int64()),
            "ad": pa.array(ids[row, column], pa.int32()),
            name: pa.array(score[row, column], pa.float64()),
        }
    )


def study(seed, n_requests=60, n=20, levels=6):
    """Coarse scores, so that ties decide who is in, with unscored ads and requests of every size."""
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((n_requests, 50)), axis=1)[:, :n].astype(np.int32)
    ids[np.arange(n) >= rng.integers(0, n + 1, n_requests)[:, None]] = -1
    rank, pre = (rng.integers(-1, levels, (n_requests, n)) / levels for _ in range(2))
    for score in (rank, pre):
        score[rng.random(score.shape) < 0.05] = np.nan
        score[rng.random(score.shape) < 0.05] = -np.inf
        score[rng.random(score.shape) < 0.05] = -0.0
    return ids, rank, pre


@pytest.mark.parametrize("seed", range(8))
def test_sql_and_arrays_agree_with_ties_and_short_requests(seed):
    ids, rank, pre = study(seed)
    expected = np.nanmean(rcs(top_ids(ids, rank, 5), top_ids(ids, pre, 8)))
    assert 0 < expected < 1
    result = rcs_sql(log(ids, rank, "rank_score"), log(ids, pre, "pre_rank_score"), c=8, k=5)
    assert result == pytest.approx(expected, abs=1e-12)


def test_logs_are_read_from_globs_lists_and_awkward_paths(tmp_path):
    ids, rank, pre = study(3)
    tables = {"shadow": log(ids, rank, "rank_score"), "service": log(ids, pre, "pre_rank_score")}
    expected = rcs_sql(tables["shadow"], tables["service"], 8, 5)
    folder = tmp_path / 'it\'s; DROP VIEW shadow_log; -- "a" run'
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(table.slice(0, 100), folder / name / "part-0.parquet")
        pq.write_table(table.slice(100), folder / name / "part-1.parquet")
    assert rcs_sql(str(folder / "shadow" / "*.parquet"), folder / "service" / "*.parquet", 8, 5) == expected
    parts = [sorted((folder / name).glob("*.parquet")) for name in ("shadow", "service")]
    assert rcs_sql(parts[0], parts[1], 8, 5) == expected


def test_consistent_objectives_can_be_inconsistent_once_fused():
    bid, pre_pctr, rank_pctr = np.array([[8, 6, 4]]), np.array([[0.4, 0.5, 0.6]]), np.array([[0.2, 0.5, 0.8]])
    ids = np.array([[1, 2, 3]], np.int32)
    assert top_ids(ids, bid * pre_pctr, 3).tolist() == [[1, 2, 3]]
    assert top_ids(ids, bid * rank_pctr, 3).tolist() == [[3, 2, 1]]
    shadow, service = log(ids, bid * rank_pctr, "rank_score"), log(ids, bid * pre_pctr, "pre_rank_score")
    for c, k, expected in [(1, 1, 0), (2, 1, 0), (2, 2, 1 / 2), (3, 1, 1)]:
        assert rcs_sql(shadow, service, c, k) == pytest.approx(expected)
        assert rcs(top_ids(ids, bid * rank_pctr, k), top_ids(ids, bid * pre_pctr, c))[0] == expected
    alone = log(ids, pre_pctr, "pre_rank_score"), log(ids, rank_pctr, "rank_score")
    assert rcs_sql(alone[1], alone[0], 1, 1) == 1


def test_a_request_the_service_did_not_log_counts_as_missed_and_no_requests_as_undefined():
    shadow = log(np.array([[1], [2]], np.int32), np.array([[1.0], [1.0]]), "rank_score")
    service = log(np.array([[1]], np.int32), np.array([[1.0]]), "pre_rank_score")
    assert rcs_sql(shadow, service, 1, 1) == 1 / 2
    assert np.isnan(rcs_sql(shadow.slice(0, 0), service, 1, 1))
