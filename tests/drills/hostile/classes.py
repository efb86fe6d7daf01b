"""Misbehaving classes: models, bidders and click models of one's own that do what they should not.

A class is either refused with its name (by its `check-…` command, or by `run` before any work where it
misbehaves from the first call on), or what it does changes nothing: the run comes to the bytes of the same
class without the misbehaviour.
"""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from pathlib import Path
from random import Random

from drills.hostile.commands import OPTIONS, Answer, run
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import MARKET, Prepared
from worlds.stoppable_runs import contents, differences

FILE = "own_class.py"
CLASS = "Misbehaving"
TROUBLE = "# trouble: "  # where a method's trouble goes

MODEL = f"""\
import torch
from torch import nn


class {CLASS}(nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.request_side = nn.Linear(request_width, 4)
        self.ad_side = nn.Linear(ad_width, 4)
        self.bias = nn.Parameter(torch.zeros(()))
        given = ()
        {TROUBLE}__init__

    def encode_ads(self, ads):
        result, given = self.ad_side(ads), (ads,)
        {TROUBLE}encode_ads
        return result

    def forward(self, request, ads, pair):
        result = (self.request_side(request).unsqueeze(1) * ads).sum(-1) + self.bias
        given = (request, ads, pair)
        {TROUBLE}forward
        return result
"""
BIDDER = f"""\
import numpy as np

from cascade_sim.agents.bidding import Bidder


class {CLASS}(Bidder):
    STATE = ("share",)

    def __init__(self, portfolio):
        super().__init__(portfolio)
        self.share = np.full(self.n_advertisers, 0.9)
        given = (self.value, self.budget)
        {TROUBLE}__init__

    def bids(self, now):
        result, given = self.payable * self.share[self.owner], (self.value, self.budget)
        {TROUBLE}bids
        return result

    def participation(self, now):
        result, given = np.ones(self.n_advertisers), (self.value,)
        {TROUBLE}participation
        return result

    def observe(self, feedback, now):
        result, given = None, (feedback.clicks, feedback.spend_micros)
        self.share = np.where(feedback.clicks > 0, 0.99, 1.0) * self.share
        {TROUBLE}observe

    def state(self):
        result, given = super().state(), ()
        {TROUBLE}state
        return result

    def restore(self, state):
        given = tuple(state.values())
        {TROUBLE}restore
        super().restore(state)
"""
CLICK_MODEL = f"""\
import numpy as np


class {CLASS}:
    def __init__(self, slot_effects):
        self.slot_effects = slot_effects
        given = (slot_effects,)
        {TROUBLE}__init__

    def expected(self, true_ctr, shown):
        result = np.where(shown, true_ctr * self.slot_effects[: true_ctr.shape[1]], 0.0)
        given = (true_ctr, shown)
        {TROUBLE}expected
        return result

    def clicks(self, true_ctr, shown, u_click, u_continue):
        examined = shown & (u_continue < self.slot_effects[: true_ctr.shape[1]])
        result, given = (examined & (u_click < true_ctr), examined), (true_ctr, shown, u_click)
        {TROUBLE}clicks
        return result
"""
SORTS = {
    "model": (MODEL, ("__init__", "forward", "encode_ads")),
    "bidder": (BIDDER, ("__init__", "bids", "participation", "observe", "state", "restore")),
    "click model": (CLICK_MODEL, ("__init__", "expected", "clicks")),
}


@dataclass(frozen=True)
class Trouble:
    """What a method does before it returns; `result` is what it would return, `given` what it was given."""

    name: str
    code: str
    sorts: tuple[str, ...] = tuple(SORTS)
    methods: tuple[str, ...] = ()  # all, if empty
    is_early: bool = False  # only from the first call on: later, nobody could know
    is_allowed: bool = False  # another answer, but a lawful one: the class is then another class


