"""Does a retriever keep the contract of the engine? Tests a class the way it will be built and asked.

    check_retriever("path/to/file.py:MyRetriever")       # or the class itself
    check_retriever(MyRetriever, options={"taste": 0.2})

The contract: `Class(visible, **options)` with `retrieve(requests, size, available)` -> [R, n <= size] ad ids,
ascending, each once, -1 at the end, of ads that are there; and `score(requests, ids)` -> [R, m], finite. It
changes nothing it is given, and a request has the same answer in every batch. The tests need no run:
a small world, whose ads come and go, is made here.
"""

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.cascade.retrievers.custom import (
    Requests,
    Visible,
    availability,
    find_retriever,
    retrieved_fault,
    score_fault,
)
from cascade_sim.checks.contract import Check, CheckFailed, Findings, Listener, Remark, run_checks
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.plugins import RETRIEVER_KINDS, kind_of, require_reference
from cascade_sim.scenario.sections import SIMILARITY, Churn, History, World
from cascade_sim.world.availability import AdAvailability
from cascade_sim.world.world import World as Seen
from cascade_sim.world.world import build_world

USERS, ADS, ADVERTISERS = 60, 300, 30
REQUESTS, SIZE, SEED = 96, 40, 7
DAY = 86_400.0
SPEED_SECONDS = 0.5
SLOW = 5e-3  # seconds a request, from where on a note is due


def check_retriever(
    retriever: type | str,
    *,
    options: Mapping[str, Any] | None = None,
    world: World | None = None,
    home: Path = Path("."),
    on_finding: Listener | None = None,
) -> Findings:
    """Test a retriever: a class, or a kind as a scenario names it. What the checks find is not raised.

    Args:
        retriever: The class, or `path/to/file.py:Class`.
        options: Keywords of the class.
        world: Section `world` of a scenario, for its feature groups; its sizes are not used.
        home: Where files are looked for, after the working folder.
        on_finding: Hears of each check as it ends.

    Returns:
        What each check found; `ok` if the class can be used.

    Raises:
        UserError: the kind or the file is not found.

    >>> import numpy as np
    >>> from cascade_sim.cascade.retrievers.custom import best_ads
    >>> class Popular:
    ...     def __init__(self, visible):
    ...         self.value = visible.popularity.astype(np.float32)
    ...     def score(self, requests, ids):
    ...         return self.value[ids]
    ...     def retrieve(self, requests, size, available):
    ...         return best_ads(np.tile(self.value, (len(requests), 1)), size, available)
    >>> check_retriever(Popular).ok
    True
    """
    if isinstance(retriever, str):
        require_reference(retriever, home, RETRIEVER_KINDS)
        if retriever == SIMILARITY:
            raise UserError(f"{SIMILARITY} is built in; name a class of yours, such as path/to/file.py:Class")
        subject = Subject(retriever, options or {}, home, None, world or World())
    elif isinstance(retriever, type):
        subject = Subject(kind_of(retriever), options or {}, home, retriever, world or World())
    else:
        raise UserError(f"check_retriever: expected a class or the kind of one, found {retriever!r}")
    with np.errstate(all="ignore"):  # what a division by 0 leads to is checked, not announced
        return run_checks(CHECKS, subject, on_finding)


