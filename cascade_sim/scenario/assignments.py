"""`key=value` as people write it: on the command line, in lists of a scenario, in files of variants.

Faults are ValueErrors of a few words, to which the caller adds where the text is and what to write.
"""

from typing import Any

from cascade_sim.scenario.yaml import parse

_OPEN, _CLOSE = "[{", "]}"


def key_and_value(text: str) -> tuple[str, str]:
    """Both sides of the first '=', the key without spaces around it.

    >>> key_and_value("cascade.slots = 3")
    ('cascade.slots', ' 3')
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError("no '='")
    if not key.strip():
        raise ValueError("the key is empty")
    return key.strip(), value


def yaml_value(text: str) -> Any:
    """The value as a scenario file would have it: a number, a text, a list.

    >>> yaml_value("[1, 0.5]")
    [1, 0.5]
    """
    document = parse(text)
    if document.problems:
        raise ValueError(f"cannot read the value: {document.problems[0].text}")
    return document.data


def split_values(text: str) -> list[str]:
    """Cut at commas that are in no brackets and no quotes.

    >>> split_values("[1, 0.5],[1, 0.8]")
    ['[1, 0.5]', '[1, 0.8]']
    """
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        if char == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
