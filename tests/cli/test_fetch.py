"""Downloads from a server on this machine that is good, broken, or odd in one way."""

import bz2
import os
import re
import socket
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from asker.applications.bundle.bal import read_bal, write_bal
from asker.applications.bundle.synthetic import make_scene
from asker.applications.datasets import (
    BAL,
    DATA_SETS,
    MB,
    PAIR,
    PAPER,
    POSE_GRAPHS,
    SE_SYNC_GRAPHS,
    STEREO,
    check_bundle,
    check_graph,
    fetch,
    locate,
)
from asker.cli import main
from asker.io import download
from asker.io.files import FileError, read_text_bytes
from asker.io.images import write_picture
from real_data import DATA

BUNDLE = "bal/problem-49-7776-pre.txt.bz2"
SCENE = make_scene(8, 400).start
"""Stands for ladybug-49, which is larger."""


@dataclass
class Served:
    """One file of the server, and how it is sent."""

    content: bytes
    length: bool = True
    """True if the server reports the length."""
    ranges: bool = True
    """True if the server supports ranges."""
    shift: int = 0
    """The number of bytes by which a range begins too late."""
    stops: list[int] = field(default_factory=list)
    """The number of bytes of each response after which the connection is dropped."""


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path[1:], asked))
        served = self.server.files.get(self.path[1:])
        if served is None:
            self.send_error(404)
            return
        whole, start = len(served.content), 0
        if asked and served.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) + served.shift
            self.send_response(206 if start < whole else 416)
            span = f"{start}-{whole - 1}" if start < whole else "*"
            self.send_header("Content-Range", f"bytes {span}/{whole}")
        else:
            self.send_response(200)
        body = served.content[start:]
        if served.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: served.stops.pop(0)] if served.stops else body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def running():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server(running, tmp_path, monkeypatch):
    """An empty server that is the mirror, and an empty cache."""
    running.files, running.asked = {}, []
    monkeypatch.setenv("ASKER_MIRROR", f"http://127.0.0.1:{running.server_port}/")
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASKER_DATA", raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    check = partial(check_bundle, n_cameras=SCENE.n_cameras, n_points=SCENE.n_points)
    monkeypatch.setitem(DATA_SETS, "ladybug-49", replace(DATA_SETS["ladybug-49"], check=check))
    monkeypatch.setattr(download, "CHUNK_BYTES", 256)
    monkeypatch.setattr(download, "PAUSE", 0)
    return running


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "data"


@pytest.fixture
def final(cache):
    return cache / BUNDLE


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "bundle.txt.bz2"
    write_bal(path, SCENE)
    return path.read_bytes()


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "image.png"
    write_picture(path, np.tile(np.arange(450.0), (375, 1)), 450)
    return path.read_bytes()


@pytest.fixture
def asks(server, capsys):
    """Run a command; returns exit code, stdout, stderr."""

    def ask(*arguments):
        code = main([str(a) for a in arguments])
        return code, *capsys.readouterr()

    return ask


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def part_of(final: Path) -> Path:
    return final.with_name(final.name + ".part")


def assert_whole(final, content):
    """The file is there, and nothing else is."""
    assert final.read_bytes() == content
    assert os.listdir(final.parent) == [final.name]


def assert_refused(final, *said):
    with pytest.raises(FileError) as caught:
        fetch("ladybug-49")
    message = str(caught.value)
    assert message.startswith(f"{final}: ")
    assert "\n" not in message
    for words in said:
        assert words in message
    assert not final.exists()
    assert locate("ladybug-49") is None


# ---- the table


def test_the_table_is_the_public_list():
    counts = {family: sum(name.startswith(family) for name in BAL) for family in
              ("ladybug", "trafalgar", "dubrovnik", "venice", "final")}  # fmt: skip
    assert counts == {"ladybug": 31, "trafalgar": 14, "dubrovnik": 16, "venice": 29, "final": 8}
    assert sum(counts.values()) + len(STEREO) + len(POSE_GRAPHS) == len(DATA_SETS)
    places = [(d.folder, file) for d in DATA_SETS.values() for file in d.files]
    assert len(set(places)) == len(places)


