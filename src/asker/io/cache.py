"""The cache folder for compiled code and downloads."""

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path

from asker.io.files import FileError, open_regular
from asker.io.temporary import temporary_file


def cache_folder() -> Path:
    """Return the cache folder, which the environment variable `ASKER_CACHE` can change."""
    if asked := os.environ.get("ASKER_CACHE"):
        return Path(asked)
    from platformdirs import user_cache_path

    return user_cache_path("asker", appauthor=False)


class Kept:
    """A cache of compiled code, which is executed without further checks and therefore protected.

    Files are written atomically.  A file is read only if no other user can have written it and its digest is correct;
    otherwise it counts as missing.  If the folder cannot be used, one warning is issued and nothing is cached.
    """

    def __init__(self, folder: Path):
        self.folder: Path | None = folder
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            if why := _of_others(os.stat(folder)):
                self._give_up(f"{why}, so code in it is not trusted")
        except OSError as error:
            self._give_up(str(error.strerror or error))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it is missing or not valid."""
        if self.folder is None:
            return None
        try:
            with open_regular(self.folder / name) as file:
                safe = not _of_others(os.fstat(file.fileno()))
                digest, content = (file.read(32), file.read()) if safe else (b"", b"")
        except (OSError, FileError):
            return None
        return content if digest == _digest(name, content) else None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, if possible."""
        if self.folder is None:
            return
        try:
            with temporary_file(self.folder, mode=0o600) as temporary:  # for this user alone
                temporary.write_bytes(_digest(name, content) + content)
                os.replace(temporary, self.folder / name)
        except OSError as error:
            self._give_up(str(error.strerror or error))

    def _give_up(self, why: str) -> None:
        """Warn once, and neither read nor write the cache any more."""
        warnings.warn(f"compiled code is not kept in {self.folder}: {why}", stacklevel=3)
        self.folder = None


def kept_code() -> Kept:
    """Return the cache of machine code and intermediate code in the current cache folder."""
    return _kept(cache_folder() / "machine-code")


@cache
def _kept(folder: Path) -> Kept:
    """Return the cache of a folder, the same object at every call."""
    return Kept(folder)


def _digest(name: str, content: bytes) -> bytes:
    """Return the digest of the name and the content of an entry."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _of_others(info: os.stat_result) -> str:
    """Return a description of who else can write the file or folder; empty if nobody can, or it is unknown."""
    if not hasattr(os, "geteuid"):
        return ""
    if info.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others can write to it" if info.st_mode & 0o022 else ""
