"""Who imports whom: every file imports what is below its layer, and nothing above."""

import ast
from functools import cache
from pathlib import Path

import asker

SOURCE = Path(asker.__file__).parent
LAYERS = (
    (
        "arguments arrays differences interrupts jax_versions rotations kernels kernel_names left_out losses manifolds "
        "bounds linearity traced twists version",
        "formulas: they can be read alone",
    ),
    ("io", "bytes in and out: the library writes results and checkpoints, and knows no format of an application"),
    ("cache", "the user's folder for what can be made again: compiled code, downloads"),
    ("own", "asker's own functions, which the text of the package tells"),
    ("geometry", "frames and alignments: more than one application needs them"),
    ("variables", "groups of unknowns"),
    ("batched", "what functions of all observations return"),
    ("factors", "observations, and the residuals that tie variables"),
    ("problem", "what is to be solved, without a word on how"),
    ("sums", "over all observations, also where several processes hold them"),
    ("mixture", "two Gaussians in one sample"),
    ("noise", "what residuals say of the noise: results tell it"),
    ("inliers", "the rule by which an observation is an inlier"),
    ("few", "whether some of few observations agree beyond chance"),
    ("support", "which observations support a solution, and what speaks against it"),
    ("groups", "what belongs to groups of variables and factors, by name"),
    ("logs", "what is said while a solve goes on"),
    ("result_table", "the table of a result that a person reads"),
    ("saved_result", "what the file of a result must hold"),
    ("result", "what a solve returns: engines and strategies fill it"),
    ("starts", "values to begin with"),
    ("holding_out", "observations taken away from a problem, and what judges a result by them"),
    ("engines", "residuals and linear systems on one kind of machine: they know no method"),
    ("undetermined", "numbers that the data do not determine, in words"),
    ("stationarity", "whether a point may be a minimum, by its derivatives"),
    ("information", "what the observations of a result say of the unknowns"),
    ("chance", "how likely what holds a variable agrees by chance"),
    ("covariance", "how sure a result is: it needs derivatives, and no engine that solves"),
    ("leverage weakest", "how much of every observation a fit has used up, and which variables hang on too little"),
    ("current", "what holds at a point of an engine, for a user"),
    ("conditions", "which observations are possible at a point, as the user says"),
    ("efficiency", "how wide Cauchy's kernel is"),
    ("tails", "what residuals say of the tails of the noise"),
    ("near_outliers", "the weights of observations where outliers are near: it needs derivatives"),
    ("likelihood", "how well a point explains the data, whatever the noise"),
    ("rounding", "the grid of rounded data, seen in residuals at a point"),
    ("repeats", "observations that are copies of others"),
    ("trials", "many small problems at once, on an engine"),
    ("singles", "residuals one by one, by what a fit has left of each"),
    ("one_noise", "the proof that residuals are noise of one scale"),
    ("moves subsets", "small problems solved almost globally: single variables, or problems of few unknowns"),
    ("beliefs", "which observations a point believes, and what it would be to decide some the other way"),
    ("strategies", "methods: they know an engine by its verbs only"),
    ("sets", "the probability of every set of observations that may be inliers of a variable"),
    ("inlier_sets", "which observations may be inliers of a variable: it steps as a strategy does"),
    ("dependence", "whether residuals still depend on the data"),
    ("ground", "what a search for the noise stands on"),
    ("ending", "the end of such a search"),
    ("balance", "how much each factor group counts, by its noise"),
    ("unknown", "candidates where the noise is not known: it runs what it is given on an engine"),
    ("checkpoint", "a run on disk: it needs the states of strategies"),
    ("journal", "what a search has found so far, on disk: it goes on from there"),
    ("determined", "what the inliers of a result leave open"),
    ("loop", "the one loop: steps of a strategy on an engine, counted, timed and kept"),
    ("stages", "loops one after the other, where the noise is not known"),
    ("solving", "it brings problem, engine and strategy together"),
    ("dense", "a function of one vector as a problem"),
    ("stopping", "when a descent ends, by SciPy's tolerances"),
    ("scipy_like", "the simple door, as SciPy's: a problem and a solve in one call"),
    ("curve_fitting", "the same for curves"),
    ("public", "the names of asker itself"),
    ("applications", "rooms: a file format, a problem and a policy each, on top of the library"),
    ("study", "experiments: they know applications by their interface only"),
    ("shell", "the command line: it parses, calls and prints, and nothing imports it"),
)
"""From the bottom to the top: the parts of a layer, and why it is one."""
RANK = {name: rank for rank, (names, _) in enumerate(LAYERS) for name in names.split()}
SHARED = ("__init__", "application", "clouds", "fetch", "held_out", "outcome", "reconstruction", "told", "uncertainty")
"""Files of `applications` that belong to no room."""

FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def parts_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts


def layer_of(path):
    """The commands of a room are a part of the shell."""
    parts = parts_of(path)
    return "shell" if parts[0] == "applications" and parts[-1] == "commands" else parts[0]


@cache
def imported(path):
    """The parts of asker that a file imports, anywhere in it."""
    return list(_imported(path))


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            of_package = SOURCE.joinpath(*node.module.split(".")[1:]).is_dir()
            names = [f"{node.module}.{a.name}" if of_package else node.module for a in node.names]
        yield from (name.split(".")[1:] for name in names if name.split(".")[0] == "asker")


def imports(files):
    """Every import of some files: a file, and the parts of what it imports."""
    return [(path, target) for path in files for target in imported(path)]


def told(wrong):
    return [f"{'.'.join(parts_of(path))} imports {'.'.join(target)}" for path, target in wrong]


def points_downwards(path, target):
    layer = layer_of(path)
    if not target:  # asker itself
        return RANK[layer] > RANK["public"]
    if layer == "strategies" and target[0] == "engines":
        return target[1] == "point"
    beside = RANK[target[0]] == RANK[layer] == 0
    return target[0] == layer or RANK[target[0]] < RANK[layer] or beside


def test_imports_point_downwards():
    assert not told(each for each in imports(FILES) if not points_downwards(*each))


def room_of(path):
    parts = parts_of(path)
    return parts[1] if parts[0] == "applications" and parts[1] not in SHARED else None


def of_rooms(files):
    return [(path, target) for path, target in imports(files) if target[:1] == ["applications"] and len(target) > 1]


def test_rooms_do_not_know_each_other():
    """What two of them need is below them, or beside them in `applications`."""
    rooms = [path for path in FILES if room_of(path)]
    assert not told(each for each in of_rooms(rooms) if each[1][1] not in (room_of(each[0]), *SHARED))


def test_only_shared_files_of_applications_are_known_above():
    """A study serves every application through the interface, and so does the shell but for a room's own commands."""
    above = [path for path in FILES if parts_of(path)[0] in ("study", "shell")]
    known = (*SHARED, "applications", "application_of", "ROOMS")
    assert not told(each for each in of_rooms(above) if each[1][1] not in known)


def test_a_room_is_seen_however_it_is_imported(tmp_path):
    for k, line in enumerate(
        (
            "from asker.applications import bundle",
            "from asker.applications.bundle import bal",
            "import asker.applications.bundle.bal",
        )
    ):
        (tmp_path / f"{k}.py").write_text(line)
        assert imported(tmp_path / f"{k}.py")[0][:2] == ["applications", "bundle"]


def test_every_part_has_a_layer():
    assert {parts_of(path)[0] for path in FILES} == set(RANK)
