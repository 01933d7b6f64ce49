"""Public data sets: addresses, download and lookup on the local machine.

    Bundle Adjustment in the Large      Agarwal, Snavely, Seitz, Szeliski, ECCV 2010
    Middlebury 2003, teddy and cones    Scharstein, Szeliski, CVPR 2003
    Pose graphs, from SE-Sync           Rosen, Carlone, Bandeira, Leonard, IJRR 2019
    Pose graphs, Carlone's collection   Carlone, Censi, IEEE Transactions on Robotics 2014
    Pose graphs, from RRR               Latif, Cadena, Neira, IJRR 2013

A data set is searched for in a folder given by the user, in the folder `ASKER_DATA` and in the cache, and then
downloaded.  All three folders have the same layout: `bal/problem-49-7776-pre.txt.bz2`, `stereo/teddy/im2.png`,
`g2o/intel.g2o` (or `g2o/intel.g2o.bz2`).
"""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from asker.applications.bundle.bal import read_bal
from asker.io.cache import cache_folder
from asker.io.download import Check, Say, Unreachable, download
from asker.io.files import FileError, FilePath, read_text_bytes
from asker.io.images import check_image, read_grey

BAL_HOME = "https://grail.cs.washington.edu/projects/bal/data"
STEREO_HOME = "https://vision.middlebury.edu/stereo/data/scenes2003/newdata"
SE_SYNC_HOME = "https://raw.githubusercontent.com/david-m-rosen/SE-Sync/master/data"
RRR_HOME = "https://raw.githubusercontent.com/ylatif/rrr"

BAL_SIZES = {
    "ladybug": """
        49-7776 73-11032 138-19878 318-41628 372-47423 412-52215 460-56811 539-65220 598-69218 646-73584 707-78455
        783-84444 810-88814 856-93344 885-97473 931-102699 969-105826 1031-110968 1064-113655 1118-118384 1152-122269
        1197-126327 1235-129634 1266-132593 1340-137079 1469-145199 1514-147317 1587-150845 1642-153820 1695-155710
        1723-156502""",
    "trafalgar": """
        21-11315 39-18060 50-20431 126-40037 138-44033 161-48126 170-49267 174-50489 193-53101 201-54427 206-54562
        215-55910 225-57665 257-65132""",
    "dubrovnik": """
        16-22106 88-64298 135-90642 142-93602 150-95821 161-103832 173-111908 182-116770 202-132796 237-154414
        253-163691 262-169354 273-176305 287-182023 308-195089 356-226730""",
    "venice": """
        52-64053 89-110973 245-198739 427-310384 744-543562 951-708276 1102-780462 1158-802917 1184-816583 1238-843534
        1288-866452 1350-894716 1408-912229 1425-916895 1473-930345 1490-935273 1521-939551 1544-942409 1638-976803
        1666-983911 1672-986962 1681-983415 1682-983268 1684-983269 1695-984689 1696-984816 1706-985529 1776-993909
        1778-993923""",
    "final": """
        93-61203 394-100368 871-527480 961-187103 1936-649673 3068-310854 4585-1324582 13682-4456117""",
}
"""Numbers of cameras and points of every instance, as n_cameras-n_points."""

PAPER_CAMERAS = {
    "ladybug": (49, 318),
    "trafalgar": (21, 39, 126, 138, 201, 225),
    "dubrovnik": (16, 150, 202, 253, 308, 356),
    "venice": (89, 245, 744, 951),
    "final": (93, 394),
}
"""The 20 instances of Le & Zach, CVPR 2020."""

SE_SYNC_GRAPHS = {
    "intel": ("1728 poses, 2512 edges", "3e0724c048e0ba524be9dd268a8b78e19a2497043143584cbb61310638b15c4b"),
    "MIT": ("808 poses, 827 edges", "e5922be0d0689c7a5bc04c58adf3a8e697e240bdd7691cc4218470eaf92956eb"),
    "CSAIL": ("1045 poses, 1172 edges", "66d99ac857a9849d814d214a9ebd0d4876d5d40f0a37be9330c1ff6e6e9daaa6"),
    "sphere2500": ("2500 poses, 4949 edges", "104ab57593394f24351d9f692f3b923f8b98fff1eb638c64356cf5049e06cf3c"),
    "torus3D": ("5000 poses, 9048 edges", "1ef8831023b372188d33ca63ce0da079d51df89364df71f2bce1c5c7c69ed5ec"),
    "parking-garage": ("1661 poses, 6275 edges", "3ac0a31bfb601d7455d451e2546655cb5dececf51a7823f57c8a7e0fe1ca6527"),
    "cubicle": ("5750 poses, 16869 edges", "f7781d485383cec86d47d7650970132c36d6f3a1f4e5d62a49b7f8245c0a6465"),
}
"""Size and SHA-256 checksum of the graphs distributed with SE-Sync."""

