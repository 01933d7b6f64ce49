"""Nothing from the network: the script that the theme would fetch for search in a folder is our own `worker.js`."""

import re
from typing import Any

from mkdocs.exceptions import PluginError

FETCHED = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')
LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]*"')


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    up = "../" * page.file.src_uri.count("/")
    output = FETCHED.sub(f'<script src="{up}worker.js"></script>', output)
    return _refuse(output, page.file.src_uri)


def on_post_template(output_content: str, *, template_name: str, **_: Any) -> str:
    if not template_name.endswith(".html"):
        return output_content
    return _refuse(FETCHED.sub("", output_content), template_name)


def _refuse(output: str, name: str) -> str:
    if found := LOADED.search(output):
        raise PluginError(f"{name} loads something from the network: {found[0]}")
    return output
