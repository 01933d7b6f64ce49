"""Conversion of formulas `$…$` and `$$…$$` to MathML when the site is built; pages need no script for them.

The site includes a font with mathematical tables for systems that have none.
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
    content = INLINE.sub(lambda match: _mathml(html.unescape(match[1]), "inline"), content)
    return BLOCK.sub(lambda match: _block(html.unescape(match[1])), content)


def _block(latex: str) -> str:
    """Return a displayed formula with its number at the right."""
    tag = TAG.search(latex)
    number = f"<span>({tag[1]})</span>" if tag else ""
    return f'<div class="formula">{_mathml(TAG.sub("", latex).strip(), "block")}{number}</div>'


def _mathml(latex: str, display: str) -> str:
    mathml = convert(latex, display=display)
    if "\\" in mathml:
        raise PluginError(f"latex2mathml does not support a command of this formula: {latex}")
    return mathml