RAISING = (
    "ValueError('no')", "KeyError('x')", "SystemExit(0)", "SystemExit('bye')", "MemoryError()",
    "StopIteration()", "GeneratorExit()", "AssertionError()", "RuntimeError('a\\nb')",
    "UnicodeError('\\ud800')", "ExceptionGroup('g', [ValueError()])",
    "type('Own', (BaseException,), {})('mine')", "type('Mute', (Exception,), {'__str__': lambda e: 1 / 0})()",
    "FileNotFoundError(2, 'nowhere')", "TimeoutError()", "BrokenPipeError()", "RecursionError()",
)  # fmt: skip
# On an array or tensor `r`; what comes of it is returned.
RESULTS = {
    "NaN": "r * float('nan')", "infinity": "r * 0 + float('inf')", "negative": "r * 0 - 1.0",
    "huge": "r * 0 + 1e30", "None": "None", "a list": "r.tolist()", "a number": "0.5", "text": "'0.5'",
    "one too few": "r[:-1]", "one dimension more": "r[..., None]", "empty": "r[:0]",
    "the first alone": "r[:1]", "an object": "object()", "a generator": "(x for x in r)",
}  # fmt: skip
NUMPY_RESULTS = {
    "text": "r.astype(str)", "complex": "r + 1j", "objects": "r.astype(object)", "a matrix": "np.asmatrix(r)",
    "read-only": "(r.setflags(write=False), r)[1]", "big-endian": "r.astype('>f8')",
    "masked": "np.ma.masked_array(r, r > 0)",
}  # fmt: skip
LAWFUL = {"half floats": "r.astype('f2')", "integers": "r.astype(int)", "a subnormal": "r * 0 + 5e-324"}
# Nothing of this is a class's business, and nothing of it may change a result.
EFFECTS = {
    "prints": "print('hello', flush=True)", "prints to stderr": "import sys; print('hello', file=sys.stderr)",
    "changes the folder": "import os; os.chdir('/')", "seeds numpy": "import numpy; numpy.random.seed(1)",
    "seeds random": "import random; random.seed(1)", "seeds torch": "import torch; torch.manual_seed(1)",
    "draws from numpy": "import numpy; numpy.random.rand(5)",
    "draws from torch": "import torch; torch.rand(5)",
    "sets threads": "import torch; torch.set_num_threads(2)",
    "sets the dtype": "import torch; torch.set_default_dtype(torch.float64)",
    "no gradients": "import torch; torch.set_grad_enabled(False)",
    "makes numpy strict": "import numpy; numpy.seterr(all='raise')",
    "makes warnings errors": "import warnings; warnings.simplefilter('error')",
    "warns": "import warnings; warnings.warn('look')", "keeps a file open": "self.file = open(__file__)",
    "closes stdout": "import sys; sys.stdout.close()",
    "changes the environment": "import os; os.environ['CASCADE_SIM_CACHE'] = '/nowhere'",
    "starts a thread": "import threading; threading.Thread(target=print, daemon=True).start()",
    "ignores Ctrl-C": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "a low recursion limit": "import sys; sys.setrecursionlimit(200)",
    "changes the locale": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "stops the garbage collector": "import gc; gc.disable()",
}  # fmt: skip
# Each run would come out otherwise, or it depends on how it is served.
UNSTEADY = {
    "other draws each time": "r + 1e-2 * __import__('random').SystemRandom().random()",
    "what the clock says": "r + 1e-2 * (__import__('time').time_ns() % 1000) / 1000",
    "more with every call": "r + 1e-3 * len(self.__dict__.setdefault('calls', []).append(0) or self.calls)",
}
# Of a click model's clicks, which are two arrays; and of what a bidder keeps.
PAIRS = {
    "one array": "result[0]", "three": "(*result, result[0])", "numbers": "tuple(r + 0.5 for r in result)",
    "unseen clicks": "(result[0] | True, result[1] & False)", "short": "tuple(r[:, :-1] for r in result)",
    "NaN": "tuple(r * float('nan') for r in result)", "None": "None",
}  # fmt: skip
STATES = {
    "nothing": "{}", "None": "None", "objects": "{'share': [object()]}",
    "a name with /": "{'a/b': self.share}", "views": "{'share': self.share}",
    "text": "{'share': 'x'}", "more": "{**result, 'calls': 3}",
}  # fmt: skip
ARRAYS = {
    "model": ("forward", "encode_ads"),
    "bidder": ("bids", "participation"),
    "click model": ("expected",),
}


def troubles() -> list[Trouble]:
    """Every trouble there is."""
    found = [Trouble(f"raises {error}", f"raise {error}") for error in RAISING]
    found.append(Trouble("recurs for ever", "(lambda f: f(f))(lambda f: f(f))"))
    found += [Trouble(name, code) for name, code in EFFECTS.items()]
    found.append(
        Trouble(
            "changes what it is given",
            "for array in given:\n    array[...] = array + 1",
            methods=("forward", "encode_ads", "observe", "expected", "clicks", "bids", "restore"),
        )
    )
    for sort, methods in ARRAYS.items():
        results = {**RESULTS, **UNSTEADY, **({} if sort == "model" else NUMPY_RESULTS)}
        for name, code in results.items():
            code = f"r = result; result = {code}"
            found.append(Trouble(f"returns {name}", code, (sort,), methods, is_early=name in UNSTEADY))
        if sort != "model":
            for name, code in LAWFUL.items():
                code = f"r = result; result = {code}"
                found.append(Trouble(f"returns {name}", code, (sort,), methods, is_allowed=True))
    for name, code in PAIRS.items():
        found.append(Trouble(f"returns {name}", f"result = {code}", ("click model",), ("clicks",)))
    for name, code in STATES.items():
        found.append(Trouble(f"keeps {name}", f"result = {code}", ("bidder",), ("state",)))
    return found


