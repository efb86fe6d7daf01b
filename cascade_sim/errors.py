"""Errors that are the user's to mend: the message is the whole explanation, no traceback follows."""

from collections.abc import Sequence


class UserError(Exception):
    """A message for people. The command line prints `error: …` and exits with code 2."""


class ScenarioError(UserError):
    """Everything that is wrong with a scenario, one problem per line of the message."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
