"""A page begins with the answer to what its scenario asks; the sections on it come before the arms."""

import re

import pytest

from answers.report import SCENARIO_TEXT, make_manifest, make_metrics
from answers.section_text import says, text_of
from answers.table_text import plain
from answers.whatif import answer
from cascade_sim.analysis.report.page import render, sections_of
from cascade_sim.analysis.report.sections.asked import QUESTIONS, asked_section, what_if_headline


def asking(*kinds, seeds=1):
    """A study that asks only these."""
    metrics = make_metrics(seeds)
    return {key: value for key, value in metrics.items() if key not in QUESTIONS or key in kinds}


def market_with(*parts):
    """A study that asks only about a market, which holds these parts beside what the arms earn."""
    metrics = asking("market")
    kept = {key: value for key, value in metrics["market"].items() if key in parts or key != "designs"}
    kept["arms"] = {
        arm: {key: value for key, value in own.items() if key in parts or key not in ("compute", "learning")}
        for arm, own in kept["arms"].items()
    }
    return {**metrics, "market": kept}


def html(metrics):
    return render(metrics, make_manifest(), SCENARIO_TEXT, {})


def ids(metrics):
    return [section.id for section in sections_of(metrics)]


@pytest.mark.parametrize(
    ("kind", "own"), [("what_if", "what-if"), ("off_policy", "off-policy"), ("market", "designs")]
)
def test_a_study_leads_with_the_answer_to_what_it_asks(kind, own):
    metrics = asking(kind)
    order = ids(metrics)
    assert order[:2] == ["asked", own] and order.index(own) < order.index("ship") < order.index("arms")
    page = html(metrics)
    first = re.search(r"<h2>(.*?)</h2>", page).group(1)
    assert first == asked_section(metrics).title.replace("'", "&#39;")
    assert f"{metrics['name']}: {first}</title>" in page


def test_a_study_of_arms_alone_leads_with_the_arm_to_ship():
    assert ids(asking())[:2] == ["ship", "arms"] and asked_section(asking()) is None


def test_several_questions_are_all_answered_at_the_top_the_first_as_headline():
    section = asked_section(make_metrics())
    headings = [part.text for part in section.parts if part.shape == "heading"]
    own = {kind: QUESTIONS[kind](make_metrics()).headline for kind in QUESTIONS}
    assert section.title == own["what_if"] and headings == [own["off_policy"], own["market"]]


def test_the_headline_of_a_what_if_names_the_parameter_its_value_and_the_lift_with_its_interval():
    text = what_if_headline(answer((0.3, 0.9), (0.6, 1.1)))
    assert says(text, "Reserve 0.6", "+10.0 % [+9.0, +11.0]", "revenue per request") and says(
        text, "CPC", "worse"
    )


def test_a_what_if_that_brings_nothing_says_to_leave_the_parameter_alone():
    text = what_if_headline(answer((0.3, 0.9), (0.6, 0.8)))
    assert "stays best" in text and "0.6" not in text and "0.3" not in text


def test_a_market_without_another_arm_and_one_without_a_gain():
    metrics = market_with()
    base = metrics["baseline"]
    lone = {**metrics, "market": {**metrics["market"], "arms": {base: metrics["market"]["arms"][base]}}}
    assert "no other arm" in asked_section(lone).title and base in asked_section(lone).title
    lift = {"value": 0.0, "low": -0.1, "high": 0.1}
    level = {arm: {"revenue_per_request": lift} for arm in metrics["market"]["arms"] if arm != base}
    same = {**metrics, "market": {**metrics["market"], "lifts": level}}
    assert says(asked_section(same).title, "no arm", "significantly more")


def test_a_market_without_intervals_claims_no_test():
    metrics = market_with()
    base = metrics["baseline"]
    others = [arm for arm in metrics["market"]["arms"] if arm != base]
    lifts = {arm: {"revenue_per_request": {"value": 0.1}} for arm in others}
    section = asked_section({**metrics, "market": {**metrics["market"], "lifts": lifts, "contrasts": {}}})
    assert says(section.title, "earns +10.0 %", "no interval") and "significant" not in section.title
    told = " ".join(part.text for part in section.parts if part.shape == "text")
    assert says(told, "too short for intervals", "5 simulated days", "--seeds")
    assert "significant" not in told


def test_a_refused_question_to_the_log_is_counted_and_shown_as_refused():
    metrics = asking("off_policy")
    for target in metrics["off_policy"]["targets"].values():
        for row in target["rewards"]["revenue"]["estimators"].values():
            row.update(verdict="refuse", no_estimate=1.0)
    section = asked_section(metrics)
    tiles = next(part for part in section.parts if part.shape == "tiles").tiles
    assert {tile.value for tile in tiles} == {"no estimate"}
    assert says(section.title, "targets", "without an estimate")


@pytest.mark.parametrize("kind", QUESTIONS)
def test_no_tile_repeats_the_headline_or_another_tile(kind):
    section = asked_section(asking(kind))
    (tiles,) = [part for part in section.parts if part.shape == "tiles"]
    labels = [tile.label for tile in tiles.tiles]
    assert labels and len(set(labels)) == len(labels) and tiles.about
    title = section.title.replace(" = ", "=")
    assert not [label for label in labels if f"{label}: " in title or f"{label} earns" in title]
    if kind == "what_if":  # both of its questions have the same best setting
        assert not [tile for tile in tiles.tiles if tile.base in section.title]


