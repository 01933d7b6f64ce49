"""Records in strict JSON, and their reader."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from asker.io.files import FileError, FilePath, read_text_bytes, write_whole


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as strict JSON."""
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    with write_whole(path) as file:
        file.write(text.encode() + b"\n")


def read_json(path: FilePath, what: str) -> Any:
    """Return the content of a JSON file; raise a `FileError` with the line if it is not valid.

    `what` describes the expected content in the message "this is not ...".
    """
    content = read_text_bytes(path)
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise FileError(path, f"this is not {what}: {error.msg}", error.lineno) from error
    except (ValueError, RecursionError) as error:  # another encoding; a number or a nesting without end
        raise FileError(path, f"this is not {what}: {error}") from error


def plain(value: Any) -> Any:
    """Return a value for strict JSON, with Python numbers instead of NumPy's and null instead of NaN and infinities."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
