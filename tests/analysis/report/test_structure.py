"""Every kind of page: contents lead somewhere, tables scroll, ids are single, its one script is allowed."""

import base64
import hashlib
import html
import re

import pytest

from answers.ltr import made_findings
from answers.report import SCENARIO_TEXT, make_manifest, make_metrics
from answers.sweep import FOUR, X, Y
from answers.sweep import findings as sweep_findings
from answers.whatif import answer
from cascade_sim.analysis.report.figures.style import drawn
from cascade_sim.analysis.report.figures.sweep import sweep_svg
from cascade_sim.analysis.report.figures.whatif import answer_image
from cascade_sim.analysis.report.page import render
from cascade_sim.analysis.report.sections.compare import compare_figures, compare_page
from cascade_sim.analysis.report.sections.ltr import ltr_figures
from cascade_sim.analysis.report.short_page import ltr_page, sweep_page, what_if_page


def made_ltr():
    curve = {"points": [0.0, 1.0], "stable": True}
    findings = {**made_findings(), "curves": {"pointwise": {"1": curve}, "rcr": {"1": curve}}}
    svgs = {
        figure.name: drawn(figure.draw, findings, figure.name, figure.title)
        for figure in ltr_figures(findings)
    }
    return ltr_page(findings, svgs)


def made_comparison():
    number = {"value": 1.0, "low": 0.5, "high": 1.5}
    entry = {name: number for name in ("before", "after", "difference", "lift")} | {"is_paired": True}
    comparison = {
        "first": "a", "other": "b", "paired_by": "request", "notes": [],
        "scenario": [{"key": "auction.reserve_cpc", "old": 0.0, "new": 0.1}],
        "arms": {arm: {"expected_revenue_per_request": entry, "rcs": entry} for arm in ("plain", "other")},
    }  # fmt: skip
    return compare_page([comparison], compare_figures([comparison]))


def made_what_if():
    own = answer((0.3, 0.9), (0.6, 1.1))
    return what_if_page(own, answer_image(own, "svg").decode())


PAGES = {
    "what if": made_what_if,
    "sweep": lambda: sweep_page(sweep_findings(FOUR), X, Y, sweep_svg(sweep_findings(FOUR), X, Y)),
    "compare": made_comparison,
    "ltr": made_ltr,
}


@pytest.fixture(scope="module", params=["report", *PAGES])
def page(request):
    if request.param != "report":
        return PAGES[request.param]()
    figures = request.getfixturevalue("figures")
    return render(make_metrics(), make_manifest(), SCENARIO_TEXT, figures)


def test_no_id_occurs_twice_and_every_link_leads_to_one(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 0
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)


def test_every_headed_section_is_in_the_contents(page):
    headed = re.findall(r'<section id="([^"]+)"', page)
    nav = re.findall(r"<nav.*?</nav>", page, re.DOTALL)
    assert (len(headed) > 2) == bool(nav)
    assert [re.findall(r'href="#([^"]+)"', own) for own in nav] == [headed] * len(nav)


def test_every_table_scrolls_in_a_box_that_says_so_above_it(page):
    """Below a long table nobody sees that there are more columns before all its rows are read."""
    boxes = re.findall(
        r'<p class="hint">[^<]+</p>\s*'
        r'<div class="scroll" tabindex="0" role="region" aria-label="[^"]+">\s*<table>',
        page,
    )
    assert len(boxes) == page.count("<table") == page.count('<p class="hint">') > 0


def test_a_page_leads_with_an_answer(page):
    """The first heading of the first section is a sentence."""
    first = page[page.index("<main>") :]
    assert re.match(r"<main>\s*<section[^>]*>\s*<h2>[^<]+\.</h2>", first)


def test_the_browser_may_run_the_pages_script_and_no_other(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in html.unescape(policy)


def test_switches_reach_rows_and_figures(page):
    """What can be switched off is marked in a table and in a figure, and what lists arms lists known ones."""
    switches = set(re.findall(r'<button[^>]* data-arm="([^"]+)"', page))
    rows, groups = (set(re.findall(rf'<{tag}[^>]* data-arm="([^"]+)"', page)) for tag in ("tr", "g"))
    if switches:
        assert switches <= rows and groups & switches
    assert "[data-arms][hidden] { display: none; }" in page


def test_rows_of_arms_are_marked(page):
    """No row that is named like an arm stays when it is switched off."""
    switches = set(re.findall(r'<button[^>]* data-arm="([^"]+)"', page))
    plain = re.findall(
        r'<tr(?![^>]*data-arm)[^>]*><th scope="row"[^>]*><span class="label">([^<]+)</span>', page
    )
    assert not switches & set(plain)
