"""Which tests compare with a sentence: a clearer wording would break them, though nothing is broken.

    python -m tests.house.wording [FILE or FOLDER below tests ...]

A sentence is text of four or more words in a row of a literal; keys, values, numbers and paths are no words.
Counted are asserts that compare with one (`==`, `in`, `startswith`, `endswith`, also one by one of a list),
`match=` of `pytest.raises` and `pytest.warns`, and cases of a parametrised test that end in either. Where the
wording is what is tested, a line that starts with `# Wording:` says why: of a test inside it, else of a file.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

WORDS = 4
MARK = "# Wording: "
OPERATORS = (ast.In, ast.NotIn, ast.Eq, ast.NotEq)
ENDS = ("startswith", "endswith")


def is_sentence(text: str) -> bool:
    """Whether a literal or a pattern has words in it, and not names and values alone."""
    plain = re.sub(r"\\(.)", r"\1", text.replace(".*", " "))
    words = (word.strip(".,:;!?()[]'\"“”…") for word in plain.split())
    return sum(bool(re.fullmatch(r"[A-Za-z]+(['’-][A-Za-z]+)*", word)) for word in words) >= WORDS


def literal(node: ast.AST | None) -> list[str]:
    """The texts that an expression is made of, those given to calls aside."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return ["".join(text for part in node.values for text in literal(part) or [" "])]
    if isinstance(node, ast.BinOp):
        return [" ".join((*literal(node.left), *literal(node.right)))]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [text for part in node.elts for text in literal(part)]
    if isinstance(node, ast.Dict):
        return [text for part in (*node.keys, *node.values) for text in literal(part)]
    return []


def holds_sentence(node: ast.AST) -> bool:
    """Whether one of the texts of an expression is a sentence."""
    return any(map(is_sentence, literal(node)))


def compared(test: ast.AST) -> Iterator[ast.AST]:
    """The expressions that an assert compares something with."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], OPERATORS):
            yield from (node.left, *node.comparators)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ENDS:
            yield from node.args
        if isinstance(node, ast.comprehension):
            yield node.iter


def cases(function: ast.FunctionDef) -> Iterator[tuple[str, ast.AST]]:
    """(name, value) of every case that a parametrised test is given."""
    for call in function.decorator_list:
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "parametrize":
            continue
        names = [name.strip() for text in literal(call.args[0]) for name in text.split(",")]
        for case in getattr(call.args[1], "elts", []):
            if isinstance(case, ast.Call) and getattr(case.func, "attr", "") == "param":
                case = ast.copy_location(ast.Tuple(case.args), case)
            values = case.elts if isinstance(case, ast.Tuple | ast.List) and len(names) > 1 else [case]
            yield from ((name, value) for name, value in zip(names, values, strict=False))


def sentences(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(what compares with a sentence, line) of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and any(map(holds_sentence, compared(node.test))):
            yield "asserts", node.lineno
        if isinstance(node, ast.keyword) and node.arg == "match" and holds_sentence(node.value):
            yield "match=", node.value.lineno
        if isinstance(node, ast.FunctionDef):
            used = [
                part
                for inner in ast.walk(node)
                if isinstance(inner, ast.Assert)
                for part in compared(inner.test)
            ]
            used += [k.value for k in ast.walk(node) if isinstance(k, ast.keyword) and k.arg == "match"]
            names = {part.id for part in used if isinstance(part, ast.Name)}
            for name, value in cases(node):
                if name in names and holds_sentence(value):
                    yield "cases", value.lineno


def meant(text: str, tree: ast.Module) -> list[range]:
    """The lines of what says why its wording is tested: tests, or all of the file."""
    tests = [
        range(min([node.lineno, *(one.lineno for one in node.decorator_list)]), (node.end_lineno or 0) + 1)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    ]
    marks = [n for n, line in enumerate(text.split("\n"), 1) if line.strip().startswith(MARK)]
    whole = range(text.count("\n") + 2)
    return [next((lines for lines in tests if mark in lines), whole) for mark in marks]


def wording(tests: Path) -> tuple[Counter[str], list[str]]:
    """Counts of the tests of a checkout, and the places in files that do not say why."""
    counts: Counter[str] = Counter()
    places: list[str] = []
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        whys = meant(text, tree)
        for what, line in sentences(tree):
            is_meant = any(line in lines for lines in whys)
            counts[f"sentences in tests, {what}" + (", wording meant" if is_meant else "")] += 1
            if not is_meant:
                places.append(f"{path.relative_to(tests).as_posix()}:{line} {what}")
    return counts, places


if __name__ == "__main__":
    counts, places = wording(Path(__file__).resolve().parents[1])
    print(*(place for place in places if place.startswith(tuple(sys.argv[1:]) or "")), sep="\n")
    print(*(f"{name}: {count}" for name, count in sorted(counts.items())), sep="\n")