def source(sort: str, method: str = "", trouble: str = "", from_call: int = 1) -> str:
    """The class; with the trouble in this method, from that call on."""
    lines = []
    for line in SORTS[sort][0].splitlines():
        indent, mark, name = line.partition(TROUBLE)
        if mark and name == method and trouble:
            counted = f"{CLASS}.count = getattr({CLASS}, 'count', 0) + 1\nif {CLASS}.count >= {from_call}:\n"
            lines.append(textwrap.indent(counted + textwrap.indent(trouble, "    "), indent))
        elif not mark:
            lines.append(line)
    return "\n".join(lines) + "\n"


def scenario(sort: str) -> str:
    """The tiny market with the class in its place."""
    if sort == "model":
        return MARKET.replace("small: {", f'small: {{kind: "{FILE}:{CLASS}", ').replace(
            "dims: 4, hidden: 4, ", ""
        )
    if sort == "bidder":
        return MARKET.rstrip()[:-1] + f', bidders: {{own: {{kind: "{FILE}:{CLASS}"}}}}}}\n'
    return MARKET.rstrip()[:-1] + f', users: {{click_model: "{FILE}:{CLASS}"}}}}\n'


def prepare(prepared: Prepared) -> None:
    """The well-behaved runs to compare with."""
    prepared.finished("market")
    for sort in SORTS:
        prepared.make(f"behaved {sort}", lambda sort=sort: _behaved(prepared, sort))


def _behaved(prepared: Prepared, sort: str) -> dict[str, bytes]:
    place = prepared.place(f"behaved {sort}")
    answer = _run(prepared, place, sort, source(sort))
    assert answer.code == 0, answer.err
    return _measured(place / "out")


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    sort = rng.choice(sorted(SORTS))
    trouble = rng.choice([trouble for trouble in troubles() if sort in trouble.sorts])
    own = SORTS[sort][1]
    method = rng.choice([name for name in own if not trouble.methods or name in trouble.methods])
    from_call = 1 if rng.random() < 0.7 or trouble.is_early else rng.choice((2, 3, 10, 40))
    text = source(sort, method, trouble.code, from_call)
    what = f"a {sort} whose {method} {trouble.name}" + (f" from call {from_call}" if from_call > 1 else "")
    (place / FILE).write_text(text)
    if sort != "click model":
        checked = run([f"check-{sort}", f"{place / FILE}:{CLASS}"], place, cache=prepared.cache)
        if checked.is_crash:
            return Outcome(CRASH, f"{what}; check-{sort}", checked.last_words)
        if checked.code not in (0, 1, 2):
            return Outcome(WRONG, f"{what}; check-{sort}", f"exit code {checked.code}; {checked.last_words}")
    is_found = sort != "click model" and checked.code != 0
    answer = _run(prepared, place, sort, text)
    if trouble.is_allowed and answer.code == 0:
        return Outcome(HARMLESS, what)
    must_be_early = from_call == 1 and method != "restore"  # which only a resumed run calls
    return judged(prepared, place, sort, what, answer, is_found, must_be_early)


def judged(
    prepared: Prepared, place: Path, sort: str, what: str, answer: Answer, is_found: bool, must_be_early: bool
) -> Outcome:
    """The verdict on a run with the class; `is_found`: its check has found it wanting."""
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.code == 0:
        if _measured(place / "out") == prepared.kept[f"behaved {sort}"]:
            return Outcome(HARMLESS, what)
        other = differences(_measured(place / "out"), prepared.kept[f"behaved {sort}"])
        # What a run cannot know the check of the class says: that it is not steady.
        return Outcome(DETECTED if is_found else SILENT, what, f"differs: {', '.join(other[:3])}")
    if answer.code != 2 or not answer.names(CLASS, FILE, sort):
        return Outcome(WRONG, what, f"exit code {answer.code}; {answer.last_words}")
    if must_be_early and (place / "out" / "logs").exists():
        return Outcome(WRONG, what, f"refused after work: {answer.last_words}")
    return Outcome(DETECTED, what, answer.last_words)


def _run(prepared: Prepared, place: Path, sort: str, text: str) -> Answer:
    """In a folder of its own, with the paths that one would write there."""
    (place / FILE).write_text(text)
    (place / "own.yaml").write_text(scenario(sort))
    words = ["run", "own.yaml", "--out", "out", *OPTIONS]
    return run(words, place, cache=place / "cache", first=lambda: os.chdir(place))


def _measured(out: Path) -> dict[str, bytes]:
    """What the run measured and logged: without what names the class's file."""
    found = contents(out)
    return {name: data for name, data in found.items() if name == "metrics.json" or name.startswith("logs/")}
