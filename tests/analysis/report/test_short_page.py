"""The page of a what-if: one file, escaped, with every setting."""

import re

from answers.section_text import says, section_text, text_of
from answers.whatif import answer
from cascade_sim.analysis.report.short_page import what_if_page
from cascade_sim.analysis.report.template import SCRIPT

SVG = '<svg role="img"></svg>'


def test_the_page_has_the_answer_the_figure_what_was_held_fixed_and_a_table_per_setting():
    asked = {**answer((0.3, 0.9), (0.5, 1.1)), "run": "tiny", "seed": 3, "held_fixed": ["the draws"]}
    page = what_if_page(asked, SVG)
    assert "auction.reserve_cpc = 0.3, 0.5" in page and SVG in page and "<li>the draws</li>" in page
    assert says(text_of(page), "tiny", "arm plain", "seed 3", "500 requests")
    assert re.search(r"<h2>([^<]*)</h2>", page).group(1).startswith("Reserve 0.5: +10.0")
    assert 'href="#part-0">Answer</a>' in page and page.count('<section id="part-') == 4
    assert page.count("<table>") == 3 and "auction.reserve_cpc = 0.5</h2>" in page
    assert not re.search(r'(src|href)="(?!data:|#part-)', page)


def test_a_single_change_over_several_worlds():
    asked = {**answer((0.5, 1.1)), "run": "tiny", "seed": None, "seeds": {"n": 4, "seeds": [1, 2, 3, 4]}}
    page = what_if_page(asked, SVG)
    assert "4 worlds" in page and page.count("<table>") == 1


def test_names_from_outside_are_escaped():
    asked = {**answer((0.5, 1.1)), "run": "<script>", "arm": "<b>", "notes": ["<i>gone</i>"]}
    page = what_if_page(asked, SVG)
    assert page.count("<script") == 1 and f"<script>{SCRIPT}</script>" in page
    assert "&lt;script&gt;" in page and "&lt;i&gt;gone" in page


def test_the_answer_of_a_single_change_is_said_once():
    page = what_if_page({**answer((0.5, 1.1)), "run": "tiny", "seed": 3}, SVG)
    assert section_text(page, "part-0").count("+10.0 % [+9.0, +11.0] revenue per request") == 1
