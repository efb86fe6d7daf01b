"""The helper by which tests ask what a text says: it finds what is there and nothing else."""

import pytest

from answers.section_text import clauses, says, section_text

TEXT = "With logloss, 14.0\u00a0% are late; ltr −4.0 % [−5.0, −3.0]. Not significant: base-2 and 1.5 more."


@pytest.mark.parametrize(
    "parts",
    [("logloss", "14.0 %"), ("ltr", "−4.0 % [−5.0, −3.0]"), ("Not significant", "base-2", "1.5 more")],
)
def test_what_one_clause_holds_is_said(parts):
    assert says(TEXT, *parts)


@pytest.mark.parametrize(
    "parts",
    [
        ("logloss", "ltr"),  # of two clauses
        ("14.0 %", "logloss"),  # in another order
        ("4.0 %",),  # the end of a number, or one without its sign
        ("14",),  # its beginning
        ("base",),  # a part of a name
        ("late", "late"),  # once only
    ],
)
def test_what_no_single_clause_holds_is_not_said(parts):
    assert not says(TEXT, *parts)


def test_a_clause_ends_with_a_full_stop_or_a_semicolon_and_not_inside_a_number():
    assert len(clauses(TEXT)) == 3


def test_a_section_is_read_without_what_stands_around_it():
    page = '<p>before</p><section id="a"><p>x &lt; <b>1</b></p></section><section id="b">y</section>'
    assert section_text(page, "a") == "x < 1"