def test_contents_lead_to_every_section_and_long_ones_are_folded():
    page = html(asking("what_if"))
    nav = re.search(r"<nav.*?</nav>", page, re.DOTALL).group()
    anchors = re.findall(r'href="#([^"]+)"', nav)
    assert anchors == re.findall(r'<section id="([^"]+)"', page)
    folded = {
        name: '<details class="more">' in part
        for name, part in re.findall(r'<section id="([^"]+)"(.*?)</section>', page, re.DOTALL)
    }
    assert not folded["asked"] and not folded["what-if"] and not folded["ship"]
    assert folded["arms"] and folded["models"]
    assert says(text_of(page), "1 table")


def test_a_page_of_one_arm_that_asks_a_what_if_has_no_second_headline():
    metrics = asking("what_if")
    metrics["arms"] = {metrics["baseline"]: metrics["arms"][metrics["baseline"]]}
    assert "No other arm" not in text_of(html(metrics)) and ids(metrics)[0] == "asked"


def test_the_best_of_several_values_is_told_as_a_choice():
    metrics = asking("what_if")
    metrics["what_if"] = {"reserve": answer((0.3, 0.9), (0.6, 1.1))}
    told = [part.text for part in asked_section(metrics).parts if part.shape == "text"]
    assert says(" ".join(told), "best of 2 values")
    metrics["what_if"] = {"reserve": answer((0.6, 1.1))}
    assert "best of" not in " ".join(p.text for p in asked_section(metrics).parts if p.shape == "text")


@pytest.mark.parametrize(
    ("parts", "own"),
    [((), "market"), (("designs",), "designs"), (("compute",), "compute"), (("learning",), "drift")],
)
def test_a_market_leads_with_what_it_is_there_for(parts, own):
    metrics = market_with(*parts)
    assert ids(metrics)[:2] == ["asked", own]
    page = html(metrics)
    assert re.search(rf'<section id="{own}".*?</section>', page, re.DOTALL).group().count("<table") > 0
    headlines = {asked_section(market_with(*more)).title for more in ((), ("designs",), ("compute",))}
    assert len(headlines) == 3


def test_the_headline_of_trials_names_the_launch_and_whom_to_trust():
    title = asked_section(market_with("designs")).title
    assert says(title, "new", "+4.0 %") and says(title, "unbiased", "split budgets")
    assert says(title, "biased", "by request")


def test_a_market_without_budgets_does_not_speak_of_them():
    metrics = market_with()
    assert "budgets" in asked_section(metrics).title
    for arm in metrics["market"]["arms"].values():
        arm["bidders"] = {name: {**kind, "with_budget": 0} for name, kind in arm["bidders"].items()}
    section = asked_section(metrics)
    assert "budget" not in section.title and "unlimited budgets" not in text_of(
        html(metrics).split("</section>")[0]
    )
    assert not re.search(r"How budgets were spent", html(metrics))


def test_the_market_of_two_arms_has_what_decides_and_guardrails_in_tiles():
    metrics = market_with()
    base = metrics["baseline"]
    others = [arm for arm in metrics["market"]["arms"] if arm in metrics["arms"] and arm != base]
    same = {"value": 0.05, "low": 0.04, "high": 0.06}
    lifts = {
        arm: {"revenue_per_request": same, "rpm": same, "ctr": {**same, "value": 0.02}} for arm in others
    }
    metrics["market"]["arms"] = {arm: metrics["market"]["arms"][arm] for arm in (base, others[0])}
    metrics["market"]["lifts"] = lifts
    (tiles,) = [part for part in asked_section(metrics).parts if part.shape == "tiles"]
    assert [tile.label for tile in tiles.tiles][0] == "Revenue per request"
    assert len({tile.label for tile in tiles.tiles}) == len(tiles.tiles) > 1


def test_a_log_asked_about_pages_alone_leads_with_their_value():
    metrics = asking("off_policy")
    part = metrics["off_policy"]
    part["targets"] = {name: own for name, own in part["targets"].items() if own["log"] == "slates"}
    part["order"] = list(part["targets"])
    for target in part["targets"].values():
        del target["rewards"]["revenue"]["true_lift"]
        for row in target["rewards"]["revenue"]["estimators"].values():
            row.pop("lift")
    section = asked_section(metrics)
    text = "slates.temperature = 0.5: 0.2000 [0.1900, 0.2100] revenue per request; as logged 0.2800"
    assert text in plain(section.title)
    assert says(text_of(html(metrics)), "truth 0.2000")


def test_a_question_without_a_lift_is_not_shown_as_refused():
    metrics = asking("off_policy")
    parameters = [own for own in metrics["off_policy"]["targets"].values() if own["log"] == "parameters"]
    for target in parameters:
        for row in target["rewards"]["revenue"]["estimators"].values():
            row["lift"] = {"value": None, "low": None, "high": None}
    section = asked_section(metrics)
    tiles = next(part for part in section.parts if part.shape == "tiles").tiles
    refused = [
        own for own in parameters if own["rewards"]["revenue"]["estimators"]["ips"]["verdict"] == "refuse"
    ]
    assert len([tile for tile in tiles if tile.value == "no estimate"]) == len(refused) < len(parameters)
    assert says(section.title, f"{len(refused)} of {len(parameters)}", "without an estimate")
