"""Methods by name; one paper, one file."""

from collections.abc import Callable
from typing import Any

from asker.strategies.irls import IRLS

METHODS: dict[str, Callable[[], Any]] = {"irls": IRLS}
"""What `--method` takes: a name, and the strategy with its default settings."""
