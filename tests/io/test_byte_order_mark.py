"""A byte order mark at the beginning of a text changes nothing that is read."""

import bz2
import codecs
import gzip
import pickle

import numpy as np
import pytest

from asker.applications import application_of
from asker.applications.bundle.parallel_reader import read_bal_together
from asker.applications.colmap.constant_parameters import constant_parameters
from colmap_models import some_model
from reader_cases import CASES

TEXTS = [
    "BAL", "BAL gz", "BAL bz2", "COLMAP text", "positions", "control points", "g2o SE2", "g2o SE3", "g2o gz",
    "g2o landmarks SE3", "g2o trajectory", "TUM", "KITTI", "TORO SE2", "TORO SE3", "Open3D", "false loops", "plan",
    "rotations",
]  # fmt: skip
PACKERS = {".gz": (gzip.compress, gzip.decompress), ".bz2": (bz2.compress, bz2.decompress)}
"""The functions that compress and decompress a file, by extension."""


def marked(path):
    """Add a byte order mark to the text of a file."""
    pack, unpack = PACKERS.get(path.suffix, (bytes, bytes))
    path.write_bytes(pack(codecs.BOM_UTF8 + unpack(path.read_bytes())))


@pytest.mark.parametrize("name", TEXTS)
def test_every_reader_reads_the_same(name, tmp_path):
    (folder := tmp_path / "a").mkdir()
    case = CASES[name](folder)
    before = pickle.dumps(case.read())
    for path in case.files:
        marked(path)
    assert pickle.dumps(case.read()) == before


@pytest.mark.parametrize("name", ["BAL", "BAL gz", "g2o SE2", "TORO SE2", "Open3D", "rotations"])
def test_the_application_of_a_file_is_the_same(name, tmp_path):
    (folder := tmp_path / "a").mkdir()
    (path,) = CASES[name](folder).files
    before = application_of(path)
    marked(path)
    assert application_of(path) is before


def test_several_processes_read_the_same(tmp_path):
    (folder := tmp_path / "a").mkdir()
    case = CASES["BAL"](folder)
    marked(case.files[0])
    found = read_bal_together(case.files[0], 0, 1, lambda x: x[None]).bundle
    np.testing.assert_array_equal(found.cameras, case.read().cameras)
    np.testing.assert_array_equal(found.uv, case.read().uv)


def test_a_list_of_names(tmp_path):
    model, names = some_model(), tmp_path / "names.txt"
    names.write_bytes(codecs.BOM_UTF8 + model.images.names[0].encode() + b"\n")
    assert np.flatnonzero(constant_parameters(model, [f"images=@{names}"]).images).tolist() == [0]
