"""What the README and the pages of docs/ show is true: their code blocks run, their links lead somewhere."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import runpy
import shutil
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import cascade_sim
from answers.told import refused
from cascade_sim.cli import cli, main
from cascade_sim.scenario.file import load_scenario
from house.blocks import FENCE, PAGES, Block, blocks, count_text, made
from places import ROOT
from worlds.pool_jobs import in_this_process
from worlds.tiny_market import TINY

pytest_plugins = ["pytester"]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a reader stands: the shipped scenarios, of which quick is smaller here, and its run.

    No figure is drawn and no process started: that takes longest, and other tests see to it.
    """
    # pytester forgets the modules that came in during a test, and these cannot be imported a second time.
    once = ("matplotlib.pyplot", "matplotlib.backends.backend_svg", "torch._dynamo", "numba.core.boxing")
    for name in once:
        importlib.import_module(name)
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "scenarios", folder / "scenarios")
    quick = folder / "scenarios" / "quick.yaml"
    quick.write_text(smaller(quick.read_text(encoding="utf-8"), TINY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADE_SIM_CACHE", str(folder / "cache"))
        patch.setattr("cascade_sim.analysis.report.page.draw_all", lambda metrics: {})
        patch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)
        patch.chdir(folder)
        assert main(["run", "scenarios/quick.yaml", "--quiet"]) == 0
        yield folder


def smaller(text: str, overrides: tuple[str, ...]) -> str:
    """A scenario's text with these keys changed in place."""
    from ruamel.yaml import YAML

    data = YAML(typ="safe").load(text)
    for override in overrides:
        path, value = override.split("=")
        *way, key = path.split(".")
        at = data
        for step in way:
            at = at.setdefault(step, {})
        at[key] = YAML(typ="safe").load(value)
    return yaml_text(data)


def yaml_text(data: Any) -> str:
    import io

    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML(typ="safe").dump(data, text)
    return text.getvalue()


def merged(below: Any, above: Any) -> Any:
    if isinstance(above, Mapping) and "routes" in above:
        return above  # they stand in place of the other keys of retrieval
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}
    return above


@pytest.mark.drill
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_does_what_the_page_says(page, workplace, pytester, monkeypatch):
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("CASCADE_SIM_CACHE", str(workplace / "cache"))
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.language == "python":
            code = compile(block.text, block.place, "exec", dont_inherit=True)
            if block.how == "run" and not block.file:
                exec(code, names)
        elif block.language == "yaml":
            check_scenario(block, workplace)
        elif block.language == "shell":
            for words in block.commands():
                try_command(words, block, pytester)


# In this order each finds the files that those before it have written.
EXAMPLES = (
    *("load_scenario", "run", "open_run", "sweep", "whatif", "compare", "trace", "landscape", "off_policy"),
    *("baseline", "check", "export_logs", "import_logs", "audit_logs", "fit_world", "realism"),
    *("check_model", "check_retriever", "check_bidder", "run_auction"),
)


