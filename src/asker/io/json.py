"""Records as strict JSON."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from asker.io.files import write_whole


def write_json(path: Path, record: dict[str, Any]) -> None:
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    with write_whole(path) as file:
        file.write(text.encode() + b"\n")


def plain(value: Any) -> Any:
    """The same for strict JSON: NumPy numbers become Python's, what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