OTHER_GRAPHS = {
    "M3500": (
        "3500 poses, 5453 edges",
        "https://www.dropbox.com/s/gmdzo74b3tzvbrw/input_M3500_g2o.g2o?dl=1",
    ),
    "kitti_00": (
        "4541 poses, 4676 edges",
        "https://raw.githubusercontent.com/mit-acl/dpgo/aa193f4a4f993cf4ea550ff562ad0ff3138f8984/data/kitti_00.g2o",
    ),
    "bicocca25b-all-loops": (
        "8358 poses, 8803 edges",
        f"{RRR_HOME}/5173ff759a4199cd56949d428ca33d7c3b986f9c/datasets/B25b/B25b_0.000.g2o",
    ),
    "bicocca25b-truth": (
        "6580 poses, by GPS",
        f"{RRR_HOME}/7d57499b4d54daf53085c7700247e75f887e3e7c/datasets/B25b/Bicocca25b_GT_GPS.g2o",
    ),
    "NewCollege": (
        "12816 poses, 13465 edges",
        f"{RRR_HOME}/1a4219381f1165c699c7877cb50940c703b795bf/datasets/NewCollege/NewCollege_odometry_bow_tr.g2o",
    ),
}
"""Size and address of graphs from Carlone's collection, from DPGO and from RRR.  Their checksums are unknown."""

PAIR = ("im2.png", "im6.png", "disp2.png", "disp6.png")
PIXELS = (450, 375)
KB, MB = 1000, 1000_000
"""Units of download limits: at most 1 KB per point or edge, compressed or not, plus 1 MB for everything else."""


@dataclass(frozen=True)
class DataSet:
    """A data set: one file, or the files of one folder."""

    name: str
    size: str
    """The size in words."""
    home: str
    """The address of the folder with the files."""
    folder: str
    """The path of that folder within a local data folder."""
    files: tuple[str, ...]
    check: Check
    """Raises a `FileError` if a file is not from this data set."""
    most_bytes: int
    """An upper bound of the size of each file."""
    name_at_home: str | None = None
    """The name of the single file at `home`, if it differs from that in `files`."""

    @property
    def kind(self) -> str:
        """The kind of its instances in a plan: bal, stereo, ..."""
        return self.folder.split("/")[0]

    def path_in(self, data: Path) -> Path:
        """Return its path within a data folder: that of the single file, or of the folder with the files."""
        return data / self.folder / self.files[0] if len(self.files) == 1 else data / self.folder

    def found_in(self, data: Path) -> Path | None:
        """Return its path within a data folder if it is complete; a single file may have `.bz2` appended."""
        path = self.path_in(data)
        if len(self.files) == 1:
            return next((p for p in (path, Path(f"{path}.bz2")) if p.is_file()), None)
        return path if all((path / file).is_file() for file in self.files) else None


def _bal(family: str, size: str) -> DataSet:
    n_cameras, n_points = map(int, size.split("-"))
    return DataSet(
        name=f"{family}-{n_cameras}",
        size=f"{n_cameras} cameras, {n_points} points",
        home=f"{BAL_HOME}/{family}",
        folder="bal",
        files=(f"problem-{size}-pre.txt.bz2",),
        check=partial(check_bundle, n_cameras=n_cameras, n_points=n_points),
        most_bytes=MB + KB * n_points,
    )


def check_bundle(path: Path, n_cameras: int, n_points: int) -> None:
    """Raise a `FileError` if a BAL file cannot be read or has another size."""
    bundle = read_bal(path)
    if (bundle.n_cameras, bundle.n_points) != (n_cameras, n_points):
        sizes = f"{bundle.n_cameras} cameras and {bundle.n_points} points"
        raise FileError(path, f"it has {sizes}, not {n_cameras} and {n_points}")


def _pair(name: str) -> DataSet:
    width, height = PIXELS
    size = f"{width}×{height} pixels"
    return DataSet(name, size, f"{STEREO_HOME}/{name}", f"stereo/{name}", PAIR, check_picture, MB + 8 * width * height)


def check_picture(path: Path) -> None:
    """Raise a `FileError` if an image of a stereo pair is damaged or has another size."""
    check_image(path)
    height, width = read_grey(path).shape
    if (width, height) != PIXELS:
        raise FileError(path, f"it has {width}×{height} pixels, not {PIXELS[0]}×{PIXELS[1]}")


def _graph(name: str, size: str, address: str, sha256: str | None = None) -> DataSet:
    counts = [int(number) for number in re.findall(r"(\d+) (?:poses|edges)", size)]
    home, _, at_home = address.rpartition("/")
    check = partial(check_graph, counts=counts, sha256=sha256)
    return DataSet(name, size, home, "g2o", (f"{name}.g2o",), check, MB + KB * sum(counts), at_home)


