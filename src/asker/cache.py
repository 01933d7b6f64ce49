"""The folder in which asker keeps what it need not make or fetch twice."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder for compiled code and downloads; `ASKER_CACHE` moves it."""
    if asked := os.environ.get("ASKER_CACHE"):
        return Path(asked)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "asker"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "asker"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asker"
