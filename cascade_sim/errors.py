"""Errors that are the user's to mend: the message is the whole explanation, no traceback follows."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class UserError(Exception):
    """A message for people. The command line prints `error: …` and exits with code 2."""


class Notice(UserWarning):
    """What a reader should know and need not mend. The command line prints `note: …`."""


class ScenarioError(UserError):
    """Everything that is wrong with a scenario, one problem per line of the message."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


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
