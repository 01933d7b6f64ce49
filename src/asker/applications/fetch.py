"""Public data sets: where they are, and how to get them.

    Bundle Adjustment in the Large      Agarwal, Snavely, Seitz, Szeliski, ECCV 2010
    Middlebury 2003, teddy and cones    Scharstein, Szeliski, CVPR 2003

A data set is looked for in a folder of the user's, in the folder `ASKER_DATA`, in the cache, and then on the network.
All three folders have the same layout: `bal/problem-49-7776-pre.txt.bz2`, `stereo/teddy/im2.png`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from asker.applications.bundle.bal import read_bal
from asker.engines.cpu.compile import cache_folder
from asker.io.download import Check, Say, Unreachable, download
from asker.io.files import FileError, FilePath
from asker.io.images import check_image

BAL_HOME = "https://grail.cs.washington.edu/projects/bal/data"
STEREO_HOME = "https://vision.middlebury.edu/stereo/data/scenes2003/newdata"

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
"""Cameras and points of every instance."""

PAPER_CAMERAS = {
    "ladybug": (49, 318),
    "trafalgar": (21, 39, 126, 138, 201, 225),
    "dubrovnik": (16, 150, 202, 253, 308, 356),
    "venice": (89, 245, 744, 951),
    "final": (93, 394),
}
"""The 20 instances of Le & Zach, CVPR 2020."""

PAIR = ("im2.png", "im6.png", "disp2.png", "disp6.png")


@dataclass(frozen=True)
class DataSet:
    """One file, or the files of one folder."""

    name: str
    size: str
    """What is known of it before it is read."""
    home: str
    """The address of the folder that holds the files."""
    folder: str
    """The same in a folder of data."""
    files: tuple[str, ...]
    check: Check

    @property
    def kind(self) -> str:
        """Of its instances in a plan: bal, stereo, ...; folders of data are named after them."""
        return self.folder.split("/")[0]

    def below(self, data: Path) -> Path:
        """Its place in a folder of data: the file, or the folder of the files."""
        return data / self.folder / self.files[0] if len(self.files) == 1 else data / self.folder

    def is_in(self, data: Path) -> bool:
        return all((data / self.folder / file).is_file() for file in self.files)


def _bal(family: str, size: str) -> DataSet:
    n_cameras, n_points = size.split("-")
    return DataSet(
        name=f"{family}-{n_cameras}",
        size=f"{n_cameras} cameras, {n_points} points",
        home=f"{BAL_HOME}/{family}",
        folder="bal",
        files=(f"problem-{size}-pre.txt.bz2",),
        check=read_bal,
    )


def _pair(name: str) -> DataSet:
    return DataSet(name, "450×375 pixels", f"{STEREO_HOME}/{name}", f"stereo/{name}", PAIR, check_image)


BAL = {made.name: made for family, sizes in BAL_SIZES.items() for made in (_bal(family, s) for s in sizes.split())}
PAPER = tuple(f"{family}-{n}" for family, cameras in PAPER_CAMERAS.items() for n in cameras)
STEREO = {name: _pair(name) for name in ("teddy", "cones")}
DATA_SETS = BAL | STEREO


def folders(data: FilePath | None = None) -> dict[str, Path]:
    """The folders to look in, in this order, by what they are called."""
    found = {}
    if data is not None:
        found["--data"] = Path(data)
        if not found["--data"].is_dir():
            raise FileError(data, "there is no such folder")
    if asked := os.environ.get("ASKER_DATA"):
        found["ASKER_DATA"] = Path(asked)
    return found | {"cache": cache_folder() / "data"}


def locate(name: str, data: FilePath | None = None) -> Path | None:
    """The file of a data set, or its folder if it has several files.  None if it is not on this machine."""
    wanted = _known(name)
    return next((wanted.below(folder) for folder in folders(data).values() if wanted.is_in(folder)), None)


def fetch(
    name: str, data: FilePath | None = None, progress: Say = lambda text: None, mirror: str | None = None
) -> Path:
    """Like `locate`, but what is not on this machine is downloaded into the cache.

    `mirror`, or the environment variable `ASKER_MIRROR`, is the address of a folder of data to download from, in place
    of the public homes.
    """
    if found := locate(name, data):
        return found
    wanted = _known(name)
    home = _home(wanted, mirror or os.environ.get("ASKER_MIRROR"))
    cache = folders()["cache"]
    folder = cache / wanted.folder
    try:
        for file in wanted.files:
            download(f"{home}/{file}", folder / file, wanted.check, progress)
    except Unreachable as e:
        by_hand = f"download {', '.join(wanted.files)} from {home}/ by hand and put it into {folder}"
        raise Unreachable(e.path, f"{e.what}; {by_hand}") from e
    return wanted.below(cache)


def _known(name: str) -> DataSet:
    if name not in DATA_SETS:
        raise ValueError(f"there is no data set {name!r}; asker.applications.fetch.DATA_SETS has them all")
    return DATA_SETS[name]


def _home(wanted: DataSet, mirror: str | None) -> str:
    if not mirror:
        return wanted.home
    if not mirror.startswith(("http://", "https://")):
        raise ValueError(f"the mirror must be an address that begins with http:// or https://, got {mirror!r}")
    return f"{mirror.rstrip('/')}/{wanted.folder}"
