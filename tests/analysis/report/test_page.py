import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from answers.report import (
    EVIL,
    SCENARIO_TEXT,
    hostile_metrics,
    make_manifest,
    make_metrics,
    minimal_metrics,
)
from answers.section_text import says, section_text, text_of
from cascade_sim import SEMANTICS
from cascade_sim.analysis.metrics.catalogue import TERMS
from cascade_sim.analysis.report import page as page_module
from cascade_sim.analysis.report.page import draw_all, figures_of, render
from cascade_sim.analysis.report.template import SCRIPT, with_code
from cascade_sim.commands.studies.report import command
from cascade_sim.foundation.errors import UserError

VOID = {"meta", "link", "br", "hr", "img"}


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


@pytest.fixture(scope="module")
def page(metrics, figures):
    return render(metrics, make_manifest(), SCENARIO_TEXT, figures)


class Checker(HTMLParser):
    """Collects what a browser would fetch or run, and checks that tags close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.scripts, self.handlers = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("" if attrs == [] else str(attrs))
        for name, value in attrs:
            self.handlers += name.startswith("on")
            if name in ("src", "href", "xlink:href", "data", "poster") and not (value or "").startswith(
                ("#", "data:")
            ):
                self.fetched.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker


def test_the_page_needs_no_network_and_runs_the_one_known_script(page):
    checker = checked(page)
    assert checker.fetched == [] and checker.handlers == 0 and checker.scripts == [SCRIPT]
    assert "javascript:" not in page
    assert not re.search(r"@import|url\((?!#)", page)
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page))


def test_the_script_asks_for_nothing_and_the_browser_is_told_to_run_no_other(page):
    words = ("fetch(", "XMLHttpRequest", "import", "eval", "innerHTML", "document.write", "src", "cookie")
    assert not [word for word in words if word in SCRIPT]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    (allowed,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in html.unescape(allowed).split(";"))
    assert rules["default-src"] == "'none'" and rules["script-src"] == f"'sha256-{digest}'"


def test_without_the_script_nothing_is_hidden_but_the_switches_that_need_it(page):
    hidden = re.findall(r"<(\w+)[^>]*\shidden[\s>]", page)
    assert hidden == ["div"] and re.search(r'<div class="switches"[^>]* hidden>', page)


def test_every_arm_has_a_switch_and_its_rows_are_marked(metrics, page):
    switches = re.findall(r'<button type="button" aria-pressed="true" data-arm="([^"]+)">', page)
    assert sorted(switches) == sorted(metrics["arms"])
    (arms,) = re.findall(r'aria-label="Arms">.*?</table>', page, re.DOTALL)
    assert sorted(re.findall(r'<tr[^>]* data-arm="([^"]+)"', arms)) == sorted(metrics["arms"])
    (measures,) = re.findall(r'aria-label="All measures">.*?</table>', page, re.DOTALL)
    assert sorted(re.findall(r'<th scope="col" data-arm="([^"]+)"', measures)) == sorted(metrics["arms"])


def test_every_table_scrolls_in_a_box_of_its_own_that_says_so(page):
    boxes = re.findall(
        r'<div class="table">\s*<p class="hint">[^<]+</p>\s*<div class="scroll" tabindex="0".*?</table>',
        page,
        re.DOTALL,
    )
    assert len(boxes) == page.count("<table>") > 5


def test_an_arm_says_under_its_name_what_it_does_otherwise(metrics, figures):
    changes = {"distill-pre": ["pre_ranking.model: logloss → <b>"]}
    page = render({**metrics, "arm_changes": changes}, make_manifest(), SCENARIO_TEXT, figures)
    (arms,) = re.findall(r'aria-label="Arms">.*?</table>', page, re.DOTALL)
    (row,) = re.findall(r'<tr[^>]* data-arm="distill-pre">.*?</th>', arms, re.DOTALL)
    assert "logloss → &lt;b&gt;" in row and arms.count("logloss →") == 1
    (totals,) = re.findall(r'aria-label="Totals of the market">.*?</table>', page, re.DOTALL)
    assert "logloss → &lt;b&gt;" in totals


def test_terms_are_explained_once_where_they_first_appear(page):
    defined = re.findall(r"<dfn>([^<]+)</dfn>: ([^<]+)</p>", page)
    assert len({term for term, _ in defined}) == len(defined)
    assert {term: html.unescape(text) for term, text in defined}.items() <= TERMS.items()
    assert {"RCS", "PCOC", "win set", "ideal win set", "opt-bid"} <= {term for term, _ in defined}
    read = re.sub(r"<head>.*?</head>|<nav.*?</nav>|<svg.*?</svg>", "", page, flags=re.DOTALL)
    for term, _ in defined:
        own = read.index(f"<dfn>{term}</dfn>")
        sections = [match.start() for match in re.finditer("<section", read)]
        longer = "|".join(other for other in TERMS if term in other and term != other)  # "ideal win set"
        hidden = rf'="[^"]*"|(?:{longer})' if longer else r'="[^"]*"'
        first = re.search(rf"(?<![\w-]){term}(?![\w-])", re.sub(hidden, lambda m: " " * len(m.group()), read))
        assert max(s for s in sections if s < own) == max(s for s in sections if s < first.start()), term


def test_a_heading_that_is_a_term_says_what_it_means(page):
    assert f'<abbr title="{html.escape(TERMS["RCS"])}">RCS</abbr>' in page


def test_the_same_input_gives_the_same_page(metrics, figures, page):
    assert render(metrics, make_manifest(), SCENARIO_TEXT, figures) == page


def test_the_answer_comes_first_with_its_intervals(page):
    text = text_of(page)
    answer, stage, tiles = (text.index(w) for w in ("Ship distill-pre.", "Retrieval loses", "Best expected"))
    assert answer < stage < tiles
    assert "+3.7 % [+3.3, +4.1]" in text and "--seeds 5" in text


def test_no_placeholder_is_left_on_the_page(page):
    assert "{{" not in page and "{%" not in page


def test_every_arm_measure_model_and_figure_is_on_the_page(metrics, page):
    text = text_of(page)
    for name in [*metrics["arms"], *metrics["arms"]["ltr"], *metrics["models"], *make_manifest()["packages"]]:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name
    assert [name for name in figures_of(metrics) if f'id="figure-{name}"' not in page] == []
    assert "users: 4000" in text and "15,873" in text and "94.6 s" in text  # 3.1 + 16.42 + 61.0 + 2.2 + 11.9


def test_no_id_occurs_twice(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.drill
def test_whatever_comes_from_data_is_escaped(hostile_figures):
    manifest = {**make_manifest(), "packages": {EVIL: EVIL}, "seconds": {EVIL: 1.0}, "started": EVIL}
    page = render(hostile_metrics(), manifest, f"name: {EVIL}", hostile_figures)
    checker = checked(page)
    assert checker.scripts == [SCRIPT] and checker.handlers == 0 and page.count("<script") == 1
    assert f"Ship {EVIL}." in text_of(page)


def test_a_study_over_several_worlds_says_so_and_shows_the_spread(figures):
    text = text_of(render(make_metrics(seeds=5), make_manifest(), SCENARIO_TEXT, figures))
    assert says(text, "5 worlds", "seeds 1, 2, 3, 4, 5") and says(text, "between worlds")
    assert "--seeds" not in text


def test_one_world_shows_no_spread(page):
    assert "Spread between worlds" not in text_of(page)


def test_the_least_a_run_can_hold_still_makes_a_page():
    metrics = minimal_metrics()
    page = render(metrics, {}, "", draw_all(metrics))
    checked(page)
    assert says(text_of(page), "No other arm", "only") and "–" in page
    assert "None" not in page and "nan" not in text_of(page)


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps(make_metrics()))
    (folder / "manifest.json").write_text(json.dumps({**make_manifest(), "semantics": SEMANTICS}))
    (folder / "scenario.yaml").write_text(SCENARIO_TEXT)
    return folder


def call(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def already_drawn(monkeypatch, figures):
    """Spares the command the drawing: it is given the figures of the same metrics."""
    monkeypatch.setattr(page_module, "draw_all", lambda metrics: figures)


def test_the_command_rebuilds_page_and_figures_in_the_run_folder(run_folder, figures, already_drawn):
    result = call(run_folder)
    assert result.exit_code == 0 and result.output.strip() == str(run_folder / "report.html")
    assert "Ship distill-pre." in (run_folder / "report.html").read_text(encoding="utf-8")
    assert {path.name: path.read_text(encoding="utf-8") for path in (run_folder / "figures").iterdir()} == {
        f"{name}.svg": svg for name, svg in figures.items()
    }


def test_with_out_only_the_page_is_written(run_folder, tmp_path, already_drawn):
    assert call(run_folder, "--out", tmp_path / "new" / "page.html").exit_code == 0
    assert (tmp_path / "new" / "page.html").is_file()
    assert not (run_folder / "figures").exists() and not (run_folder / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.json", None, "did not finish"),
        ("metrics.json", "{", "JSON"),
        ("metrics.json", '{"arms": []}', "'arms'"),
        ("metrics.json", '{"arms": {"a": {}}, "baseline": "b"}', "'baseline'"),
        ("scenario.yaml", None, "cannot read"),
    ],
)
def test_a_run_that_cannot_be_reported_is_explained(run_folder, name, content, message):
    (run_folder / name).unlink()
    if content is not None:
        (run_folder / name).write_text(content)
    error = call(run_folder).exception
    assert isinstance(error, UserError) and message in str(error)


def test_a_folder_that_is_not_there_is_explained(tmp_path):
    assert isinstance(call(tmp_path / "nowhere").exception, UserError)


def test_the_page_says_on_how_many_requests_dear_measures_rest(metrics, figures, page):
    assert says(text_of(page), "on 512 requests", "whole corpus")
    assert says(text_of(page), "true CTR, on 768 requests")
    older = {key: value for key, value in metrics.items() if key != "detail"}
    text = text_of(render(older, make_manifest(), SCENARIO_TEXT, figures))
    assert says(text, "on 1,024 requests") and not says(text, "on 768 requests")  # by arm


def test_the_reliability_figure_says_which_worlds_it_shows(page, figures):
    several = make_metrics(seeds=3)
    text = text_of(render(several, make_manifest(), SCENARIO_TEXT, figures))
    assert says(text, "first world")
    for curve in several["curves"]["proxy_reliability"].values():
        curve["worlds"] = 3
    assert "All 3 worlds pooled." in text_of(render(several, make_manifest(), SCENARIO_TEXT, figures))
    assert "worlds pooled" not in text_of(page) and "first world" not in text_of(page)


def test_a_reference_arm_that_pays_is_on_the_page(figures):
    metrics = make_metrics()
    lift = {"value": 0.05, "low": 0.04, "high": 0.06}
    metrics["arms"]["pctr_only"]["expected_revenue_per_request"]["lift"] = lift
    page = render(metrics, make_manifest(), SCENARIO_TEXT, figures)
    assert says(text_of(page), "Dropping the bid", "pctr_only", "+5.0 %")


def test_the_glossary_says_what_the_intervals_leave_out(page):
    text = text_of(page)
    assert says(text, "one user", "retrieval set") and "CPC error, irreducible" in text


def test_the_first_tile_is_revenue_per_request(page):
    (ship,) = re.findall(r'<section id="ship".*?</section>', page, re.DOTALL)
    labels = [text_of(label).strip() for label in re.findall(r'<span class="label">(.*?)</span>', ship)]
    assert labels == ["Revenue per request", "CPC"]  # the guardrails that these numbers have


def test_a_study_of_prices_tells_no_story_of_pre_ranking():
    metrics = {**make_metrics(), "arm_changes": {"ltr": ["auction.pricing: gsp → first"]}}
    text = text_of(render(metrics, make_manifest(), SCENARIO_TEXT, {}))
    for words in ("ranker itself", "Upper bound", "pctr_only", "bid_only", "Pre-ranking ablation"):
        assert words not in text.split("Metric definitions")[0], words
    metrics["arm_changes"] = {"ltr": ["auction.pricing: gsp → first"], "distill-pre": ["pre_ranking.size: 2"]}
    assert "Pre-ranking ablation" in text_of(render(metrics, make_manifest(), SCENARIO_TEXT, {}))


def test_the_market_has_its_section_with_both_tables_and_all_figures(page):
    text = section_text(page, "market")
    assert "The market day" in text and says(
        text, "logloss", "greedy", "100 %", "exhausted their budgets early"
    )
    for words in ("What each arm earned", "How budgets were spent, logloss", "612", "06:00", "75.0"):
        assert words in text, words  # 612 = 600 · 1.02, the baseline's revenue
    for figure in ("market_hours", "market_spend", "market_multipliers"):
        assert f'id="figure-{figure}"' in page


def test_a_study_without_a_market_has_no_section_of_it():
    metrics = make_metrics()
    del metrics["market"]
    page = render(metrics, make_manifest(), SCENARIO_TEXT, {})
    assert 'id="market"' not in page and "market day" not in page


def test_what_stands_between_backticks_is_code_and_nothing_else_is_markup():
    assert with_code("run `whatif --set <b>` now") == "run <code>whatif --set &lt;b&gt;</code> now"
    assert with_code("one ` alone") == "one ` alone"
