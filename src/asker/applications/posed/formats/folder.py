"""The folder of the images: its files, and which of them the poses belong to."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from asker.applications.posed.posed_images import PosedImages, rescaled
from asker.io.files import FileError

SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".ppm", ".pgm", ".webp"))
N_NAMED = 5
"""The largest number of names in one message."""


@dataclass(frozen=True)
class ImageFiles:
    """The images of a folder."""

    folder: Path
    names: tuple[str, ...]
    """File names relative to the folder, sorted."""


def list_images(folder: Path) -> ImageFiles:
    """Return the images of a folder and its subfolders, by the endings of their names; other files are ignored."""
    if not folder.is_dir():
        raise FileError(folder, "there is no such folder" if not folder.exists() else "this is a file, not a folder")
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
    if not names:
        raise FileError(folder, f"there are no images in this folder (files ending in {', '.join(sorted(SUFFIXES))})")
    return ImageFiles(folder, tuple(names))


def image_size(path: Path) -> tuple[int, int]:
    """Return width and height of an image; raise a `FileError` if it cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.size
    except Exception as error:  # Pillow raises many kinds for broken bytes
        raise FileError(path, f"this image cannot be read: {error}") from None


def assigned(files: ImageFiles, posed: PosedImages) -> tuple[PosedImages, list[str]]:
    """Return the images that have both a file and a pose, and messages about all others.

    The intrinsics of the result refer to the sizes of the files.

    Parameters
    ----------
    files
        The images of a folder.
    posed
        Poses with the names in their source.  A name is compared as a whole, then by its last parts, then without the
        ending; it must belong to one file only.

    Raises
    ------
    FileError
        If fewer than two images remain, or an image has another shape than its intrinsics.
    """
    index, missing, messages = _assignment(files.names, posed.names)
    if missing:
        messages.append(_named("poses without an image", missing))
    if spare := sorted(set(files.names) - set(index)):
        messages.append(_named("images without a pose", spare))
    sizes, broken = {}, []
    for name in index:
        try:
            sizes[name] = image_size(files.folder / name)
        except FileError as error:
            broken.append(name)
            messages.append(str(error))
    names = sorted(name for name in index if name in sizes)
    if len(names) < 2:
        text = f"{len(names)} of {len(files.names)} images have one of the {len(posed)} poses, but two are needed"
        detail = f"; {messages[0]}" if messages else ""
        raise FileError(files.folder, text + detail)
    messages += _repeated(files.folder, names)
    given = tuple(posed.names[index[name]] for name in names)
    kept = posed.taken([index[name] for name in names])
    renamed = dict(zip(given, names, strict=True))
    depths = {renamed[name]: depth for name, depth in kept.depths.items()}
    kept = replace(kept, names=tuple(names), given_names=given, depths=depths)
    try:
        kept, changed = rescaled(kept, np.array([sizes[name] for name in names]))
    except ValueError as error:
        raise FileError(files.folder, str(error)) from None
    if changed.any():
        what = "intrinsics scaled to the size of the image"
        messages.append(_named(what, [names[k] for k in np.flatnonzero(changed)]))
    return kept, messages


def _assignment(files: tuple[str, ...], names: tuple[str, ...]) -> tuple[dict[str, int], list[str], list[str]]:
    """Return the index of the pose of each file, the names without a file, and messages about repeated poses."""
    by_key: dict[str, list[str]] = {}
    for file in files:
        for key in _keys(file):
            by_key.setdefault(key, []).append(file)
    index: dict[str, int] = {}
    missing, repeated = [], []
    for k, name in enumerate(names):
        found = next((by_key[key] for key in _keys(name) if len(by_key.get(key, ())) == 1), None)
        if found is None:
            missing.append(name)
        elif found[0] in index:
            repeated.append(name)
        else:
            index[found[0]] = k
    return index, missing, [_named("repeated poses, of which the first is used", repeated)] if repeated else []


def _keys(name: str) -> list[str]:
    """Return the name with ever fewer leading folders, then the same without the ending."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    tails = ["/".join(parts[k:]) for k in range(len(parts))]
    return [*tails, *(f"*{PurePosixPath(tail).with_suffix('')}" for tail in tails if PurePosixPath(tail).name)]


def _repeated(folder: Path, names: list[str]) -> list[str]:
    """Return a message about files with equal content."""
    by_size: dict[int, list[str]] = {}
    for name in names:
        by_size.setdefault((folder / name).stat().st_size, []).append(name)
    seen: dict[bytes, str] = {}
    equal = []
    for name in (name for some in by_size.values() if len(some) > 1 for name in some):
        digest = hashlib.sha256((folder / name).read_bytes()).digest()
        if seen.setdefault(digest, name) != name:
            equal.append(f"{name} = {seen[digest]}")
    return [_named("images with equal content", equal)] if equal else []


def _named(what: str, names: list[str]) -> str:
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return f"{what} ({len(names)}): {', '.join(names[:N_NAMED])}{more}"
