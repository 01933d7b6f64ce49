"""Plans, recorded runs, and the page that is made from them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import in_this_process

from asker.applications.bundle.bal import read_bal, write_bal
from asker.cli import main
from asker.experiments import SHIPPED
from asker.experiments.html_report import about, write_page
from asker.experiments.instances import sources
from asker.experiments.plan import ComparisonRequest, Run, plan_of_files
from asker.experiments.plan_reader import read_plan
from asker.experiments.process_pool import _fitting, run_all
from asker.experiments.records import read_record
from asker.experiments.runs import execute, needed_mb
from asker.experiments.summary import Book, cost_rows, excess, profile, ranking, read_book, sentence, write_index
from asker.io.figures import method_styles
from asker.io.files import FileError

pytestmark = pytest.mark.slow

SMALL = """
title = "Small"
[instances.tiny]
kind = "scene"
cameras = 6
observations = 300
start_error = 5.0
[instances.line]
kind = "mean"
[[groups]]
title = "Methods"
instances = ["tiny"]
methods = ["irls", { name = "asker", s0 = 3.0, label = "ours" }]
iterations = 6
[[groups]]
title = "Mean"
kind = "study"
instances = ["line"]
methods = ["irls", "asker"]
iterations = 5
"""


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


# ---- plans


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_plans_are_good(name, monkeypatch):
    monkeypatch.delenv("ASKER_DATA", raising=False)
    plan = read_plan(name)
    assert plan.runs()
    assert len({r.folder for r in plan.runs()}) == len(plan.runs())


def test_a_plan_is_read(plan_file):
    plan = read_plan(plan_file)
    assert [g.labels for g in plan.groups] == [("irls", "ours"), ("irls", "asker")]
    run = plan.groups[0].runs["tiny", "ours"][0]
    assert (run.method, run.settings, run.iterations, run.options["cameras"]) == ("asker", {"s0": 3.0}, 6, 6)
    assert run.options["seed"] == sources()["scene"][1].keys["seed"]


def test_equal_runs_of_two_plans_share_a_folder(plan_file, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(SMALL.replace('"Methods"', '"Something else"').replace("tiny", "same"))
    ours, theirs = ({r.folder.split("-")[-1] for r in read_plan(p).runs()} for p in (plan_file, other))
    assert ours == theirs
    changed = tmp_path / "changed.toml"
    changed.write_text(SMALL.replace("iterations = 6", "iterations = 7"))
    assert ours != {r.folder.split("-")[-1] for r in read_plan(changed).runs()}


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"irls", { name', '"irsl", { name', 13, "did you mean 'irls'"),
        ("cameras = 6", "camras = 6", 5, "did you mean 'cameras'"),
        ("s0 = 3.0", "s00 = 3.0", 13, "unknown setting 's00'"),
        ('kind = "scene"', 'kind = "scen"', 4, "did you mean 'scene'"),
        ('instances = ["tiny"]', 'instances = ["tinny"]', 12, "did you mean 'tiny'"),
        ("iterations = 6", "iterations = 0", 14, "at least 1"),
        ("iterations = 6", "repeats = 1000000000", 14, "repeats is 1000000000, expected at most 1000"),
        ("cameras = 6", 'cameras = "six"', 5, "expected int"),
        ('kind = "study"', 'kind = "stdy"', 17, "did you mean 'study'"),
        ('title = "Small"', 'titel = "Small"', 2, "did you mean 'title'"),
        ('kind = "mean"', 'kind = "bal"\nfile = "none.txt"', 10, "there is no file 'none.txt'"),
        ('["tiny"]', '["venice-1778"]', 12, "asker fetch venice-1778"),
        ("[instances.tiny]", "[instances.tiny", 3, ""),
        ('"irls", { name', '"irls", "irls", { name', 13, "two methods of a group"),
        ('"irls", { name', "3, { name", 13, "expected a name or a table"),
        ("s0 = 3.0", 's0 = "x"', 13, "expected a number"),
        ("cameras = 6", 'shape = "rng"', 5, "did you mean 'ring'"),
    ],
)
def test_bad_plans_are_refused_with_the_line(plan_file, asks, monkeypatch, old, new, line, said):
    monkeypatch.delenv("ASKER_DATA", raising=False)
    assert old in SMALL
    plan_file.write_text(SMALL.replace(old, new, 1))
    code, out, err = asks("reproduce", "--plan", plan_file, "--output", plan_file.parent / "out")
    assert (code, out) == (2, "")
    assert f"small.toml:{line}: " in err
    assert said in err
    assert not (plan_file.parent / "out").exists()


def test_a_plan_that_is_not_there(asks, tmp_path):
    code, _, err = asks("reproduce", "--plan", "quik", "--output", tmp_path / "out")
    assert (code, "quick" in err) == (2, True)


# ---- runs


@pytest.fixture
def run():
    options = sources()["scene"][1].keys | {"cameras": 6, "observations": 300, "start_error": 5.0}
    return Run("tiny", "scene", options, "asker", {}, 6)


def test_a_run_is_recorded_whole(tmp_path, run):
    folder = execute(run, tmp_path)
    record = read_record(folder)
    assert record.run == run
    assert [h["iteration"] for h in record.history] == list(range(7))
    assert record.cost == min(h["cost"] for h in record.history) < record.result["initial_cost"]
    assert {"numpy", "jax", "asker"} <= record.versions.keys()
    assert record.arrays()["points"].shape[1] == 3
    assert not list(tmp_path.glob("*.partial"))


def test_a_finished_run_is_not_run_again_and_a_cut_one_is(tmp_path, run):
    folder = execute(run, tmp_path)
    stamp = (folder / "result.json").stat().st_mtime_ns
    assert execute(run, tmp_path) == folder
    assert (folder / "result.json").stat().st_mtime_ns == stamp
    before = read_record(folder).cost
    shutil.move(folder, tmp_path / (folder.name + ".partial"))
    (tmp_path / (folder.name + ".partial") / "result.json").unlink()
    assert read_record(execute(run, tmp_path)).cost == before


def test_a_broken_record_is_reported(tmp_path, run):
    folder = execute(run, tmp_path)
    (folder / "history.jsonl").write_text("{")
    with pytest.raises(FileError, match="not the folder of a finished run"):
        read_record(folder)


def test_memory_is_kept_within_the_budget(run):
    runs = [Run(f"r{k}", "scene", run.options, "irls", {}, 5, k) for k in range(4)]
    each = needed_mb(run)
    assert len(list(_fitting(runs, [], 4, 2.5 * each))) == 2
    assert len(list(_fitting(runs, [], 4, 0.1 * each))) == 1
    assert list(_fitting(runs, runs[:1], 4, 0.1 * each)) == []
    assert len(list(_fitting(runs, [], 3, 1e9))) == 3


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, run):
    broken = Run("broken", "bal", sources()["bal"][1].keys | {"file": str(tmp_path / "x.txt")}, "irls", {}, 5)
    (tmp_path / "x.txt").write_text("nonsense")
    failed = run_all([broken, run], tmp_path / "runs", 1, 1e4)
    assert list(failed) == [broken.folder]
    assert "x.txt" in failed[broken.folder]
    assert (tmp_path / "runs" / run.folder / "result.json").exists()


# ---- reports


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    (root / "small.toml").write_text(SMALL)
    with in_this_process():
        code = main(["reproduce", "--plan", str(root / "small.toml"), "--output", str(root / "out"), "--figures"])
    assert code == 0
    return root / "out"


def test_tables_are_those_of_the_runs(reproduced):
    book = read_book(reproduced)
    first = book.groups[0]
    costs = {label: first.records["tiny", label].cost for label in first.labels}
    lowest = min(costs.values())
    assert excess(first) == {k: [pytest.approx(c / lowest - 1)] for k, c in costs.items()}
    assert ranking(first)[0]["method"] == min(costs, key=costs.get)
    assert ranking(first)[0]["method"] in sentence(first)
    rows = {r["method"]: r for r in cost_rows(first)}
    assert rows["ours"]["cost"] == costs["ours"]
    assert (reproduced / rows["ours"]["files"] / "result.json").exists()
    for x, y in profile(first, "cost").values():
        assert len(x) == len(y)
        assert np.all(np.diff(x) >= 0)
        assert np.all(np.diff(y) >= 0)
        assert y[-1] == 1


def test_report_draws_without_running(reproduced, asks, monkeypatch):
    page = (reproduced / "index.html").read_text()
    (reproduced / "index.html").unlink()
    monkeypatch.setattr("asker.experiments.runs.solve", lambda *a, **k: pytest.fail("ran all the same"))
    assert asks("report", reproduced)[0] == 0
    assert (reproduced / "index.html").read_text() == page


def test_figures_are_there_twice(reproduced):
    names = {p.name for p in (reproduced / "figures").iterdir()}
    assert {
        "1-curves.png",
        "1-curves.pdf",
        "1-inside.png",
        "1-structures.pdf",
        "2-curves.png",
        "2-landscape.pdf",
    } <= names


def test_report_needs_a_folder_of_runs(asks, tmp_path):
    code, _, err = asks("report", tmp_path)
    assert (code, "plan.json" in err) == (2, True)


def test_compare_takes_users_files_and_writes_the_best(asks, tmp_path, runs_here):
    from asker.applications.bundle.synthetic import make_scene

    scene = make_scene(6, 300, start_error=5.0)
    write_bal(tmp_path / "mine.txt", scene.start)
    best = tmp_path / "best.txt"
    settings = "--methods", "irls,asker", "--iterations", 10, "--output", tmp_path / "out", "--best", best
    code, text, _ = asks("compare", tmp_path / "mine.txt", *settings)
    assert code == 0
    assert "The best is" in text
    group = read_book(tmp_path / "out").groups[0]
    lowest = min(r.cost for r in group.records.values())
    plan = plan_of_files([best], ComparisonRequest(["irls"], iterations=1), {})
    assert read_bal(best).n_cameras == 6
    told = read_record(execute(plan.runs()[0], tmp_path / "again")).result["initial_cost"]
    assert told == pytest.approx(lowest, rel=1e-6)
    for arguments, said in (
        ((tmp_path / "none.txt",), "no such file"),
        ((tmp_path / "mine.txt", "--methods", "irsl"), "did you mean irls"),
        ((tmp_path / "mine.txt", tmp_path / "mine.txt", "--best", best), "single file"),
    ):
        code, _, err = asks("compare", *arguments)
        assert (code, said in err) == (2, True), err


def test_a_killed_plan_ends_with_the_same_tables(tmp_path, plan_file, reproduced, asks, runs_here):
    asked = "reproduce", "--plan", str(plan_file), "--output", str(tmp_path / "out"), "--processes", "1"
    command = [sys.executable, "-c", "import sys; from asker.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*command, *asked], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not list((tmp_path / "out" / "runs").glob("*/result.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert asks(*asked)[0] == 0

    def costs(root):
        return [[(r["instance"], r["method"], r["cost"]) for r in cost_rows(g)] for g in read_book(root).groups]

    assert costs(tmp_path / "out") == costs(reproduced)


# ---- the page in a real browser


def browser():
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium with chromedriver on this machine (Debian: apt install chromium chromium-driver)")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--enable-unsafe-swiftshader", "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return selenium.Chrome(options=options, service=selenium.ChromeService(driver))


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["laptop", "phone"])
def test_the_page_draws_and_sorts(reproduced, size):
    window = browser()
    try:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
        window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        window.get((reproduced / "index.html").as_uri())
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            plots = window.find_elements("css selector", ".plot")
            drawn = window.find_elements("css selector", ".plot[data-drawn=yes]")
            if plots and len(plots) == len(drawn):
                break
            time.sleep(0.2)
        assert len(plots) == len(drawn) >= 5
        assert all(p.find_elements("css selector", "svg, canvas") for p in plots)
        errors = [line for line in window.get_log("browser") if line["level"] == "SEVERE"]
        assert errors == []
        assert window.execute_script("return document.documentElement.scrollWidth") <= size[0]
        head = window.find_element("css selector", "section#group0 th:nth-child(4)")
        assert head.text.strip() == "cost"
        rows = "return [...document.querySelectorAll('section#group0 table')][0]"
        column = rows + ".querySelectorAll('td:nth-child(4)')"
        for direction in (1, -1):
            window.execute_script("arguments[0].click()", head)
            values = [float(c.text) for c in window.execute_script(column)]
            assert values == sorted(values)[::direction]
    finally:
        window.quit()


def test_the_page_holds_no_path_of_the_machine(reproduced):
    text = (reproduced / "index.html").read_text()
    data = text[text.index('<script id="data"') :]
    assert str(Path.home()) not in data
    assert str(reproduced) not in data
    assert json.loads((reproduced / "plan.json").read_text())["title"] == "Small"


def test_a_title_does_not_end_the_page(tmp_path):
    """A browser takes `<!--<script>` inside of a script as the beginning of one that ends later."""
    title = "<!--<script> & </script>"
    write_page(tmp_path / "index.html", Book(title, [], {}, [], tmp_path))
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    data = text[text.index('<script id="data"') :].split(">", 1)[1].split("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["title"] == title


def test_an_index_without_finished_runs_is_reported(tmp_path, plan_file):
    write_index(read_plan(plan_file), tmp_path)
    with pytest.raises(FileError, match="finished"):
        read_book(tmp_path)


def test_the_page_begins_with_data_kernel_and_iterations():
    runs = [Run("ring", "scene", {"noise": 0.4}, "irls", {}, 50, kernel=kernel) for kernel in ("cauchy", None)]
    told = "Data: ring; kernel cauchy, smooth-truncated; noise 0.4; iterations: 50."
    assert about(runs) == told
    assert about([]) == ""


def test_a_method_has_one_colour_and_ours_is_the_most_visible():
    first, second = method_styles(["irls", "asker", "gnc"]), method_styles(["asker-paper", "asker"])
    assert first["asker"]["color"] == second["asker"]["color"] == second["asker-paper"]["color"]
    assert second["asker"]["linestyle"] != second["asker-paper"]["linestyle"]
    assert first["asker"]["linewidth"] > max(first[name]["linewidth"] for name in ("irls", "gnc"))
    assert len({style["color"] for style in first.values()}) == 3
