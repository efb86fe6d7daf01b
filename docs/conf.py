"""How the pages of this folder become a site: `make docs` writes it to build/docs. Nothing is fetched."""

import ast
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from generate import write_pages  # noqa: E402
from printed import with_output  # noqa: E402

from cascade_sim.version import __version__  # noqa: E402

project = "cascade_sim"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
default_role = "code"  # `name` in a docstring is code, as in Markdown

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

# Colours of pages.css, which has them for light and dark systems → options of the theme.
COLORS = {
    "page": "base_bg body_bg",
    "ink": "base_text body_text sidebar_list code_text gray_1 narrow_sidebar_fg narrow_sidebar_link",
    "quiet": "footer_text sidebar_text gray_3 anchor",
    "line": "gray_2 pink_2 hr_border table_border sidebar_link_underscore sidebar_search_button xref_border "
    "admonition_border note_border seealso_border tip_border hint_border important_border",
    "code": "pink_1 code_bg pre_bg code_hover xref_bg footnote_bg admonition_xref_border narrow_sidebar_bg",
    "mark": "anchor_hover_bg highlight_bg code_highlight viewcode_target_bg",
    "accent": "link",
    "hover": "link_hover",
}
html_theme = "alabaster"
html_theme_options = {
    "description": "A simulator of an ad-ranking cascade with its auction",
    "fixed_sidebar": False,
    "page_width": "1240px",
    "body_max_width": "1000px",
    "sidebar_width": "230px",
    "show_powered_by": False,
    "font_family": "system-ui, sans-serif",
    "head_font_family": "system-ui, sans-serif",
    **{option: f"var(--{color})" for color, options in COLORS.items() for option in options.split()},
}
html_static_path = ["style"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_use_index = False
smartquotes = False  # texts of messages are code


def is_code(paragraph: list[str]) -> bool:
    """Whether a paragraph of a docstring is an example: Python with a call or an import in it."""
    try:
        tree = ast.parse(dedent("\n".join(paragraph)))
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.ImportFrom) for node in ast.walk(tree))


def mark_examples(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Examples in docstrings are plain paragraphs; here they become code blocks."""
    marked: list[str] = []
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line)
            continue
        if is_code(paragraph):
            indent = min(len(text) - len(text.lstrip()) for text in paragraph)
            marked += [".. code-block:: python", "", *("   " + text[indent:] for text in paragraph)]
        else:
            marked += paragraph
        marked.append("")
        paragraph = []
    lines[:] = marked


def keep_together(app: Any, name: str, text: list[str]) -> None:
    """A number and its margin stay on one line."""
    text[0] = text[0].replace(" ± ", "\u00a0±\u00a0")


def print_blocks(app: Any, name: str, text: list[str]) -> None:
    """What a page shows as printed is what its commands print now."""
    text[0] = with_output(text[0])


def setup(app: Any) -> None:
    app.connect("builder-inited", lambda _: write_pages(HERE / "made"))
    app.connect("source-read", print_blocks)
    app.connect("source-read", keep_together)
    app.connect("autodoc-process-docstring", mark_examples)
