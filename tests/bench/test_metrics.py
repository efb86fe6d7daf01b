from cascade_sim.bench.metrics import bench_metrics, metrics_text


def test_every_figure_is_a_time_and_is_printed():
    found = bench_metrics(n_lists=50, n_items=10, repeats=2)
    assert list(found)[0] == "gauc + ndcg" and all(value > 0 for value in found.values())
    text = metrics_text(found, 50, 10)
    assert "50 lists x 10 items" in text and len(text.splitlines()) == 1 + len(found)