def test_the_paper_has_twenty_instances():
    assert len(set(PAPER)) == 20
    assert set(PAPER) <= set(BAL)


def test_addresses_are_those_of_the_public_homes():
    ladybug, teddy = DATA_SETS["ladybug-49"], DATA_SETS["teddy"]
    home = "https://grail.cs.washington.edu/projects/bal/data"
    assert f"{ladybug.home}/{ladybug.files[0]}" == f"{home}/ladybug/problem-49-7776-pre.txt.bz2"
    home = "https://vision.middlebury.edu/stereo/data/scenes2003/newdata"
    assert f"{teddy.home}/{teddy.files[0]}" == f"{home}/teddy/im2.png"
    intel, m3500 = DATA_SETS["intel"], DATA_SETS["M3500"]
    home = "https://raw.githubusercontent.com/david-m-rosen/SE-Sync/master/data"
    assert f"{intel.home}/{intel.name_at_home}" == f"{home}/intel.g2o"
    home = "https://www.dropbox.com/s/gmdzo74b3tzvbrw"
    assert f"{m3500.home}/{m3500.name_at_home}" == f"{home}/input_M3500_g2o.g2o?dl=1"


@pytest.mark.data
@pytest.mark.parametrize("name", POSE_GRAPHS)
def test_graphs_at_hand_are_those_of_the_table(name):
    """The file that is known by this name passes the check, and has as many poses and edges as the table says."""
    path = POSE_GRAPHS[name].found_in(DATA)
    if path is None:
        pytest.skip(f"real data not found: {name} below {DATA}")
    POSE_GRAPHS[name].check(path)
    lines = [line.split() for line in read_text_bytes(path).splitlines() if line.strip()]
    edges = [words for words in lines if words[0].startswith(b"EDGE")]
    poses = {words[1] for words in lines} | {words[2] for words in edges}
    n_edges = len({b" ".join(words) for words in edges})  # one of kitti_00 stands twice in some copies
    said = [int(number) for number in re.findall(r"(\d+) (?:poses|edges)", POSE_GRAPHS[name].size)]
    assert said[0] == len(poses)
    assert said[1:] in ([], [len(edges)], [n_edges])


def test_an_unknown_name_is_a_value_error(server):
    for ask in (locate, fetch):
        with pytest.raises(ValueError, match="no data set 'ladybug-48'"):
            ask("ladybug-48")


# ---- looking on this machine


def test_folders_are_searched_in_order(server, tmp_path, cache, bundle, monkeypatch):
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.mkdir()
    monkeypatch.setenv("ASKER_DATA", str(shared))
    assert locate("ladybug-49", own) is None
    for folder in (cache, shared, own):
        path = put(folder / BUNDLE, bundle)
        assert locate("ladybug-49", own) == fetch("ladybug-49", own) == path
    assert locate("ladybug-49") == shared / BUNDLE
    assert server.asked == []


def test_a_pair_is_found_when_all_its_images_are_there(server, tmp_path, image):
    for file in PAIR:
        assert locate("cones", tmp_path) is None
        put(tmp_path / "stereo" / "cones" / file, image)
    assert locate("cones", tmp_path) == tmp_path / "stereo" / "cones"


@pytest.mark.parametrize("name", ["intel.g2o", "intel.g2o.bz2"])
def test_a_graph_is_found_plain_or_packed(server, tmp_path, name):
    assert locate("intel", tmp_path) is None
    assert locate("intel", put(tmp_path / "g2o" / name, b"at hand").parents[1]) == tmp_path / "g2o" / name