@dataclass(frozen=True)
class Subject:
    """The class under test, its options, and the world that it is tested in."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    home: Path = Path(".")
    own: type | None = None  # the class itself, where it was given
    spec: World = World()

    @property
    def cls(self) -> type[Any]:
        return self.own or find_retriever(self.kind, self.home)

    @cached_property
    def world(self) -> Seen:
        """A small world with the given features; ads come and go, and users have clicked before."""
        sizes = {"users": USERS, "ads": ADS, "advertisers": ADVERTISERS, "replay": None}
        more = {"churn": self.spec.churn or Churn(), "history": self.spec.history or History()}
        return build_world(self.spec.model_copy(update={**sizes, **more}), SEED)

    @property
    def lives(self) -> AdAvailability:
        assert self.world.lives is not None
        return self.world.lives

    @cached_property
    def built(self) -> Any:
        return self.build()

    def build(self) -> Any:
        """A fresh retriever, as the engine builds it."""
        return self.cls(Visible.of(self.world), **self.options)

    def requests(self, rows: Any = slice(None)) -> Requests:
        """Requests of several days, some of them of one user."""
        ids = np.arange(REQUESTS, dtype=np.int64)
        made = (ids, (ids * 7 % USERS).astype(np.int32), np.sin(ids).astype(np.float32), ids * DAY / 8)
        return Requests(*(array[rows] for array in made))

    def retrieved(
        self, rows: Any = slice(None), size: int = SIZE, lives: AdAvailability | None = None
    ) -> Any:
        """What a built one brings, well formed; CheckFailed if it is not."""
        requests = self.requests(rows)
        available = availability(requests, lives)
        found = self.built.retrieve(requests, size, available)
        fault = retrieved_fault(found, len(requests), size, ADS, available)
        if fault:
            raise CheckFailed(fault)
        return found

    def scored(self, ids: np.ndarray, rows: Any = slice(None)) -> Any:
        """What it says of ads; CheckFailed if that is not well formed."""
        said = self.built.score(self.requests(rows), ids)
        fault = score_fault(said, ids.shape)
        if fault:
            raise CheckFailed(fault)
        return said


def imports(subject: Subject) -> str:
    """The class can be imported by the name it was given."""
    assert isinstance(subject.cls, type)
    return subject.kind


def constructs(subject: Subject) -> str:
    """The signature takes what is visible and the options, and both methods are there."""
    cls = subject.cls
    signature = inspect.signature(cls)
    try:
        signature.bind(Visible.of(subject.world), **subject.options)
    except TypeError as error:
        words = f"expected {cls.__name__}(visible, **options), found {cls.__name__}{signature}: {error}"
        raise CheckFailed(words) from error
    missing = [name for name in RETRIEVER_KINDS.methods if not callable(getattr(cls, name, None))]
    if missing:
        raise CheckFailed(f"expected the methods retrieve and score, found none called {', '.join(missing)}")
    assert subject.built is not None
    call = ", ".join(("visible", *(f"{key}={value!r}" for key, value in subject.options.items())))
    return f"{cls.__name__}({call})"


def retrieves(subject: Subject) -> str:
    """Ids of the right shape and kind: ascending, each once, -1 at the end, no more than asked for."""
    for size in (SIZE, 2, ADS):
        found = subject.retrieved(size=size)
    if (found < 0).all():
        raise CheckFailed(f"expected ads for some request, found none for any of {REQUESTS}")
    return f"{found.dtype} ids, ascending, each once, at most as many as asked for"


def there(subject: Subject) -> str:
    """Of ads that come and go, only those that are there."""
    subject.retrieved(lives=subject.lives)
    return "only ads that are there when the request comes"


def scores(subject: Subject) -> str:
    """A finite score of every ad."""
    said = subject.scored(np.tile(np.arange(ADS, dtype=np.int32), (REQUESTS, 1)))
    return f"{said.dtype} of shape [R, m], finite"


def repeatable(subject: Subject) -> str:
    """The same requests have the same answers: asked again, by another object, and a part of them alone."""
    ids = np.tile(np.arange(ADS, dtype=np.int32), (REQUESTS, 1))
    first, said = subject.retrieved().copy(), subject.scored(ids).copy()
    if not (same(first, subject.retrieved()) and same(said, subject.scored(ids))):
        raise CheckFailed(
            "expected the same answer when asked twice, found another; draw nothing, keep nothing"
        )
    other = subject.build()
    again = other.retrieve(subject.requests(), SIZE, availability(subject.requests(), None))
    if not (same(first, again) and same(said, other.score(subject.requests(), ids))):
        raise CheckFailed("expected the same answer of another object, found another; give draws a seed")
    return "the same answer each time, and of each object"


def by_request(subject: Subject) -> str:
    """A request has the same answer in every batch."""
    ids = np.tile(np.arange(ADS, dtype=np.int32), (REQUESTS, 1))
    whole, said = subject.retrieved().copy(), subject.scored(ids).copy()
    for rows in (slice(0, 1), slice(10, 31), slice(REQUESTS - 1, None, -3)):
        part = subject.retrieved(rows)
        if not np.array_equal(_wide(part), _wide(whole[rows])):
            at = int(np.argmax((_wide(part) != _wide(whole[rows])).any(axis=1)))
            raise CheckFailed(
                f"expected the same ads for a request in every batch, found others for request "
                f"{subject.requests(rows).ids[at]} among {len(part)} than among {REQUESTS}"
            )
        if not np.allclose(subject.scored(ids[rows], rows), said[rows], rtol=1e-4, atol=1e-6):
            raise CheckFailed("expected the same scores for a request in every batch, found others")
    return "the same ads for a request in every batch"


def side_effects(subject: Subject) -> str:
    """What it is given stays as it is. In a run it cannot be written to, here requests and ids can."""
    requests, ids = subject.requests(), np.tile(np.arange(ADS, dtype=np.int32), (REQUESTS, 1))
    before = {"ids": ids.copy(), **{f"requests.{k}": array.copy() for k, array in vars(requests).items()}}
    subject.built.retrieve(requests, SIZE, availability(requests, None))
    subject.built.score(requests, ids)
    after = {"ids": ids, **{f"requests.{k}": array for k, array in vars(requests).items()}}
    changed = [name for name, was in before.items() if not same(was, after[name])]
    if changed:
        raise CheckFailed(f"expected the inputs to stay as they are, found {', '.join(changed)} changed")
    return "inputs stay as they are"


def order(subject: Subject) -> str:
    """By its own score no ad that it leaves out should be better than one that it brings."""
    found = subject.retrieved()
    said = subject.scored(np.tile(np.arange(ADS, dtype=np.int32), (REQUESTS, 1)))
    is_in = np.zeros(said.shape, bool)
    row, column = np.nonzero(found >= 0)
    is_in[row, found[row, column]] = True
    worst = np.where(is_in, said, np.inf).min(axis=1)
    best_out = np.where(is_in, -np.inf, said).max(axis=1)
    n = int((best_out > worst + 1e-6 * np.abs(worst)).sum())
    if n:
        raise Remark(
            f"for {n} of {REQUESTS} requests an ad that is left out has a higher score than one that is "
            "brought; late answers and traces go by the score"
        )
    return "the ads with the highest scores are brought"


def speed(subject: Subject) -> str:
    """Requests per second in the small world."""
    n, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SPEED_SECONDS or n < 2:
        subject.built.retrieve(subject.requests(), SIZE, availability(subject.requests(), subject.lives))
        n += 1
    each = passed / n / REQUESTS
    text = f"{1 / each:,.0f} requests/s from {ADS} ads"
    if each > SLOW:
        raise Remark(f"{text}: is there a loop over requests or ads?")
    return text


def same(first: Any, second: Any) -> bool:
    """Whether two arrays have the same type, shape and bits."""
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def _wide(ids: np.ndarray) -> np.ndarray:
    """As wide as was asked for: how far a set is padded does not matter."""
    return np.pad(ids, ((0, 0), (0, SIZE - ids.shape[1])), constant_values=-1)


WELL_FORMED = ("constructor", "retrieve", "score")
CHECKS: tuple[Check[Subject], ...] = (
    ("import", imports, ()),
    ("constructor", constructs, ("import",)),
    ("retrieve", retrieves, ("import", "constructor")),
    ("available", there, ("import", "constructor", "retrieve")),
    ("score", scores, ("import", "constructor")),
    ("repeatable", repeatable, WELL_FORMED),
    ("by request", by_request, (*WELL_FORMED, "repeatable")),
    ("side effects", side_effects, WELL_FORMED),
    ("order", order, WELL_FORMED),
    ("speed", speed, WELL_FORMED),
)
