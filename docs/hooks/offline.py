"""Offline site: `worker.js` replaces the script that the theme would load from the network for its search."""

import re
from typing import Any

from mkdocs.exceptions import PluginError

REMOTE_WORKER = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')
REMOTE_RESOURCE = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]*"')


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    up = "../" * page.file.src_uri.count("/")
    output = REMOTE_WORKER.sub(f'<script src="{up}worker.js"></script>', output)
    return _check_no_remote(output, page.file.src_uri)


def on_post_template(output_content: str, *, template_name: str, **_: Any) -> str:
    if not template_name.endswith(".html"):
        return output_content
    return _check_no_remote(REMOTE_WORKER.sub("", output_content), template_name)


def _check_no_remote(output: str, name: str) -> str:
    if match := REMOTE_RESOURCE.search(output):
        raise PluginError(f"{name} loads something from the network: {match[0]}")
    return output
