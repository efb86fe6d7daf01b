import pytest

from answers.report import make_metrics, minimal_metrics
from answers.section_text import said, says, tables
from answers.table_text import by_column, plain
from cascade_sim.analysis.report.sections.cost import cost_section, cost_words, flops_text


@pytest.fixture
def metrics():
    return make_metrics()


def test_the_best_arm_is_named_with_its_cost_beside_the_cheapest(metrics):
    """distill-pre takes 28 + 94 kFLOPs and earns most; those that take less earn significantly less."""
    words = plain(cost_words(metrics))
    assert says(words, "distill-pre", "highest expected RPM", "122 kFLOPs a request after retrieval")
    assert says(words, "Every arm that takes less", "significantly lower") and "ranker" not in words


def test_the_cheapest_of_those_that_are_not_significantly_lower_would_do(metrics):
    for arm in ("logloss-small", "logloss-med"):
        metrics["contrasts"][arm]["distill-pre"]["expected_rpm"]["high"] = 0.01
    words = plain(cost_words(metrics))
    assert says(words, "not significantly lower", "logloss-small takes least: 87 % of that", "−6.4 %")


def test_what_was_not_compared_is_not_judged(metrics):
    del metrics["contrasts"]["logloss-med"]["distill-pre"]
    words = plain(cost_words(metrics))
    assert says(words, "distill-pre", "highest expected RPM") and "significantly" not in words


def test_where_nothing_is_to_choose_that_is_said(metrics):
    metrics["cost"]["distill-pre"]["scoring_flops"] = 1_000.0
    assert says(cost_words(metrics), "distill-pre takes least", "1 kFLOPs", "highest expected RPM")
    for own in metrics["cost"].values():
        own["scoring_flops"] = 5e6
    assert says(cost_words(metrics), "All arms take 5 MFLOPs", "differ in quality alone")


def test_the_tables_have_a_row_per_arm_and_per_stage(metrics):
    found = tables(cost_section(metrics))
    ranker = by_column(found["Cost and quality"], "ranker")
    assert (ranker["kFLOPs after retrieval"].text, ranker["kFLOPs"].text) == ("564", "1,224")
    assert ranker["µs"].text == "56.8" and ranker["frontier"].text == "yes"
    stages = found["Every stage"]
    assert len(stages.rows) == 3 * len(metrics["arms"])
    search, pre, rank = (row.cells for row in stages.rows if row.label == "ranker")
    texts = [[cell.text for cell in row] for row in (search, pre, rank)]
    # Wording: a cell of the table.
    assert texts[0][:4] == ["retrieval", "similarity, kept per user", "20,000", "660"]
    assert texts[1] == ["pre-ranking", "rank", "500", "470", "38.4", "360", "47.0", "82.7"]
    assert texts[2][:4] == ["ranking", "rank", "100", "94.0"]


def test_times_are_left_out_where_they_were_not_taken(metrics):
    assert "µs are CPU time" in said(cost_section(metrics))
    for micros in (None, "much", {"ltr": 5}, {"ltr": {"ranking": "long"}}):
        metrics["micros"] = micros
        section = cost_section(metrics)
        assert "µs are CPU time" not in said(section)
        assert "µs" not in tables(section)["Every stage"].columns


def test_what_is_not_known_is_a_dash_and_no_point(metrics):
    own = metrics["cost"]["distill-pre"]
    own["stages"][1] |= {"flops": None, "bytes": None}
    own |= {"flops": None, "scoring_flops": None, "bytes": None}
    table = tables(cost_section(metrics))["Cost and quality"]
    assert by_column(table, "distill-pre")["kFLOPs"].text == "–"
    assert "distill-pre" not in cost_words(metrics)


def test_a_study_without_costs_has_no_section():
    assert cost_section(minimal_metrics()) is None


@pytest.mark.parametrize(("flops", "text"), [(2.5e9, "2.5 GFLOPs"), (999.0, "999 FLOPs"), (1e3, "1 kFLOPs")])
def test_flops_are_said_in_a_unit_that_fits(flops, text):
    assert flops_text(flops) == text
