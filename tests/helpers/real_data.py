"""Folder of the real data."""

import os
from pathlib import Path

DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
