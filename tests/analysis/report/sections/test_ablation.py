from answers.report import make_metrics, minimal_metrics
from answers.section_text import clauses, says
from cascade_sim.analysis.report.sections.ablation import ablation_corners, ablation_words, score_label


def without_roles(metrics):
    for row in metrics["ablation"]:
        del row["role"]
    return metrics


def test_the_seat_whose_replacement_helps_more_explains_most():
    metrics = make_metrics()
    words = ablation_words(metrics)
    assert says(words, "model", "most of the inconsistency") and not says(
        words, "bid", "most of the inconsistency"
    )
    _, bid, model, _ = metrics["ablation"]
    bid["rcs"], model["rcs"] = model["rcs"], bid["rcs"]
    words = ablation_words(metrics)
    assert says(words, "bid", "most of the inconsistency") and not says(
        words, "model", "most of the inconsistency"
    )


def test_seats_that_help_alike_share_the_blame():
    metrics = make_metrics()
    metrics["ablation"][2]["rcs"] = metrics["ablation"][1]["rcs"]
    words = ablation_words(metrics)
    assert says(words, "Model", "bid", "about as much") and not says(words, "explains most")


def test_the_ablation_does_not_depend_on_the_order_of_the_rows():
    metrics = make_metrics()
    before = ablation_words(metrics)
    metrics["ablation"].reverse()
    assert ablation_words(metrics) == before


def test_a_seat_that_replaced_alone_beats_both_replaced_does_not_swap_the_rows():
    metrics = make_metrics()
    metrics["ablation"][2]["rcs"] = {"value": 1.0, "low": 1.0, "high": 1.0}
    metrics["ablation"][3]["rcs"] = {"value": 0.99, "low": 0.98, "high": 1.0}
    for words in (ablation_words(metrics), ablation_words(without_roles(metrics))):
        assert says(clauses(words)[0], "As it is", "init-bid × logloss", "65.7 %")


def test_a_run_without_roles_is_read_by_the_order_it_was_written_in():
    metrics = make_metrics()
    before = ablation_words(metrics)
    assert ablation_words(without_roles(metrics)) == before


def test_stages_with_the_same_bid_leave_only_the_model_to_replace():
    metrics = make_metrics()
    metrics["ablation"] = [metrics["ablation"][0], metrics["ablation"][2]]
    words = ablation_words(metrics)
    assert says(words, "ranker's model", "95.6 %") and says(words, "bid", "same in both stages")


def test_a_missing_row_leaves_the_words_out():
    metrics = make_metrics()
    metrics["ablation"][1]["rcs"] = None
    assert ablation_words(metrics) == "" and ablation_corners(metrics) is None
    assert ablation_words(minimal_metrics()) == ""


def test_a_score_without_a_bid_says_so():
    assert score_label({"bid": "none", "model": "ctr"}) == "no bid × ctr"
