"""Tests of every application: its interface, detection of its files, and equality of `refine` and the command."""

import inspect
import json
import shutil
from dataclasses import fields, replace

import numpy as np
import pytest

import asker
from application_data import write_data
from asker.applications import application_of, applications, bundle, colmap, pose_graph, rotation_averaging, stereo
from asker.applications.application import Application
from asker.cli import app, main
from asker.cli.solve import OPTIONS
from asker.experiments.instances import sources
from asker.experiments.plan_reader import read_plan
from asker.experiments.records import write_sums
from asker.io.files import FileError
from asker.io.json import plain
from synthetic_graphs import circle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("runs_here")]

EVERY = pytest.mark.parametrize("application", applications(), ids=lambda a: a.name)
TIMES = {"seconds", "compiled"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a file or folder for every application."""
    return write_data(tmp_path_factory.mktemp("data"))


@EVERY
def test_an_application_implements_the_interface(application):
    for name in ("name", "title", "expects", "experiment_title"):
        assert getattr(application, name)
    for one in fields(application.options_class):
        assert one.metadata["help"].endswith("."), one.name
        assert one.name in OPTIONS.fields
    methods = vars(type(application))
    for name in ("owns", "load", "write", "counts", "info", "refine", "report", "sizes", "problem", "evaluate"):
        assert name in methods, name
        expected, actual = (inspect.signature(f).parameters for f in (getattr(Application, name), methods[name]))
        assert list(expected) == list(actual), name


@EVERY
def test_the_application_of_a_path_is_detected_from_its_content(application, data, tmp_path):
    path = data[application.name]
    assert [a.name for a in applications() if a.owns(path)] == [application.name]
    assert application.reads_folder == path.is_dir()
    renamed = tmp_path / "something"
    shutil.copytree(path, renamed) if path.is_dir() else shutil.copy(path, renamed)
    assert application_of(renamed) is application


def test_an_unknown_path_is_rejected_with_a_list_of_applications(asks, tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    (tmp_path / "empty").write_text("")
    for path, what in (
        (tmp_path, "this folder"),
        (tmp_path / "note.txt", "this file"),
        (tmp_path / "empty", "empty file"),
    ):
        for command in ("solve", "info", "compare"):
            code, out, err = asks(command, path)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert all((a.expects in err) == (a.reads_folder == path.is_dir()) for a in applications())
            assert what in err
    with pytest.raises(FileError, match="no such file"):
        application_of(tmp_path / "none")


def test_a_nearby_folder_is_suggested(data, tmp_path):
    model = tmp_path / "project" / "sparse" / "0"
    shutil.copytree(data["colmap"], model)
    for path in (tmp_path / "project", next(model.glob("images.*"))):
        with pytest.raises(FileError, match=r"did you mean .*sparse.0\?"):
            application_of(path)


def test_a_damaged_file_is_detected_from_its_name(tmp_path):
    (tmp_path / "a.g2o").write_text("VERTX_SE2 0 0 0 0\n")
    assert application_of(tmp_path / "a.g2o").name == "pose_graph"


@EVERY
def test_options_of_other_applications_are_rejected(asks, data, application):
    for name, owners in OPTIONS.owners.items():
        if "" in owners or application.title in owners:
            continue
        one = OPTIONS.fields[name]
        flag = one.metadata.get("names", "--" + name.replace("_", "-")).split("/")[0]
        value = [] if one.type is bool else [str(one.default or 3)]
        code, _, err = asks("solve", data[application.name], flag, *value)
        assert (code, err) == (
            2,
            f"asker: {flag} is an option for {' and '.join(owners)}, not for {application.title}\n",
        )


READERS = {
    "bundle": (bundle.read_bal, bundle.refine),
    "colmap": (colmap.read_model, colmap.refine),
    "pose_graph": (pose_graph.read_g2o, pose_graph.refine),
    "stereo": (stereo.read_folder, stereo.refine),
    "rotation_averaging": (rotation_averaging.read_rotations, rotation_averaging.refine),
}


def without_times(x):
    if isinstance(x, dict):
        return {key: without_times(value) for key, value in x.items() if key not in TIMES}
    return [without_times(value) for value in x] if isinstance(x, list) else x


@EVERY
def test_refine_and_the_command_agree(application, data, tmp_path):
    path, record_file = data[application.name], tmp_path / "run.json"
    assert main(["solve", str(path), "--iterations", "60", "--json", str(record_file), "--quiet"]) == 0
    read, refine = READERS[application.name]
    outcome = refine(read(path), max_iterations=60)
    record = json.loads(record_file.read_text())
    assert record.pop("folder" if path.is_dir() else "file") == str(path)
    assert without_times(record) == without_times(plain(outcome.record))
    assert outcome.succeeded


@EVERY
def test_held_out_observations_validate_a_result(application, data, tmp_path, asks):
    path, record_file = data[application.name], tmp_path / "run.json"
    arguments = "solve", path, "--holdout", "0.2", "--iterations", "20", "--quiet"
    if application.name == "stereo":
        assert asks(*arguments) == (2, "", "asker: --holdout: stereo pairs have no observations that can be held out\n")
        return
    code, out, _ = asks(*arguments, "--json", record_file)
    assert code == 0
    assert "held out" in out
    record = json.loads(record_file.read_text())
    holdout = record["holdout"]
    assert (holdout["share"], holdout["seed"]) == (0.2, 0)
    assert 0 <= holdout["score"] <= 1
    assert holdout["n"] > 0
    read, refine = READERS[application.name]
    whole = refine(read(path), max_iterations=20)
    assert record["cost"] == whole.record["cost"]  # solved again with all observations
    assert asks(*arguments, "--no-again", "--json", record_file)[0] == 0
    alone = json.loads(record_file.read_text())
    assert alone["holdout"] == holdout
    assert alone["cost"] != record["cost"]


def test_options_that_contradict_holdout_are_rejected(asks, data, tmp_path):
    file, out = data["bundle"], tmp_path / "out.txt"
    for more, message in (
        (["--holdout", "0"], "--holdout must lie strictly between 0 and 1, as 0.1 does, got 0"),
        (["--holdout", "1"], "--holdout must lie strictly between 0 and 1, as 0.1 does, got 1"),
        (["--no-again"], "--again or --no-again requires --holdout"),
        (["--holdout-seed", "3"], "--holdout-seed requires --holdout"),
        (["--holdout", "0.1", "--holdout-unit", "0"], "--holdout-unit must be positive"),
        (["--holdout", "0.1", "--checkpoint", out], "--holdout solves twice: omit --checkpoint or give --no-again"),
        (["--holdout", "0.1", "--no-again", "--output", out], "only --json can be written"),
    ):
        code, _, err = asks("solve", file, *more)
        assert code == 2
        assert message in err
    for more, message in (
        (
            ["--kernels", "cauchy,huber"],
            "costs under different kernels or widths cannot be compared: specify --holdout as well",
        ),
        (["--tau", "1,2"], "costs under different kernels or widths cannot be compared"),
        (["--tau", "1,1", "--holdout", "0.1"], "--tau has one value twice"),
        (["--tau", "1,x"], "--tau is 'x'"),
        (["--kernels", "cauch"], "did you mean cauchy?"),
    ):
        code, _, err = asks("compare", file, "--output", tmp_path / "none", *more)
        assert code == 2
        assert message in err


@EVERY
def test_methods_are_ranked_by_the_hold_out_score(application, data, tmp_path, asks):
    if application.name == "stereo":
        pytest.skip("nothing can be held out")
    out = tmp_path / "out"
    more = ["--methods", "irls", "--kernels", "cauchy,huber", "--iterations", "5", "--processes", "1", "--quiet"]
    code, text, _ = asks("compare", data[application.name], *more, "--holdout", "0.2", "--output", out)
    assert code == 0
    assert "the lowest held-out score" in text
    page = (out / "index.html").read_text()
    shown = json.loads(page.partition('<script id="data" type="application/json">')[2].partition("</script>")[0])
    rows = shown["groups"][0]["rows"]
    assert [row["method"] for row in rows] == ["irls cauchy", "irls huber"]
    assert list(rows[0])[:3] == ["instance", "method", "held-out score"]
    scores = [row["held-out score"] for row in rows]
    assert shown["groups"][0]["ranking"][0]["median held-out score"] == min(scores)
    assert scores[0] != scores[1]


@EVERY
def test_methods_are_compared_and_drawn(application, data, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--methods", "irls,asker", "--iterations", "5", "--processes", "1", "--output", str(out), "--figures"]
    assert main(["compare", str(data[application.name]), *arguments, "--quiet"]) == 0
    assert application.experiment_title in capsys.readouterr().out
    page = (out / "index.html").read_text()
    shown = json.loads(page.partition('<script id="data" type="application/json">')[2].partition("</script>")[0])
    group = shown["groups"][0]
    drawing = {"bundle": "clouds", "colmap": "clouds", "pose_graph": "paths", "stereo": "maps"}.get(application.name)
    assert drawing is None or group[drawing]
    assert [line["label"] for line in group["curves"][0]["lines"]] == ["irls", "asker"]
    (out / "index.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "index.html").read_text() == page


@pytest.mark.parametrize("kind", [k for k, (a, s) in sources().items() if s.place is None and a.holds_out])
def test_hold_out_of_synthetic_data(kind, tmp_path):
    if kind == "mean":
        pytest.skip("the paper's mean has one variable and is not an application")
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    small = {"scene": "cameras = 6\nobservations = 300\nstart_error = 5.0\n", "made rotations": "n = 12\npairs = 50\n"}
    text = f'[instances.made]\nkind = "{kind}"\n{small.get(kind, "")}[[groups]]\ninstances = ["made"]\n'
    plan.write_text(text + 'methods = ["irls"]\niterations = 2\nholdout = 0.1\n')
    assert main(["reproduce", "--plan", str(plan), "--output", str(out), "--quiet"]) == 0
    (record,) = (json.loads(path.read_text()) for path in out.glob("runs/*/result.json"))
    assert 0 < record["held_out_score"] <= 1


def test_a_run_without_a_score_is_ranked_last(data, tmp_path, capsys):
    out = tmp_path / "out"
    asked = ["--methods", "irls,gnc", "--iterations", "2", "--processes", "1", "--holdout", "0.2", "--quiet"]
    assert main(["compare", str(data["bundle"]), *asked, "--output", str(out)]) == 0
    bad = next(out.glob("runs/*-gnc-*/result.json"))
    bad.write_text(json.dumps(json.loads(bad.read_text()) | {"held_out_median": None, "held_out_score": None}))
    write_sums(bad.parent)
    capsys.readouterr()
    assert main(["report", str(out)]) == 0
    page = (out / "index.html").read_text()
    shown = json.loads(page.partition('<script id="data" type="application/json">')[2].partition("</script>")[0])
    assert [row["method"] for row in shown["groups"][0]["ranking"]] == ["irls", "gnc"]


def test_the_reason_is_reported_if_every_run_fails(tmp_path, asks):
    graph = circle(drift=0.02)[1]
    pose_graph.write_g2o(tmp_path / "way.g2o", graph.with_edges(graph.is_odometry))
    out = tmp_path / "out"
    code, _, err = asks("compare", tmp_path / "way.g2o", "--methods", "irls", "--holdout", "0.2", "--output", out)
    assert code == 1
    assert "a pose graph without loop closures has no observations" in err


def test_an_interrupted_holdout_writes_the_record_only(data, tmp_path, asks, monkeypatch):
    def interrupted(*arguments, **more):
        return replace(solve(*arguments, **more), status=asker.Status.INTERRUPTED)

    solve = asker.solve
    monkeypatch.setattr(asker, "solve", interrupted)
    out, record_file = tmp_path / "out.txt", tmp_path / "run.json"
    given = "--holdout", "0.2", "--iterations", "3", "--output", out, "--json", record_file
    code, printed, _ = asks("solve", data["bundle"], *given, "--quiet")
    assert code == 130
    assert "only --json is written" in printed
    assert record_file.exists()
    assert not out.exists()


def test_a_plan_can_hold_out_and_specify_kernels(data, tmp_path):
    plan = tmp_path / "plan.toml"
    text = f'[instances.mine]\nfile = "{data["bundle"]}"\n[[groups]]\ninstances = ["mine"]\n'
    text += "iterations = 2\nholdout = 0.1\n"
    plan.write_text(text + 'methods = ["irls", { name = "irls", kernel = "cauchy", tau = 2, label = "Cauchy" }]\n')
    out = tmp_path / "out"
    assert main(["reproduce", "--plan", str(plan), "--output", str(out), "--quiet"]) == 0
    configs = [json.loads(path.read_text()) for path in out.glob("runs/*/config.json")]
    assert {(c["kernel"], c["tau"], c["holdout"]) for c in configs} == {(None, None, 0.1), ("cauchy", 2.0, 0.1)}
    for wrong, message in (
        ("holdout = 2", "holdout is 2, expected a number between 0 and 1"),
        ('methods = [{ name = "irls", kernel = "couchy" }]', "did you mean cauchy"),
        ('methods = [{ name = "irls", tau = -1 }]', "tau is -1, expected a positive number"),
    ):
        key = wrong.split()[0]
        kept = [line for line in plan.read_text().splitlines() if not line.startswith(key)]
        bad = tmp_path / "bad.toml"
        bad.write_text("\n".join([*kept, wrong]))
        with pytest.raises(FileError, match=message):
            read_plan(bad)


def test_a_plan_can_have_instances_of_any_application(data, tmp_path):
    text = 'title = "All"\n'
    for name, path in data.items():
        source = next(a for a in applications() if a.name == name).sources[0]
        text += f'[instances.{name}]\nkind = "{source.kind}"\n{source.place} = "{path}"\n'
    text += f'[[groups]]\ninstances = {sorted(data)}\nmethods = ["irls"]\niterations = 2\n'
    (tmp_path / "plan.toml").write_text(text)
    assert main(["reproduce", "--plan", str(tmp_path / "plan.toml"), "--output", str(tmp_path / "out"), "--quiet"]) == 0
    assert len(list((tmp_path / "out" / "runs").glob("*/result.json"))) == len(data)


def test_kinds_of_sources_are_unique():
    assert len(sources()) == sum(len(a.sources) for a in applications()) + 1  # and the robust mean


@pytest.mark.parametrize("name", app.COMMANDS)
def test_commands_have_few_parameters(name):
    """Options are fields of dataclasses, not parameters."""
    command = app.command_named(name).callback.__wrapped__
    assert command.__code__.co_argcount + command.__code__.co_kwonlyargcount <= 14


def test_the_inflection_is_that_of_the_default_kernel():
    from asker.applications.outcome import INFLECTION

    assert asker.SmoothTruncated(2.0).inlier_radius == pytest.approx(2 * INFLECTION)
    assert np.sqrt(1 / 3) == pytest.approx(INFLECTION)