@pytest.mark.drill
def test_the_examples_of_public_functions_are_true(workplace, tmp_path, monkeypatch):
    assert set(EXAMPLES) == {name for name in cascade_sim.__all__ if name.islower() and name[0] != "_"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CASCADE_SIM_CACHE", str(workplace / "cache"))
    # The smaller one, under the name that the examples use.
    shutil.copy(workplace / "scenarios" / "quick.yaml", tmp_path / "quick")
    names = {name: getattr(cascade_sim, name) for name in EXAMPLES}
    for name in EXAMPLES:
        finder = doctest.DocTestFinder(recurse=False)
        (example,) = finder.find(names[name], name, module=False, globs=dict(names))
        said: list[str] = []
        tried = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
        assert tried.attempted > 0 and tried.failed == 0, "".join(said)


def check_scenario(block: Block, workplace: Path) -> None:
    """By the loader, which also finds the files of classes; beside the scenarios or from the folder."""
    from ruamel.yaml import YAML

    text = block.text
    if "part" in block.words:
        quick = YAML(typ="safe").load((workplace / "scenarios" / "quick.yaml").read_text(encoding="utf-8"))
        text = yaml_text(merged(quick, YAML(typ="safe").load(block.text)))
    file = workplace / "scenarios" / "shown.yaml" if not block.file else Path(block.file)
    if not block.file:
        file.write_text(text, encoding="utf-8")
    load_scenario(file)


def try_command(words: list[str], block: Block, suite: pytest.Pytester | None = None) -> None:
    """Run one line of a shell block, or only read it; a command that is none of these is a mistake."""
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), block.place
    elif words[0] == "pytest":
        if block.how == "run":
            assert suite is not None
            run_pytest(words[1:], suite, block)
    elif words[:3] == ["python", "-m", "cascade_sim"]:
        if block.how == "run":
            assert main(words[3:]) == 0, f"{block.place}: {' '.join(words)}"
        else:
            read_command(words[3:])
    else:
        raise AssertionError(f"{block.place}: the tests do not know how to run {' '.join(words)}")


def run_pytest(options: list[str], suite: pytest.Pytester, block: Block) -> None:
    """In this process and the reader's folder, without plugins that go through all that torch loads."""
    left_out = ("unraisableexception", "hypothesispytest", "cacheprovider")
    result = suite.runpytest_inprocess("--rootdir=.", *(f"-pno:{name}" for name in left_out), *options)
    assert result.ret == 0, block.place


def read_command(words: list[str]) -> None:
    """The command line as click reads it, and the scenario it names with its overrides; nothing is run."""
    top = cli.make_context("cascade_sim", list(words))
    name, command, rest = cli.resolve_command(top, words)
    assert command is not None
    given = command.make_context(name, rest, parent=top, resilient_parsing=False).params
    if "scenario" in given:
        load_scenario(given["scenario"], given.get("overrides", ()), given.get("seed"))
    elif "variants" in given:
        assert given["variants"].is_file()


def test_the_blocks_are_many_and_counted():
    counts = re.findall(r"\d+", count_text())
    assert len(counts) == 5 and int(counts[0]) == sum(map(int, counts[2:])) > 50


def test_what_a_page_shows_as_printed_comes_from_the_command_above_it():
    with_output = runpy.run_path(str(ROOT / "docs" / "printed.py"))["with_output"]
    command = "```shell\npython -m cascade_sim validate scenarios/quick.yaml\n```\n"
    page = f"{command}\nIn words:\n\n```text printed lines=1\ntyped\n```\nend\n"
    made = with_output(page)
    assert made.startswith(command) and made.endswith("end\n") and "typed" not in made
    assert re.search(r"```text\nok: scenarios/quick.yaml\n```", made)
    with pytest.raises(RuntimeError, match="no command above"):
        with_output("```text printed\nx\n```\n")
    with pytest.raises(RuntimeError, match="exit code 2"):
        with_output(page.replace("quick", "quik"))
    made = with_output(page.replace("quick", "quik").replace("lines=1", "lines=1 exit=2"))
    assert re.search(r"```text\nerror: .*'scenarios/quick.yaml'", made)


def test_what_python_above_a_command_writes_is_there_for_it():
    with_output = runpy.run_path(str(ROOT / "docs" / "printed.py"))["with_output"]
    stages = "cascade: {pre_ranking: {model: random}, ranking: {model: truth}}"
    text = rf"name: mine\narms: {{one: {{}}}}\n{stages}\n"
    name = f"from pathlib import Path\nPath('mine.yaml').write_text('{text}')\n"
    command = "```shell\npython -m cascade_sim validate mine.yaml\n```\n\n```text printed lines=1\nx\n```\n"
    assert "```text\nok: mine.yaml\n```" in with_output(f"```python\n{name}```\n\n{command}")


def test_blocks_that_the_site_prints_hold_no_figures():
    printed = [block for page in PAGES for block in blocks(page) if "printed" in block.words]
    assert printed and not any(re.search(r"\d", block.text) for block in printed)