def check_graph(path: Path, counts: list[int], sha256: str | None = None) -> None:
    """Raise a `FileError` if a pose graph has another checksum or, if it is unknown, other numbers of poses and edges.

    The numbers are counted without `read_g2o`, since some public files have errors that it rejects.
    """
    content = read_text_bytes(path)
    if not content.startswith((b"VERTEX", b"EDGE")):
        raise FileError(path, "this is not a g2o file")
    if sha256:
        if hashlib.sha256(content).hexdigest() != sha256:
            raise FileError(path, "its checksum differs from that of the published file")
        return
    lines = [line.split()[:3] for line in content.splitlines() if line.strip()]
    edges = [words for words in lines if words[0].startswith(b"EDGE")]
    poses = {words[-1] for words in edges} | {words[1] for words in lines if len(words) > 1}
    once = {line for line in content.splitlines() if line.startswith(b"EDGE")}  # some copies repeat an edge
    if counts not in ([len(poses), n][: len(counts)] for n in (len(edges), len(once))):
        raise FileError(path, f"it has {len(poses)} poses and {len(edges)} edges, not {' and '.join(map(str, counts))}")


BAL = {entry.name: entry for family, sizes in BAL_SIZES.items() for entry in (_bal(family, s) for s in sizes.split())}
PAPER = tuple(f"{family}-{n}" for family, cameras in PAPER_CAMERAS.items() for n in cameras)
STEREO = {name: _pair(name) for name in ("teddy", "cones")}
POSE_GRAPHS = {
    name: _graph(name, size, f"{SE_SYNC_HOME}/{name}.g2o", sha256) for name, (size, sha256) in SE_SYNC_GRAPHS.items()
} | {name: _graph(name, size, address) for name, (size, address) in OTHER_GRAPHS.items()}
DATA_SETS = BAL | STEREO | POSE_GRAPHS


def folders(data: FilePath | None = None) -> dict[str, Path]:
    """Return the data folders to search, in this order, by name."""
    paths = {}
    if data is not None:
        paths["--data"] = Path(data)
        if not paths["--data"].is_dir():
            raise FileError(data, "there is no such folder")
    if variable := os.environ.get("ASKER_DATA"):
        paths["ASKER_DATA"] = Path(variable)
    return paths | {"cache": cache_folder() / "data"}


def locate(name: str, data: FilePath | None = None) -> Path | None:
    """Return the path of a data set on this machine.

    Parameters
    ----------
    name
        A key of `DATA_SETS`.
    data
        A folder to search first.

    Returns
    -------
    Path or None
        The file, or the folder if the data set has several files; None if it is not on this machine.
    """
    data_set = _data_set(name)
    return next((path for folder in folders(data).values() if (path := data_set.found_in(folder))), None)


def fetch(
    name: str, data: FilePath | None = None, progress: Say = lambda text: None, mirror: str | None = None
) -> Path:
    """Return the path of a data set; download it into the cache if it is not on this machine.

    Parameters
    ----------
    name
        A key of `DATA_SETS`.
    data
        A folder to search first.
    progress
        Receives progress messages.
    mirror
        The address of a data folder to download from instead of the public addresses; the default is the environment
        variable `ASKER_MIRROR`.

    Returns
    -------
    Path
        The file, or the folder if the data set has several files.

    Raises
    ------
    Unreachable
        If the address cannot be reached; the message says how to download the files by hand.
    """
    if path := locate(name, data):
        return path
    data_set = _data_set(name)
    mirror = mirror or os.environ.get("ASKER_MIRROR")
    home = _home(data_set, mirror)
    remote_names = (data_set.name_at_home,) if data_set.name_at_home and not mirror else data_set.files
    cache = folders()["cache"]
    folder = cache / data_set.folder
    try:
        for remote_name, file in zip(remote_names, data_set.files, strict=True):
            download(f"{home}/{remote_name}", folder / file, data_set.check, progress, data_set.most_bytes)
    except Unreachable as e:
        renamed = "" if remote_names == data_set.files else f" as {data_set.files[0]}"
        by_hand = f"download {', '.join(remote_names)} from {home}/ by hand and put it into {folder}{renamed}"
        raise Unreachable(e.path, f"{e.what}; {by_hand}") from e
    return data_set.path_in(cache)


def _data_set(name: str) -> DataSet:
    if name not in DATA_SETS:
        raise ValueError(f"there is no data set {name!r}; asker.applications.datasets.DATA_SETS lists all")
    return DATA_SETS[name]


def _home(data_set: DataSet, mirror: str | None) -> str:
    if not mirror:
        return data_set.home
    if not mirror.startswith(("http://", "https://")):
        raise ValueError(f"the mirror must be an address that begins with http:// or https://, got {mirror!r}")
    return f"{mirror.rstrip('/')}/{data_set.folder}"
