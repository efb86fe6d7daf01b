"""Errors that are the user's to fix: the message is the whole explanation, no traceback follows."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from cascade_sim.foundation.terminal import shown

MAX_OF_WORD = 300  # characters of a value without a space in it that are shown; paths are shorter
MAX_OF_LINE = 3000
MAX_LINES = 100
MAX_OF_LIST = 20_000  # characters of all problems that are told at once; the first is told whatever it takes


def shortened(text: str) -> str:
    """A message in which no value is echoed whole that is far too long to be read.

    >>> len(shortened("found " + "a" * 100_000)) < 400
    True
    """
    text = shown(text)
    text = re.sub(
        rf"\S{{{MAX_OF_WORD + 1},}}",
        lambda word: f"{word[0][: MAX_OF_WORD // 2]}… ({len(word[0]):,} characters)",
        text,
    )
    lines = [
        line if len(line) <= MAX_OF_LINE else f"{line[:MAX_OF_LINE]}… ({len(line):,} characters)"
        for line in text.split("\n")
    ]
    return "\n".join(lines)


# How libraries say that there is no memory, where they raise something else than a MemoryError.
_NO_MEMORY = (
    *("failed to map segment", "cannot allocate memory", "can't allocate memory", "std::bad_alloc"),
    *("can't start new thread", "not enough memory"),
)


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came of, is a want of memory."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        words = str(error).lower()
        if isinstance(error, MemoryError) or any(said in words for said in _NO_MEMORY):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


class UserError(Exception):
    """A message for people. The command line prints `error: …` and exits with code 2."""

    def __init__(self, message: object = "") -> None:
        super().__init__(shortened(str(message)))


class Notice(UserWarning):
    """What a reader should know and need not fix. The command line prints `note: …`."""


class ScenarioError(UserError):
    """Everything that is wrong with a scenario, one problem per line of the message."""

    def __init__(self, problems: Sequence[str]) -> None:
        shown = [shortened(problem) for problem in problems[:MAX_LINES]]
        while len(shown) > 1 and sum(map(len, shown)) > MAX_OF_LIST:
            shown.pop()
        if len(problems) > len(shown):
            shown.append(f"… and {len(problems) - len(shown):,} more")
        super().__init__("\n".join(shown))
        self.problems = tuple(shown)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like `word`, whatever its case, '-' and '_' alike; None if none is near."""
    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.lower().replace("-", "_"), name)
    near = get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'slots'?` for the nearest known name, or an empty string if none is near."""
    near = nearest(word, known)
    return f"; did you mean '{near}'?" if near is not None else ""


def unknown_name(what: str, word: str, known: Iterable[str]) -> str:
    """`unknown model 'lgloss'; did you mean 'logloss'? Known: logloss, rank`."""
    names = list(known)
    hint = did_you_mean(word, names)
    listed = ", ".join(names) if names else "none"
    return f"unknown {what} '{word}'{hint or ';'} {'Known' if hint else 'known'}: {listed}"