def test_the_folder_of_the_user_must_exist(server, tmp_path):
    with pytest.raises(FileError, match="no such folder"):
        locate("ladybug-49", tmp_path / "none")


# ---- downloads


def test_a_file_is_downloaded_once(server, final, bundle):
    server.files[BUNDLE] = Served(bundle)
    said = []
    assert fetch("ladybug-49", progress=said.append) == fetch("ladybug-49") == locate("ladybug-49") == final
    assert_whole(final, bundle)
    assert read_bal(final).n_cameras == 8
    assert server.asked == [(BUNDLE, None)]
    assert f"{final.name}, 0.0 of {len(bundle) / 1e6:.1f} MB" in said


def test_a_pair_is_downloaded_into_its_folder(server, cache, image):
    server.files = {f"stereo/teddy/{file}": Served(image) for file in PAIR}
    assert fetch("teddy") == cache / "stereo" / "teddy"
    assert sorted(os.listdir(cache / "stereo" / "teddy")) == sorted(PAIR)


def test_of_a_pair_only_what_is_missing_is_downloaded(server, cache, image):
    server.files = {f"stereo/teddy/{file}": Served(image) for file in PAIR[:3]}
    with pytest.raises(FileError, match="404"):
        fetch("teddy")
    server.files[f"stereo/teddy/{PAIR[3]}"] = Served(image)
    server.asked.clear()
    fetch("teddy")
    assert server.asked == [(f"stereo/teddy/{PAIR[3]}", None)]


def test_a_graph_is_downloaded_under_its_own_name(server, cache, monkeypatch):
    """At home it has another one; a mirror is laid out like a folder of data."""
    graph = b"EDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\n"
    made = replace(DATA_SETS["M3500"], check=partial(check_graph, counts=[2, 1]))
    monkeypatch.setitem(DATA_SETS, "M3500", made)
    server.files["g2o/M3500.g2o"] = Served(graph)
    assert fetch("M3500") == cache / "g2o" / "M3500.g2o"
    (cache / "g2o" / "M3500.g2o").unlink()
    at_home = f"http://127.0.0.1:{server.server_port}/home"
    monkeypatch.delenv("ASKER_MIRROR")
    monkeypatch.setitem(DATA_SETS, "M3500", replace(DATA_SETS["M3500"], home=at_home))
    server.files["home/input_M3500_g2o.g2o?dl=1"] = Served(graph)
    assert fetch("M3500").read_bytes() == graph
    assert server.asked[-1] == ("home/input_M3500_g2o.g2o?dl=1", None)


def test_the_mirror_of_the_call_goes_first(server, final, bundle, monkeypatch):
    server.files[f"here/{BUNDLE}"] = Served(bundle)
    fetch("ladybug-49", mirror=f"http://127.0.0.1:{server.server_port}/here")
    assert_whole(final, bundle)


@pytest.mark.parametrize("length", [True, False])
def test_a_download_goes_on_from_the_part(server, final, bundle, length):
    server.files[BUNDLE] = Served(bundle, length)
    put(part_of(final), bundle[:1000])
    fetch("ladybug-49")
    assert_whole(final, bundle)
    assert server.asked == [(BUNDLE, "bytes=1000-")]


@pytest.mark.parametrize("length", [True, False])
def test_a_server_that_ignores_ranges_starts_anew(server, final, bundle, length):
    server.files[BUNDLE] = Served(bundle, length, ranges=False)
    put(part_of(final), b"x" * 1000)
    fetch("ladybug-49")
    assert_whole(final, bundle)
    assert len(server.asked) == 1


def test_a_dropped_connection_is_taken_up_again(server, final, bundle):
    server.files[BUNDLE] = Served(bundle, stops=[1024, 512])
    fetch("ladybug-49")
    assert_whole(final, bundle)
    assert server.asked == [(BUNDLE, None), (BUNDLE, "bytes=1024-"), (BUNDLE, "bytes=1536-")]


