from answers.report import make_metrics, minimal_metrics
from answers.section_text import clauses, says
from cascade_sim.analysis.report.sections.culprit import culprit_corners, culprit_words, score_label


def without_roles(metrics):
    for row in metrics["culprit"]:
        del row["role"]
    return metrics


def test_the_seat_whose_replacement_helps_more_is_the_culprit():
    metrics = make_metrics()
    words = culprit_words(metrics)
    assert says(words, "model", "main culprit") and not says(words, "bid", "main culprit")
    _, bid, model, _ = metrics["culprit"]
    bid["rcs"], model["rcs"] = model["rcs"], bid["rcs"]
    words = culprit_words(metrics)
    assert says(words, "bid", "main culprit") and not says(words, "model", "main culprit")


def test_seats_that_help_alike_share_the_blame():
    metrics = make_metrics()
    metrics["culprit"][2]["rcs"] = metrics["culprit"][1]["rcs"]
    words = culprit_words(metrics)
    assert says(words, "Model", "bid", "equally") and "main culprit" not in words


def test_the_culprit_does_not_depend_on_the_order_of_the_rows():
    metrics = make_metrics()
    before = culprit_words(metrics)
    metrics["culprit"].reverse()
    assert culprit_words(metrics) == before


def test_a_seat_that_replaced_alone_beats_both_replaced_does_not_swap_the_rows():
    metrics = make_metrics()
    metrics["culprit"][2]["rcs"] = {"value": 1.0, "low": 1.0, "high": 1.0}
    metrics["culprit"][3]["rcs"] = {"value": 0.99, "low": 0.98, "high": 1.0}
    for words in (culprit_words(metrics), culprit_words(without_roles(metrics))):
        assert says(clauses(words)[0], "As it is", "init-bid × logloss", "65.7 %")


def test_a_run_without_roles_is_read_by_the_order_it_was_written_in():
    metrics = make_metrics()
    before = culprit_words(metrics)
    assert culprit_words(without_roles(metrics)) == before


def test_stages_with_the_same_bid_leave_only_the_model_to_replace():
    metrics = make_metrics()
    metrics["culprit"] = [metrics["culprit"][0], metrics["culprit"][2]]
    words = culprit_words(metrics)
    assert says(words, "ranker's model", "95.6 %") and says(words, "bid", "same in both stages")


def test_a_missing_row_leaves_the_words_out():
    metrics = make_metrics()
    metrics["culprit"][1]["rcs"] = None
    assert culprit_words(metrics) == "" and culprit_corners(metrics) is None
    assert culprit_words(minimal_metrics()) == ""


def test_a_score_without_a_bid_says_so():
    assert score_label({"bid": "none", "model": "ctr"}) == "no bid × ctr"
