"""A section is a function in one list; its table and figure are on the page with nothing else said."""

import doctest
import re

from answers.report import minimal_metrics
from cascade_sim.analysis.report import page, section
from cascade_sim.analysis.report.figures.style import blank
from cascade_sim.analysis.report.section import Columns, Figure, Section, TablePart, Text, titled
from cascade_sim.analysis.report.tables import Cell, Row, Table

TABLE = Table("Sizes", "Arm", ["ads"], [Row("<only>", [Cell("50")])])


def sizes(metrics):
    figure = Figure("sizes", lambda metrics: blank(1.0)[0], "Ads by arm", "How many.")
    return Section(
        "sizes", "How many ads?", (f"{metrics['baseline']}: 50.",), (TablePart(TABLE), Columns((figure,)))
    )


def test_a_section_in_the_list_is_on_the_page_with_its_table_and_figure(monkeypatch):
    monkeypatch.setattr(page, "SECTIONS", [*page.SECTIONS, sizes])
    svgs = page.draw_all(minimal_metrics())
    made = page.render(minimal_metrics(), {}, "", svgs)
    own = made[made.index('<section id="sizes">') : made.index('<section id="background">')]
    assert list(svgs) == ["sizes"] and 'aria-label="Ads by arm"' in svgs["sizes"]
    assert re.findall(r'class="finding">([^<]*)', own) == ["only: 50."]
    assert 'aria-label="Sizes"' in own and "&lt;only&gt;" in own and 'id="figure-sizes"' in own


def test_parts_that_hold_nothing_are_left_out():
    made = Section("x", "X", ("",), (Text(""), TablePart(None), None, *titled("gone", None), Text("there")))
    assert made.finding == () and [part.text for part in made.parts] == ["there"]


def test_a_section_that_rests_on_data_needs_a_table_or_a_drawn_figure():
    figure = Figure("f", lambda metrics: None, "", "")
    made = Section("x", "X", parts=(Text("words"), Columns((figure,))), rests_on_data=True)
    assert not made.is_shown([]) and made.is_shown(["f"])
    assert Section("x", "X", parts=(TablePart(TABLE),), rests_on_data=True).is_shown([])


def test_the_example_of_the_module_holds():
    assert doctest.testmod(section).failed == 0
