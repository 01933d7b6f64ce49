"""Formulas: `$…$` and `$$…$$` become MathML when the site is built, so that a page needs no script for them."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    content = INLINE.sub(lambda found: convert(html.unescape(found[1])), content)
    return BLOCK.sub(lambda found: f'<div class="formula">{_block(html.unescape(found[1]))}</div>', content)


def _block(latex: str) -> str:
    return convert(latex.strip(), display="block")
