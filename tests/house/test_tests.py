"""Tests that never waver: what can be told by reading them. Each rule is shown to catch a bad example."""

import ast

import pytest

from house.sources import parse, walk
from house.wording import sentences, wording
from places import TESTS

CLOCKS = {"time", "perf_counter", "monotonic", "process_time", "getrusage"}
LEGACY = {"rand", "randn", "randint", "random", "normal", "uniform", "choice", "permutation", "shuffle"}
TORCH_DRAWS = {"rand", "randn", "randint", "randperm", "normal", "randn_like", "rand_like"}

# Where a rule does not hold, and why.
ALLOWED = {
    ("sleep", "foundation/test_workers.py"): "polls for marks that other processes leave, up to HANG",
    ("sleep", "worlds/pool_jobs.py"): "a job that is at work until it is told to stop",
    ("sleep", "worlds/stoppable_runs.py"): "chooses the moment of a kill, and of the start of a race",
    ("sleep", "drills/half_open.py"): "how often a person asks, while others hang",
    ("limit", "drills/half_open.py"): "how long a person waits for an answer before it counts as none",
    ("sleep", "drills/survival.py"): "chooses the moment of a kill",
    ("sleep", "drills/many_machines.py"): "chooses the moment of a kill, and waits for machines to start",
}


def called(node):
    """`time.sleep(1)` -> ("time", "sleep"); of a deeper name the last two parts."""
    if not isinstance(node, ast.Call):
        return "", ""
    return last_name(getattr(node.func, "value", None)), last_name(node.func)


def last_name(node):
    return getattr(node, "attr", "") or getattr(node, "id", "")


def at_top_of_asserts(tree):
    """An assert with `or` passes for two reasons, and nobody knows for which."""
    asserts = (node for node in walk(tree) if isinstance(node, ast.Assert))
    return [n.lineno for n in asserts if isinstance(n.test, ast.BoolOp) and isinstance(n.test.op, ast.Or)]


def clocks_in_asserts(tree):
    """A clock read in an assert, or a name that was computed from one."""

    def reads_clock(node):
        return any(
            called(part)[1] in CLOCKS and called(part)[0] in ("time", "resource", "")
            for part in ast.walk(node)
        )

    bad = []
    for scope in [tree, *(node for node in walk(tree) if isinstance(node, ast.FunctionDef))]:
        nodes = list(ast.walk(scope)) if scope is not tree else tree.body
        timed = set()
        for node in nodes:
            if isinstance(node, ast.Assign):
                timed |= {name for name, value in assigned(node) if reads_clock(value)}
        for node in nodes:
            if isinstance(node, ast.Assert):
                names = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
                bad += [node.lineno] if timed & names or reads_clock(node.test) else []
    return bad


def assigned(node):
    """(name, the expression it is given) of `a = x` and of `a, b = x, y`."""
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=True)
        for place, value in pairs:
            yield from ((part.id, value) for part in ast.walk(place) if isinstance(part, ast.Name))


def short_limits(tree):
    """A time limit that is not HANG: a busy machine may miss any other."""
    keywords = (k for node in walk(tree) if isinstance(node, ast.Call) for k in node.keywords)
    return [k.value.lineno for k in keywords if k.arg == "timeout" and ast.unparse(k.value) != "HANG"]


def unseeded_generators(tree):
    """A generator without a seed; or a library's own one, which starts anew with each test, at the top."""
    bad = []
    for node in walk(tree):
        owner, name = called(node)
        without = isinstance(node, ast.Call) and not node.args and not node.keywords
        if name in ("default_rng", "Random", "RandomState") and without:
            bad.append(node.lineno)
        if name in LEGACY and ast.unparse(node.func) in (f"np.random.{name}", f"random.{name}"):
            bad.append(node.lineno)
    for statement in tree.body:
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            draws = (
                n for n in ast.walk(statement) if called(n)[0] == "torch" and called(n)[1] in TORCH_DRAWS
            )
            bad += [n.lineno for n in draws if "generator" not in {k.arg for k in n.keywords}]
    return bad


def sleeps(tree):
    """Sleeping in the hope that something has happened meanwhile."""
    return [node.lineno for node in walk(tree) if called(node) == ("time", "sleep")]


def own_example_settings(tree):
    """Hypothesis draws the same examples without a deadline: conftest.py says so once, nobody else."""
    keywords = (k for node in walk(tree) if called(node)[1] == "settings" for k in node.keywords)
    return [k.value.lineno for k in keywords if k.arg in ("deadline", "derandomize", "suppress_health_check")]


RULES = {
    "or": (at_top_of_asserts, "assert a or b"),
    "clock": (
        clocks_in_asserts,
        "started = time.monotonic()\nassert work() and time.monotonic() - started < 3",
    ),
    "limit": (short_limits, "child.communicate(timeout=10)"),
    "seed": (unseeded_generators, "rng = np.random.default_rng()"),
    "sleep": (sleeps, "time.sleep(0.5)"),
    "examples": (own_example_settings, "@settings(max_examples=5, deadline=200)\ndef test(): pass"),
}
MORE_BAD_EXAMPLES = [
    ("clock", "seconds = time.perf_counter() - started\nassert seconds < 1"),
    ("clock", "before = resource.getrusage(0)\nassert before.ru_utime < 1"),
    ("seed", "x = np.random.rand(3)"),
    ("seed", "rng = random.Random()"),
    ("seed", "X = torch.randn(3)"),
]
GOOD = """
def test():
    x = torch.randn(3)
    rng, other = np.random.default_rng(3), random.Random(1)
    child.communicate(timeout=HANG)
    assert (a or b) == c
"""
FILES = sorted(TESTS.rglob("*.py"))


@pytest.mark.parametrize("rule", RULES)
def test_every_test_keeps_the_rule(rule):
    find, _ = RULES[rule]
    broken = []
    for path in FILES:
        name = str(path.relative_to(TESTS))
        if (rule, name) not in ALLOWED:
            broken += [f"{name}:{line}" for line in find(parse(path))]
    assert broken == []


@pytest.mark.parametrize(("rule", "text"), [*((r, bad) for r, (_, bad) in RULES.items()), *MORE_BAD_EXAMPLES])
def test_a_rule_catches_what_it_is_for_and_nothing_else(rule, text):
    assert RULES[rule][0](ast.parse(text)) != []
    assert RULES[rule][0](ast.parse(GOOD)) == []


def test_every_exception_is_still_needed():
    for rule, name in ALLOWED:
        assert RULES[rule][0](parse(TESTS / name)) != [], name


def test_no_test_compares_with_a_sentence_without_saying_why():
    """`tells` and `refused` of answers/told.py compare with keys, values and numbers, whatever the words."""
    _, places = wording(TESTS)
    assert places == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("assert 'slots is larger than it may be' in told", ["asserts"]),
        ("assert told.startswith(f'{n} of the slots are empty')", ["asserts"]),
        ("assert all(part in told for part in ('the slots are too many', 'x'))", ["asserts"]),
        ("with pytest.raises(ValueError, match=r'slots .* are more than .* of the page'): pass", ["match="]),
        (
            "@pytest.mark.parametrize('said', ['the slots are too many', 'x'])\n"
            "def test_it(said):\n    assert said in told",
            ["cases"],
        ),
        ("assert tells(told, 'cascade.slots', 5, '1 to 1,000') and name == 'expected_ctr'", []),
        ("assert 'cascade.slots=5: 1 to 1,000' in told", []),
    ],
)
def test_a_sentence_is_told_from_keys_and_values(text, what):
    assert [found for found, _ in sentences(ast.parse(text))] == what
