"""What goes to a terminal: text in which nothing steers it, and the one function that prints.

A name from a log may hold a sequence that clears the screen, or marks that turn the order of letters around.
Such signs are written out, `\\x1b` for ESC and `\\u202e` for RIGHT-TO-LEFT OVERRIDE; the reader sees what
is there. Signs beyond ASCII are written as JSON writes them, so JSON that is printed stays the same JSON.

Colours are signs of that kind as well. Text of ours that has them is `Shown`: it was made harmless before it
was coloured. Whatever else is printed is made harmless by `echo`.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORT = {"\t": "\\t", "\r": "\\r"}
STEERING = (
    *range(0x20),  # C0
    *range(0x7F, 0xA0),  # DEL, C1
    *(0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),  # directions of writing
    *(0x2028, 0x2029),  # ends of lines and paragraphs
    *(0x200B, 0x2060, 0xFEFF),  # of no width, and without a use in any script
)
IN_LINE = {
    code: SHORT.get(chr(code)) or (f"\\x{code:02x}" if code < 0x7F else f"\\u{code:04x}") for code in STEERING
} | {0x0A: "\\n"}
IN_TEXT = {code: written for code, written in IN_LINE.items() if code != 0x0A}
IN_PAGE = {code: written for code, written in IN_TEXT.items() if code != 0x09}


class Shown(str):
    """Text that a terminal may get as it is."""

    __slots__ = ()

    def rstrip(self, chars: str | None = None, /) -> Shown:
        return Shown(super().rstrip(chars))


def shown(text: object) -> Shown:
    r"""The text with every sign written out that is none to be read; lines stay lines.

    >>> print(shown("ad \x1b[2J\u202e"))
    ad \x1b[2J\u202e
    """
    return text if isinstance(text, Shown) else Shown(whole_signs(str(text)).translate(IN_TEXT))


def in_line(name: object) -> str:
    """A name within a line: an end of a line in it is written out as well."""
    return whole_signs(str(name)).translate(IN_LINE)


def in_page(html: str) -> str:
    """The text of a page, its signs written out."""
    return whole_signs(html).translate(IN_PAGE)


def whole_signs(text: str) -> str:
    """Halves of characters (lone surrogates), which no file takes, are written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def joined(parts: Iterable[str], between: str = "\n") -> Shown:
    """Parts one after the other: colours of those that are Shown stay."""
    return Shown(between.join(map(shown, parts)))


def echo(message: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print it. All that this package prints comes by here."""
    import click

    click.echo(shown(message), nl=nl, err=err)
