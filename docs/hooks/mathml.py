"""Formulas: `$…$` and `$$…$$` become MathML when the site is built, so that a page needs no script for them.

The site brings a font with the tables that formulas need, for readers whose system has none.
"""

import html
import re
from pathlib import Path
from typing import Any

import matplotlib
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)
TAG = re.compile(r"\\tag\{(.*?)\}")


def on_files(files: Files, *, config: Any) -> Files:
    font = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSerif.ttf"
    files.append(File.generated(config, "assets/formulas.ttf", abs_src_path=str(font)))
    return files


def on_page_content(content: str, **_: Any) -> str:
    content = INLINE.sub(lambda found: _mathml(html.unescape(found[1]), "inline"), content)
    return BLOCK.sub(lambda found: _block(html.unescape(found[1])), content)


def _block(latex: str) -> str:
    """A formula on a line of its own, its number at the right."""
    tag = TAG.search(latex)
    number = f"<span>({tag[1]})</span>" if tag else ""
    return f'<div class="formula">{_mathml(TAG.sub("", latex).strip(), "block")}{number}</div>'


def _mathml(latex: str, display: str) -> str:
    made = convert(latex, display=display)
    if "\\" in made:
        raise PluginError(f"a command of this formula is not known: {latex}")
    return made