def test_a_download_that_does_not_go_on_is_kept_for_the_next_run(server, final, bundle):
    server.files[BUNDLE] = Served(bundle, stops=[1024, 0])
    assert_refused(final, "broke off after 1024 bytes", "again")
    assert part_of(final).read_bytes() == bundle[:1024]
    fetch("ladybug-49")
    assert_whole(final, bundle)
    assert server.asked[-1] == (BUNDLE, "bytes=1024-")


def test_a_file_that_is_shorter_than_told_ends(server, final, bundle):
    server.files[BUNDLE] = Served(bundle, ranges=False, stops=[1024] * 9)
    assert_refused(final, "broke off after 1024 bytes")
    assert len(server.asked) == 2


def test_a_complete_part_is_only_checked(server, final, bundle):
    server.files[BUNDLE] = Served(bundle)
    put(part_of(final), bundle)
    fetch("ladybug-49")
    assert_whole(final, bundle)
    assert server.asked == [(BUNDLE, f"bytes={len(bundle)}-")]


@pytest.mark.parametrize(("extra", "shift"), [(10, 0), (-1000, 7)], ids=["too long", "wrong range"])
def test_a_part_that_cannot_be_continued_is_dropped(server, final, bundle, extra, shift):
    server.files[BUNDLE] = Served(bundle, shift=shift)
    put(part_of(final), b"x" * (len(bundle) + extra))
    fetch("ladybug-49")
    assert_whole(final, bundle)
    assert [asked for _, asked in server.asked] == [f"bytes={len(bundle) + extra}-", None]


def test_an_interrupted_check_keeps_what_was_downloaded(server, final, bundle, monkeypatch):
    server.files[BUNDLE] = Served(bundle)

    def say(text):
        if "checking" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("ladybug-49", progress=say)
    assert_whole(part_of(final), bundle)


# ---- invalid responses


def test_without_a_length_the_file_is_taken_as_it_comes(server, final, bundle):
    server.files[BUNDLE] = Served(bundle, length=False)
    fetch("ladybug-49")
    assert_whole(final, bundle)


def spoiled(content):
    middle = len(content) // 2
    yield "cut short", content[:middle]
    yield "one byte wrong", content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    yield "a web page", b"<html>please log in</html>"
    yield "empty", b""


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("how", [how for how, _ in spoiled(b"123")])
def test_a_broken_bundle_is_refused(server, final, bundle, how, length):
    server.files[BUNDLE] = Served(dict(spoiled(bundle))[how], length)
    assert_refused(final, f"/{BUNDLE} is not valid: ")
    assert os.listdir(final.parent) == []


@pytest.mark.parametrize("how", [how for how, _ in spoiled(b"123")])
def test_a_broken_image_is_refused(server, cache, image, how):
    server.files = {f"stereo/cones/{file}": Served(image) for file in PAIR}
    server.files["stereo/cones/im6.png"] = Served(dict(spoiled(image))[how])
    with pytest.raises(FileError, match="is not valid"):
        fetch("cones")
    assert os.listdir(cache / "stereo" / "cones") == ["im2.png"]


@pytest.mark.parametrize("name", ["intel", "M3500"], ids=["with a checksum", "with an address alone"])
@pytest.mark.parametrize("content", [b"<html>please log in</html>", b""], ids=["a web page", "empty"])
def test_what_is_no_graph_is_refused(server, cache, name, content):
    server.files[f"g2o/{name}.g2o"] = Served(content)
    with pytest.raises(FileError, match="not a g2o file"):
        fetch(name)
    assert os.listdir(cache / "g2o") == []


def test_a_graph_with_another_checksum_is_refused(server, cache):
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for _, sha256 in SE_SYNC_GRAPHS.values())
    server.files["g2o/intel.g2o"] = Served(b"EDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\n")
    with pytest.raises(FileError, match="checksum differs"):
        fetch("intel")
    assert os.listdir(cache / "g2o") == []


