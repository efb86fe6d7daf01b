"""What a message tells, whatever its wording: which key, name, value, number or file it is about.

    with refused("models.rank.alpha", "pointwise"):
        load_scenario(...)
    assert tells(shown, "cascade.pre_ranking.size", 6)

A fact is a term or a value, never a sentence, and stands in the message as a whole: `50` does not tell 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cascade_sim.foundation.errors import UserError
from house.wording import is_sentence


def untold(message: object, *facts: object) -> list[object]:
    """The facts that a message leaves out."""
    return [fact for fact in facts if not any(_stands_in(text, str(message)) for text in _written(fact))]


def tells(message: object, *facts: object) -> bool:
    """Whether every fact stands in a message."""
    return not untold(message, *facts)


@contextmanager
def refused(*facts: object, kind: type[BaseException] = UserError) -> Iterator[pytest.ExceptionInfo]:
    """What is done within raises an error whose message tells the facts."""
    with pytest.raises(kind) as raised:
        yield raised
    assert untold(raised.value, *facts) == [], str(raised.value)


@contextmanager
def warned(*facts: object, kind: type[Warning] = UserWarning) -> Iterator[pytest.WarningsRecorder]:
    """What is done within gives a warning that tells the facts."""
    with pytest.warns(kind) as given:
        yield given
    messages = [str(warning.message) for warning in given if issubclass(warning.category, kind)]
    assert any(tells(message, *facts) for message in messages), messages


def _written(fact: object) -> set[str]:
    """How a fact may be written: numbers also with commas."""
    text = str(fact)
    assert text and not is_sentence(text), f"{text!r} is a wording: name the key, value or number"
    is_number = isinstance(fact, int | float) and not isinstance(fact, bool)
    return {text, f"{fact:,}"} if is_number else {text}


def _stands_in(fact: str, message: str) -> bool:
    before = r"(?<!\w)(?<!\d[.,])" if re.match(r"\w", fact) else ""
    after = r"(?!\w)(?![.,]\d)" if re.search(r"\w$", fact) else ""
    return re.search(before + re.escape(fact) + after, message) is not None
