"""The method `default` of plans and of `asker compare`, which estimates the noise scale."""

import pytest

import asker
from application_data import write_data
from asker.applications import applications
from asker.applications.bundle.application import APPLICATION as BUNDLE
from asker.experiments.html_report import group_data
from asker.experiments.plan_reader import read_plan
from asker.experiments.runs import solved
from asker.experiments.summary import read_book
from asker.io.files import FileError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a file or folder for every application."""
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("application", [a for a in applications() if a.estimates_noise], ids=lambda a: a.name)
def test_the_default_is_ranked_by_the_held_out_score(application, data, tmp_path, asks, runs_here):
    arguments = "--methods", "default,irls", "--kernels", "cauchy,huber", "--holdout", 0.2, "--output", tmp_path
    assert asks("compare", data[application.name], *arguments)[0] == 0
    (group,) = read_book(tmp_path).groups
    assert group.labels == ("default", "irls cauchy", "irls huber")
    assert group.measure.key == "held_out_score"
    page = (tmp_path / "index.html").read_text()
    assert "kernel estimated, cauchy, huber" in page
    (record,) = (r for (_, label), r in group.records.items() if label == "default")
    assert (record.run.estimates_noise, record.run.keys["kernel"], record.run.iterations) == (True, None, None)


def test_the_default_equals_a_solve_without_a_kernel(data, tmp_path, asks, runs_here):
    assert asks("compare", data["bundle"], "--methods", "default", "--output", tmp_path)[0] == 0
    (record,) = read_book(tmp_path).groups[0].records.values()
    made = BUNDLE.problem(BUNDLE.load(data["bundle"]), record.run.keys)
    expected = asker.solve(made.problem, engine="cpu")
    assert expected.estimated_noise is not None
    assert solved(made, record.run).cost == expected.cost
    assert record.cost == expected.cost
    assert group_data(read_book(tmp_path).groups[0])["curves"] == []  # each stage has another kernel


@pytest.mark.parametrize(
    ("name", "message"),
    [("bundle", "specify --holdout"), ("pose_graph", "not available for pose graphs"), ("stereo", "not available")],
)
def test_the_default_is_not_compared_by_costs(name, message, data, tmp_path, asks):
    code, _, err = asks("compare", data[name], "--methods", "default,irls", "--output", tmp_path)
    assert (code, message in err) == (2, True), err


def test_a_plan_compares_the_default_by_the_true_error(tmp_path):
    plan = tmp_path / "plan.toml"
    text = '[instances.a]\nkind = "{}"\n[[groups]]\ninstances = ["a"]\nmethods = ["default", "irls"]\n'
    plan.write_text(text.format("scene"))
    assert [run.iterations for run in read_plan(plan).runs()] == [None, 100]
    plan.write_text(text.format("mean"))
    with pytest.raises(FileError, match="not available for robust means"):
        read_plan(plan)