def test_a_bundle_of_another_size_is_refused(server, cache):
    one = b"1 1 1\n0 0 1 2\n" + b"0 " * 9 + b"0 0 1\n"
    server.files["bal/problem-73-11032-pre.txt.bz2"] = Served(bz2.compress(one))
    with pytest.raises(FileError, match="it has 1 cameras and 1 points, not 73 and 11032"):
        fetch("ladybug-73")
    assert os.listdir(cache / "bal") == []


def test_a_graph_of_another_size_is_refused(server, cache):
    server.files["g2o/M3500.g2o"] = Served(b"EDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\n")
    with pytest.raises(FileError, match="it has 2 poses and 1 edges, not 3500 and 5453"):
        fetch("M3500")
    assert os.listdir(cache / "g2o") == []


def test_an_image_of_another_size_is_refused(server, cache, tmp_path):
    write_picture(tmp_path / "a.png", np.ones((20, 30)), 1)
    server.files = {f"stereo/teddy/{file}": Served((tmp_path / "a.png").read_bytes()) for file in PAIR}
    with pytest.raises(FileError, match="it has 30×20 pixels, not 450×375"):
        fetch("teddy")


@pytest.mark.parametrize("length", [True, False])
def test_more_than_there_can_be_is_not_taken(server, final, bundle, monkeypatch, length):
    """A file above the limit is rejected with and without a reported length, and no partial file is kept."""
    server.files[BUNDLE] = Served(bundle, length)
    monkeypatch.setitem(DATA_SETS, "ladybug-49", replace(DATA_SETS["ladybug-49"], most_bytes=len(bundle) - 1))
    assert_refused(final, "is larger than")
    assert os.listdir(final.parent) == []
    monkeypatch.setitem(DATA_SETS, "ladybug-49", replace(DATA_SETS["ladybug-49"], most_bytes=len(bundle)))
    fetch("ladybug-49")
    assert_whole(final, bundle)


def test_limits_are_generous():
    """The limits are at least four times the size of the available files, and at most a few GB."""
    for made in DATA_SETS.values():
        assert MB <= made.most_bytes <= 5000 * MB
        path = made.found_in(DATA)
        for file in path.iterdir() if path and path.is_dir() else filter(None, [path]):
            if file.name in made.files or file.name == f"{made.files[0]}.bz2":
                assert 4 * len(file.read_bytes()) < made.most_bytes


def test_a_part_of_another_file_is_refused_and_forgotten(server, final, bundle):
    server.files[BUNDLE] = Served(bundle)
    put(part_of(final), b"x" * 1000)
    assert_refused(final, "is not valid")
    fetch("ladybug-49")
    assert_whole(final, bundle)


def test_a_file_that_is_not_there_is_told_with_its_address(server, final):
    assert_refused(final, f"http://127.0.0.1:{server.server_port}/{BUNDLE} answers 404")
    assert len(server.asked) == 1


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_without_a_connection_the_way_by_hand_is_printed(server, final, monkeypatch):
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("ASKER_MIRROR", address)
    assert_refused(final, "no connection", f"download {final.name} from {address}/bal/ by hand", f"into {final.parent}")


def test_by_hand_a_graph_gets_its_own_name(server, cache, monkeypatch):
    monkeypatch.delenv("ASKER_MIRROR")
    home = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setitem(DATA_SETS, "NewCollege", replace(DATA_SETS["NewCollege"], home=home))
    with pytest.raises(FileError) as caught:
        fetch("NewCollege")
    told = f"download NewCollege_odometry_bow_tr.g2o from {home}/ by hand"
    assert f"{told} and put it into {cache / 'g2o'} as NewCollege.g2o" in str(caught.value)


def test_a_cache_that_cannot_be_written(server, tmp_path, bundle, monkeypatch):
    server.files[BUNDLE] = Served(bundle)
    monkeypatch.setenv("ASKER_CACHE", str(put(tmp_path / "file", b"")))
    assert_refused(tmp_path / "file" / "data" / BUNDLE, "cannot be written")


