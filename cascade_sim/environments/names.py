"""What users, ads, advertisers and requests are called, and which of them a given name means."""

from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.store.store import LogStore


def whole_number(given: int | str, option: str) -> int:
    """The number that is given; UserError if it is none."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise UserError(f"{option}: expected an integer, found {given!r}")
    try:
        return int(given)
    except ValueError:
        raise UserError(f"{option}: expected an integer, found {given!r}") from None


class Names:
    """By their numbers. Kinds: users, ads, advertisers, requests."""

    are_given = False  # whether they have names beside their numbers

    def name(self, kind: str, code: int) -> str:
        return str(code)

    def request_name(self, request: int) -> str:
        """What a request is called, given the id that it has in the run."""
        return str(request)

    def code(self, kind: str, given: int | str, option: str, n: int) -> int:
        """Which of n is meant; UserError if none is."""
        number = whole_number(given, option)
        if not 0 <= number < n:
            raise UserError(f"{option}: no {kind[:-1]} {given}; the run has {kind} 0 to {n - 1}")
        return number

    def request(self, given: int | str, option: str) -> int:
        """The id of a request, or its number in the evaluation; whether it is there is not looked at."""
        return whole_number(given, option)


class LoggedNames(Names):
    """As a log calls them; what is no name there may be a number."""

    are_given = True

    def __init__(self, store: LogStore):
        self._store = store

    def name(self, kind: str, code: int) -> str:
        return self._store.name(kind, code)

    def request_name(self, request: int) -> str:
        return self.name("requests", request - FIRST_REQUEST["evaluate"])

    def code(self, kind: str, given: int | str, option: str, n: int, first: int = 0) -> int:
        """A name of the log, else a number from 0, or from `first`: of both, the name counts."""
        try:
            return self._store.code(kind, str(given))
        except UserError as error:
            text = str(given)
            if text.isdecimal() and (int(text) < n or first <= int(text) < first + n):
                return int(text)
            raise UserError(f"{option}: {error}") from None

    def request(self, given: int | str, option: str) -> int:
        first = FIRST_REQUEST["evaluate"]
        return self.code("requests", given, option, self._store.n_requests, first)
