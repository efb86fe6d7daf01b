"""YAML text to plain data, remembering the line and column of every key and value."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

KeyPath = tuple[str | int, ...]  # keys and list indices from the top, e.g. ("world", "slot_effects", 2)
Mark = tuple[int, int]  # line and column, both from 1

MERGE = "tag:yaml.org,2002:merge"
PLAIN = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
MAX_TEXT = 500_000  # characters: a few seconds of reading
MAX_VALUES = 100_000  # aliases of aliases can make a short text stand for billions of values


def paths_in(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    """The path of a value and every path in it, through mappings and lists."""
    steps: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value))
    return [path, *(p for step, inner in steps for p in paths_in(inner, (*path, step)))]


@dataclass(frozen=True)
class Problem:
    """What is wrong with the value at `path`. `mark` overrides the position of that path.

    `uses` are other paths whose values led to this verdict: if one of them is refused, the verdict is void.
    """

    path: KeyPath
    text: str
    mark: Mark | None = None
    uses: tuple[KeyPath, ...] = ()


@dataclass
class Document:
    """Plain data (dict, list, scalars) and where each of its parts is in the text."""

    data: Any = None
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def mark(self, path: KeyPath) -> Mark:
        """Position of the key at `path` (in a list, of the item), or of the nearest part above it."""
        while path and path not in self.values:
            path = path[:-1]
        return self.keys.get(path) or self.values.get(path) or (1, 1)


def parse(text: str) -> Document:
    """Read YAML 1.2. Nothing is raised: what is wrong is in `problems`. `data` is None for an empty text.

    Only plain YAML types are built (no objects). Duplicate keys, keys that are not scalars, unknown tags and
    aliases that contain themselves are problems. A merge (`<<: *anchor`) fills in keys that are not given.
    """
    yaml = YAML(typ="safe", pure=True)
    document = Document()
    if len(text) > MAX_TEXT:
        document.problems.append(
            Problem((), f"more than {MAX_TEXT:,} characters; a scenario has a few thousand")
        )
        return document
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ReusedAnchorWarning
            )  # sound YAML: the later anchor counts from there
            node = yaml.compose(text)
        if node is not None:
            document.data = _Builder(yaml, document).build(node, ())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        document.problems.append(Problem((), _plain(error), mark=where))
    except YAMLError as error:  # a character that YAML forbids
        position = getattr(error, "position", 0)
        position = position if isinstance(position, int) else 0
        character = text[position : position + 1]
        document.problems.append(
            Problem(
                (),
                f"the character {character!r} is not allowed in YAML; remove it",
                mark=_mark(text, position),
            )
        )
    except RecursionError:
        document.problems.append(Problem((), "nested too deeply; a scenario needs no more than six levels"))
    return document


def _mark(text: str, position: int) -> Mark:
    """Line and column of the character at `position`."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def _plain(error: MarkedYAMLError) -> str:
    """A sentence for a syntax error, with the usual cause where there is one."""
    problem = str(error.problem or error.context or "not valid YAML")
    if "'\\t'" in problem:
        return "a tab cannot indent YAML; use spaces"
    if "mapping values are not allowed" in problem:
        return "a second ':' in one entry; check the indentation, or quote the text"
    if "another document" in problem:
        return "a second document ('---') starts here; a scenario is one document"
    if "could not find expected ':'" in problem:
        return "the line before has no ':'; write `key: value`"
    if "expected ',' or" in problem and error.context_mark is not None:
        return (
            f"expected ',' or the end of the bracket opened on line {error.context_mark.line + 1}; close it"
        )
    if "<stream end>" in problem or "end of stream" in problem:
        return f"the text ends {error.context or 'too early'}; close the bracket or quote"
    return f"not valid YAML: {error.context + ', ' if error.context else ''}{problem}"


class _Builder:
    """Walks the composed nodes once: builds the data and notes positions and problems on the way."""

    def __init__(self, yaml: YAML, document: Document) -> None:
        self.yaml = yaml
        self.document = document
        self.open: set[int] = set()
        self.count = 0

    def build(self, node: Node, path: KeyPath) -> Any:
        self.document.values[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
        self.count += 1
        if id(node) in self.open:
            return self._problem(path, node, "an alias that contains itself")
        if self.count > MAX_VALUES:
            if self.count == MAX_VALUES + 1:
                self._problem((), node, f"more than {MAX_VALUES:,} values; check the aliases")
            return None
        if not isinstance(node, ScalarNode) and node.tag not in PLAIN:
            return self._problem(path, node, f"cannot read a value tagged {node.tag}; remove the tag")
        self.open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self.open.discard(id(node))

    def _scalar(self, node: Node, path: KeyPath) -> Any:
        try:
            return self.yaml.constructor.construct_object(node, deep=True)
        except (YAMLError, ValueError):  # an unknown tag, or `!!int abc`
            return self._problem(path, node, f"cannot read {node.value!r} as {node.tag}; remove the tag")

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        built: dict[str, Any] = {}
        merges: list[Node] = []
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._problem(path, key_node, "a key must be a word, not a list or mapping")
            elif key_node.tag == MERGE:
                merges.append(value_node)
            elif key_node.value in first:
                key = key_node.value
                text = f"duplicate key '{key}', first given on line {first[key]}; remove one"
                self._problem((*path, key), key_node, text)
            else:
                key = key_node.value
                first[key] = key_node.start_mark.line + 1
                self.document.keys[(*path, key)] = (first[key], key_node.start_mark.column + 1)
                built[key] = self.build(value_node, (*path, key))
        for merge in merges:
            self._merge(merge, path, built)
        return built

    def _merge(self, node: Node, path: KeyPath, built: dict[str, Any]) -> None:
        """Keys of the merged mapping(s) that are not given; the first mapping of a list wins."""
        for source in node.value if isinstance(node, SequenceNode) else [node]:
            if not isinstance(source, MappingNode) or id(source) in self.open:
                self._problem(path, source, "'<<' merges mappings only")
                return  # of a long list each would be a line
            inner = _Builder(self.yaml, Document())
            inner.open, inner.count = self.open, self.count
            merged = inner.build(source, path)
            self.document.problems += inner.document.problems
            self.count = inner.count
            if merged is None:  # too many values, which is a problem by now
                return
            for key in merged:
                if key in built:
                    continue
                built[key] = merged[key]
                for marks, merged_marks in (
                    (self.document.keys, inner.document.keys),
                    (self.document.values, inner.document.values),
                ):
                    depth = len(path)
                    marks.update(
                        {p: m for p, m in merged_marks.items() if len(p) > depth and p[depth] == key}
                    )

    def _problem(self, path: KeyPath, node: Node, text: str) -> None:
        mark = (node.start_mark.line + 1, node.start_mark.column + 1)
        self.document.problems.append(Problem(path, text, mark=mark))
