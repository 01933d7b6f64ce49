"""The command `asker fit` has the result of `asker.curve_fit`, writes its files, and reports errors of a table."""

import csv
import json

import numpy as np
import pytest

import asker

X = np.linspace(0, 5, 40)


def measured(n_outliers=4):
    y = 2.0 * np.exp(-1.3 * X) + 0.5 + 0.03 * np.random.default_rng(0).normal(size=len(X))
    y[5 : 5 + 3 * n_outliers : 3] += 2.0
    return y


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "decay.csv"
    rows = [
        f"{x};{y};{k % 2}".replace(".", ",")
        for k, (x, y) in enumerate(zip(X.tolist(), measured().tolist(), strict=True))
    ]
    rows[20] = "2,5;;0"
    path.write_text("time (s);signal [mV];group\n" + "\n".join(rows) + "\n")
    return path


def test_the_fit_is_that_of_curve_fit_and_is_written(asks, tmp_path, data):
    out, weights, page = (tmp_path / name for name in ("fit.json", "weights.csv", "fit.html"))
    files = ("--json", out, "--weights", weights, "--page", page)
    code, text, errors = asks("fit", data, "signal = a*exp(-b*time) + c", *files)
    assert (code, errors) == (0, "")
    assert max(map(len, text.splitlines())) <= 80 + len(str(tmp_path))
    assert "39 of 40 rows; columns signal (mV), time (s)" in text
    assert "omitted 1 rows with missing values: lines 22" in text
    record = json.loads(out.read_text())
    keep = np.arange(40) != 20
    best = asker.curve_fit(
        lambda x, a, b, c: a * np.exp(-b * x) + c, X[keep], measured()[keep], p0=[2, 1, 0.5], method="mm"
    )
    estimates = {p["name"]: p["estimate"] for p in record["parameters"]}
    for name, value in best.params.items():
        assert estimates[name] == pytest.approx(value, rel=1e-4)
    rows = list(csv.DictReader(weights.open()))
    assert [int(r["line"]) for r in rows if r["class"] == "outlier"] == [7, 10, 13, 16]
    assert {int(o["index"]) for o in record["outliers"]} == {5, 8, 11, 14}
    for r in rows:
        assert float(r["observed"]) - float(r["fitted"]) == pytest.approx(float(r["residual"]), abs=1e-12)
    html = page.read_text()
    assert html.count("<img") == 4
    assert 'src="data:image/png' in html
    assert "http" not in html.split("</style>")[1].split("base64")[0]


@pytest.mark.parametrize("method", ["least-squares", "noise", "lts"])
def test_every_method_and_the_options(asks, tmp_path, data, method):
    out = tmp_path / "fit.json"
    options = ("--fix", "c=0.5", "--bounds", "b=0:", "--start", "b=1", "--method", method, "--level", "0.9")
    code, text, _ = asks("fit", data, "signal = a*exp(-b*time) + c", "--json", out, *options)
    assert code == 0
    assert "90 % from" in text
    record = json.loads(out.read_text())
    a, b, c = (p["estimate"] for p in record["parameters"])
    assert c == 0.5
    if method != "least-squares":
        assert [a, b] == pytest.approx([2.0, 1.3], rel=0.1)


def test_categories_and_two_outputs_share_parameters(asks, tmp_path):
    rng, out = np.random.default_rng(1), tmp_path / "fit.json"
    group = np.array(list("ABC"))[np.arange(60) % 3]
    x = np.linspace(0, 3, 60)
    y = 2 * x + 1 + np.select([group == "B", group == "C"], [0.7, -0.4]) + 0.01 * rng.normal(size=60)
    z = -2 * x + 4 + 0.3 * rng.normal(size=60)
    path = tmp_path / "two.tsv"
    lines = ["group\tx\ty\tz", *("\t".join(map(str, row)) for row in zip(group, x, y, z, strict=True))]
    path.write_text("\n".join(lines))
    assert asks("fit", path, "y = a*x + b + C(group); z = -a*x + d", "--json", out)[0] == 0
    record = json.loads(out.read_text())
    estimates = {p["name"]: p["estimate"] for p in record["parameters"]}
    truth = {"a": 2.0, "b": 1.0, "d": 4.0, "C(group)[B]": 0.7, "C(group)[C]": -0.4}
    assert estimates == pytest.approx(truth, abs=0.15)
    ratio = record["output_scales"][1] / record["output_scales"][0]
    assert ratio == pytest.approx(30, rel=0.5)


def test_standard_deviations_are_a_column(asks, tmp_path):
    path, out = tmp_path / "line.csv", tmp_path / "fit.json"
    s = np.linspace(0.1, 1, 40)
    y = 3 * X + s * np.random.default_rng(3).normal(size=40)
    path.write_text("x,y,s\n" + "\n".join(f"{a},{b},{c}" for a, b, c in zip(X, y, s, strict=True)))
    assert asks("fit", path, "y = k*x", "--sigma", "s", "--method", "least-squares", "--json", out)[0] == 0
    best, covariance = asker.curve_fit(lambda x, k: k * x, X, y, sigma=s)
    (k,) = json.loads(out.read_text())["parameters"]
    assert (k["estimate"], k["standard_error"]) == pytest.approx((best[0], covariance[0, 0] ** 0.5), rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["signl = a*time"], "did you mean signal?"),
        (["signal = a*tme + b"], "has no column, only parameters; the columns are time, signal, group"),
        (["signal = a*time", "--fix", "k=1"], "--fix names 'k', which is not among the parameters a"),
        (["signal = a*time", "--fix", "a"], "expected NAME=VALUE"),
        (["signal = a*time", "--bounds", "a=3:1"], "the lower bound must be below the upper one"),
        (["signal = a*time", "--bounds", "a=x:1"], "'x' is not a number"),
        (["signal = a*time", "--method", "ols"], "--method is 'ols', which is not one of mm"),
        (["signal = a*time", "--sigma", "group"], "has a standard deviation of 0, expected positive numbers"),
        (["signal = a*sinus(time)"], "there is no function sinus"),
        (["signal = time"], "has no parameters: every name is a column"),
        (["log(signal - 9) = a*time"], "'log(signal - 9)' is not finite"),
        (["signal = a*time", "--level", "95"], "--level must lie between 0 and 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(asks, data, arguments, message):
    code, _, errors = asks("fit", data, *arguments)
    assert code == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_a_misspelt_column_beside_another_one_is_noted(asks, data):
    code, text, _ = asks("fit", data, "signal = a*exp(-b*time) + grou")
    assert code == 0
    assert "note: grou is a parameter; there is a column group" in text
