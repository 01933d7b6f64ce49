"""Features and verified matches by pycolmap, kept in a COLMAP database.

The database is the cache: features of an image and matches of a pair that it has are not computed again, so that an
interrupted run is resumed.  A second file records the images and intrinsics; if these change, it is made anew.
"""

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from asker.applications.outcome import Say
from asker.applications.posed.posed_images import PosedImages
from asker.io.files import FileError, write_whole
from asker.io.temporary import temporary_folder

EXTRA = "pip install 'asker-solver[features]'"
POLL_SECONDS = 0.3
IMAGES_AT_A_TIME, PAIRS_AT_A_TIME = 32, 1000
"""Sizes of the portions between two progress messages."""
SEED = 0


class MissingFeatures(ValueError):
    """pycolmap is not installed."""


def pycolmap_module() -> Any:
    """Return the module pycolmap; raise a `MissingFeatures` that says how to install it."""
    try:
        import pycolmap
    except ImportError:
        message = f"features and matches need pycolmap: {EXTRA}, or give your own with --matches DATABASE"
        raise MissingFeatures(message) from None
    return pycolmap


def match_images(folder: Path, posed: PosedImages, pairs: np.ndarray, database: Path, say: Say) -> None:
    """Write features and verified matches of images into a COLMAP database, as far as it does not have them.

    Parameters
    ----------
    folder
        The folder of the images.
    posed
        The images; their intrinsics are used to verify matches.
    pairs
        (n_pairs, 2): the pairs to match.
    database
        The database; it is created, or continued if it was made from the same images.
    say
        Receives progress messages.
    """
    pycolmap = pycolmap_module()
    _prepare(folder, posed, database)
    level, pycolmap.logging.minloglevel = pycolmap.logging.minloglevel, pycolmap.logging.FATAL.value
    try:
        for first in range(0, len(posed), IMAGES_AT_A_TIME):
            names = list(posed.names[first : first + IMAGES_AT_A_TIME])
            say(f"features of images {first + 1} to {first + len(names)} of {len(posed)}")
            _extract(pycolmap, database, folder, names)
        _write_cameras(pycolmap, database, posed)
        for first in range(0, len(pairs), PAIRS_AT_A_TIME):
            some = pairs[first : first + PAIRS_AT_A_TIME]
            say(f"matches of pairs {first + 1} to {first + len(some)} of {len(pairs)}")
            _match(pycolmap, database, [(posed.names[i], posed.names[j]) for i, j in some.tolist()])
    finally:
        pycolmap.logging.minloglevel = level


def _extract(pycolmap: Any, database: Path, folder: Path, names: list[str]) -> None:
    """Extract the features of images, with a placeholder camera for each."""
    reader, options = pycolmap.ImageReaderOptions(), pycolmap.FeatureExtractionOptions()
    reader.camera_model, reader.camera_params = "SIMPLE_PINHOLE", "1,0,0"
    options.use_gpu = False
    arguments = database, folder, names, pycolmap.CameraMode.PER_IMAGE, reader, options, pycolmap.Device.cpu
    _interruptible(pycolmap, database, pycolmap.extract_features, *arguments)


def _match(pycolmap: Any, database: Path, pairs: list[tuple[str, str]]) -> None:
    """Match the features of pairs of images and verify the matches by two-view geometry."""
    matching, pairing = pycolmap.FeatureMatchingOptions(), pycolmap.ImportedPairingOptions()
    verification = pycolmap.TwoViewGeometryOptions()
    matching.use_gpu = False
    verification.compute_relative_pose, verification.ransac.random_seed = True, SEED
    with temporary_folder(Path(gettempdir()), mode=0o700) as folder:
        listed = folder / "pairs.txt"
        listed.write_text("".join(f"{a} {b}\n" for a, b in pairs), encoding="utf-8")
        pairing.match_list_path = str(listed)
        arguments = database, matching, pairing, verification, pycolmap.Device.cpu
        _interruptible(pycolmap, database, pycolmap.match_image_pairs, *arguments)


def _interruptible(pycolmap: Any, database: Path, run: Callable[..., None], *arguments: Any) -> None:
    """Run a computation of pycolmap in a thread, so that Ctrl-C can cancel it."""
    errors: list[Exception] = []
    token = pycolmap.CancellationToken()

    def work() -> None:
        try:
            run(*arguments, token)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_SECONDS)
    except KeyboardInterrupt:
        token.cancel()
        thread.join()
        raise
    if errors:
        raise FileError(database, f"pycolmap failed: {errors[0]}") from errors[0]


def _prepare(folder: Path, posed: PosedImages, database: Path) -> None:
    """Remove a database that was made from other images or intrinsics."""
    record, digest = database.with_suffix(".json"), _digest(folder, posed)
    with suppress(OSError, ValueError):
        if json.loads(record.read_text()).get("images") == digest and database.exists():
            return
    if database.exists() and not record.exists():
        raise FileError(database, "this database was not made by asker: give it as --matches, or another --database")
    for path in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))):
        path.unlink(missing_ok=True)
    with write_whole(record) as file:
        file.write(json.dumps({"images": digest}).encode())


def _digest(folder: Path, posed: PosedImages) -> str:
    """Return a digest of the files and the intrinsics, which verified matches depend on."""
    digest = hashlib.sha256()
    for k, name in enumerate(posed.names):
        info, camera = (folder / name).stat(), posed.of_image[k]
        digest.update(f"{name} {info.st_size} {info.st_mtime_ns} {posed.cameras.models[camera]}".encode())
        digest.update(np.round(posed.cameras.params[camera], 6).tobytes())
    return digest.hexdigest()


def _write_cameras(pycolmap: Any, path: Path, posed: PosedImages) -> None:
    """Replace the cameras of the database by the known ones."""
    with pycolmap.Database.open(path) as database:
        of_name = {image.name: image for image in database.read_all_images()}
        for k, name in enumerate(posed.names):
            camera = posed.of_image[k]
            width, height = posed.cameras.sizes[camera].tolist()
            if name in of_name:
                one = pycolmap.Camera(
                    model=posed.cameras.models[camera], width=width, height=height, params=posed.cameras.params[camera]
                )
                one.camera_id, one.has_prior_focal_length = of_name[name].camera_id, True
                database.update_camera(one)