def test_a_mirror_must_be_an_address(server):
    with pytest.raises(ValueError, match=r"http.*'/srv/data'"):
        fetch("ladybug-49", mirror="/srv/data")


# ---- the command


def test_the_command_prints_where_the_data_is(asks, server, cache, final, bundle, image):
    server.files = {f"stereo/{pair}/{file}": Served(image) for pair in STEREO for file in PAIR}
    server.files[BUNDLE] = Served(bundle)
    told = "".join(f"{pair}: {cache / 'stereo' / pair}\n" for pair in STEREO)
    assert asks("fetch", "ladybug-49", "ladybug-49", "--stereo") == (0, f"ladybug-49: {final}\n{told}", "")


@pytest.mark.parametrize(("option", "names"), [("--paper", PAPER), ("--all-bal", BAL), ("--pose-graphs", POSE_GRAPHS)])
def test_groups_are_fetched_whole(asks, tmp_path, option, names):
    for name in names:
        put(DATA_SETS[name].path_in(tmp_path / "own"), b"at hand")
    code, out, err = asks("fetch", option, "--data", tmp_path / "own")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines()] == list(names)


def test_a_refused_file_does_not_cost_the_others(asks, server, final, bundle):
    server.files[BUNDLE] = Served(bundle)
    code, out, err = asks("fetch", "venice-89", "ladybug-49")
    assert (code, out) == (2, f"ladybug-49: {final}\n")
    assert re.fullmatch(r"asker: .*problem-89-110973-pre\.txt\.bz2 answers 404 .*\n", err)


def test_without_a_connection_the_command_ends_at_once(asks):
    code, out, err = asks("fetch", "--all-bal", "--mirror", f"http://127.0.0.1:{free_port()}")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"asker: .+ by hand .+\n", err)
    assert err.count("by hand") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ladybug-48"], ["ladybug-48", "did you mean ladybug-49?"]),
        (["tedy"], ["did you mean teddy?"]),
        ([], ["--paper", "--list"]),
        (["teddy", "--mirror", "ftp://there"], ["ftp://there"]),
        (["teddy", "--data", "/no/such/folder"], ["no such folder"]),
    ],
    ids=str,
)
def test_a_bad_command_line_is_refused_in_one_short_line(asks, arguments, said):
    code, out, err = asks("fetch", *arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"asker: .{,200}\n", err)
    for words in said:
        assert words in err


def test_the_list_tells_what_is_at_hand(asks, server, tmp_path, cache, bundle):
    own = put(tmp_path / "own" / BUNDLE, bundle).parents[1]
    put(DATA_SETS["final-394"].path_in(cache), bundle)
    code, out, err = asks("fetch", "--list", "--data", own)
    assert (code, err, server.asked) == (0, "", [])
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert rows.keys() >= DATA_SETS.keys()
    assert re.search(r"49 cameras, 7776 points +yes +--data *$", rows["ladybug-49"])
    assert re.search(r"394 cameras, 100368 points +yes +cache *$", rows["final-394"])
    assert re.search(r"73 cameras, 11032 points *$", rows["ladybug-73"])
    assert f"cache: {cache}" in out
    assert "ladybug-73" not in asks("fetch", "--list", "--paper")[1]


def test_progress_tells_the_bytes(asks, server, bundle, final, monkeypatch):
    server.files[BUNDLE] = Served(bundle)
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich take stderr for a terminal
    monkeypatch.setenv("TERM", "xterm")
    assert "ladybug-49: problem-49-7776-pre.txt.bz2, " in asks("fetch", "ladybug-49")[2]
    final.unlink()
    assert asks("fetch", "ladybug-49", "--quiet") == (0, f"ladybug-49: {final}\n", "")