def test_what_commands_of_the_site_print_is_not_typed():
    pages = [page for page in PAGES if page.parent.name in ("docs", "how_to")]
    typed = {page.name: typed_below_commands(page.read_text(encoding="utf-8")) for page in pages}
    assert len(pages) > 30 and {name: texts for name, texts in typed.items() if texts} == {}


def typed_below_commands(text: str) -> list[str]:
    """The plain `text` blocks that follow a shell block under the same heading."""
    return [
        below["text"]
        for above, below in pairwise(FENCE.finditer(text))
        if above["info"].startswith("shell") and below["info"].split() == ["text"]
        if not re.search("^#", text[above.end() : below.start()], re.MULTILINE)
    ]


def test_typed_output_would_be_found():
    command, output = "```shell\npython -m cascade_sim validate quick\n```\n", "```text\nok: quick\n```\n"
    assert typed_below_commands(f"{command}\nIn words:\n\n{output}") == ["ok: quick\n"]
    assert typed_below_commands(f"{command}\n## A mapping\n\n{output}") == []


@pytest.mark.parametrize("info", [["bash"], [], ["yaml", "parse"], ["python", "file=a", "file=b"]])
def test_a_block_that_nothing_tries_is_refused(info):
    with refused("README.md:7:", "block", kind=ValueError):
        made(ROOT / "README.md", 7, info, "x")


@pytest.mark.parametrize(
    "line",
    [
        "python -m cascade_sim rum quick",
        "python -m cascade_sim run quick --sets a=1",
        "python -m cascade_sim run quick --set cascade.slot=1",
        "make bread",
        "curl x",
    ],
)
def test_a_command_that_is_none_is_found_without_running_it(line):
    from click import ClickException

    from cascade_sim.foundation.errors import UserError

    block = made(ROOT / "README.md", 1, ["shell", "parse"], line)
    with pytest.raises((ClickException, UserError, AssertionError)):
        try_command(block.commands()[0], block)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_and_named_file_exists(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    named = re.findall(
        r"(?:scenarios|cascade_sim|models|agents|analysis|tests|docs)/[\w./]+\.(?:yaml|py|csv|png)", text
    )
    missing = [link for link in links if not (page.parent / link).exists() and "made/" not in link]
    missing += [name for name in named if not (ROOT / name).exists()]
    assert missing == []


def colors(css: str) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of a style sheet with their colours, for light and for dark systems."""
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return tuple(dict(re.findall(r"--(\w+): (#\w+);", rules)) for rules in (light, dark))


def test_the_site_has_every_colour_for_light_and_for_dark_systems():
    css = (ROOT / "docs" / "style" / "pages.css").read_text(encoding="utf-8")
    light, dark = colors(css)
    assert light.keys() == dark.keys() and all(light[name] != dark[name] for name in light)
    rules = re.sub(r":root \{.*?\}", "", css, flags=re.DOTALL)
    assert set(re.findall(r"var\(--(\w+)\)", rules)) <= set(light) and not re.findall(
        r": #|\s#\w{3,6}\b", rules
    )
    conf = ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    (given,) = [
        ast.literal_eval(node.value)
        for node in ast.walk(conf)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "COLORS"
    ]
    assert set(given) <= set(light) and {"base_bg", "body_text", "link", "code_bg"} <= {
        option for options in given.values() for option in options.split()
    }


@pytest.mark.parametrize("name", ["architecture.svg", "data_flow.svg"])
def test_a_picture_has_every_colour_for_dark_systems(name):
    drawing = (ROOT / "docs" / name).read_text(encoding="utf-8")
    _, dark, shapes = re.split(r"<style>|</style>", drawing)
    assert "prefers-color-scheme: dark" in dark
    drawn = set(re.findall(r'\b(fill|stroke)="(#\w+)"', shapes))
    assert drawn and drawn == set(re.findall(r'\[(fill|stroke)="(#\w+)"\]', dark))
