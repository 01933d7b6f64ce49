"""Folder of the real data sets, and import of optional peers."""

import importlib
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks" / "peers"


def data_folder() -> Path:
    """Return the folder of the real data sets, which may not exist."""
    return Path(os.environ.get("ASKER_DATA") or ROOT.parent / "shared" / "data")


def peer(name: str) -> ModuleType | None:
    """Import a module of `benchmarks/peers`; return None if the program that it needs is not installed."""
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        _warn_once(f"benchmarks/peers/{name}.py is skipped: {error}")
        return None


@cache
def _warn_once(text: str) -> None:
    print(text, file=sys.stderr)
