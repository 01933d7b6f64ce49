"""Held-out observations of real reconstructions: BAL files and COLMAP models.

The truth is unknown; a tenth of the observations is held out, and the error is their score, in units of a pixel.
There is no oracle: the lowest score of all methods and settings replaces it, and *solved* means within 1 % of that
score.  The initial guess was computed from all observations, including the held-out ones; its score is shown, but not
comparable.
"""

from functools import cache
from typing import Any

import asker
from asker.applications import application_of
from asker.applications.bundle import bundle_problem, read_bal
from asker.applications.colmap import colmap_problem, read_model
from families.data_and_peers import data_folder
from families.family import Condition, Instance

BAL = {"trafalgar-21": "21-11315", "ladybug-49": "49-7776", "dubrovnik-16": "16-22106"}
MODELS = ("small-15", "video-177")
SHARE = 0.1
KEYS = {"camera": "pixel", "dof": 6, "refine": "poses"}


class HeldOutFamily:
    name = "held-out"
    n_oracles = 0
    sweep = (0.5, 1.0, 2.0, 3.0, 6.0)
    methods = ("irls-huber", "irls-cauchy", "irls-gm", "irls", "mhq", "gnc", "gnc-tls", "moo", "asker", "asker-cauchy")

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        available = [name for name in (*BAL, *MODELS) if path_of(name).exists()]
        if len(available) < len(BAL) + len(MODELS):
            n_missing = len(BAL) + len(MODELS) - len(available)
            print(f"held-out: {n_missing} data sets are skipped, they do not exist; ASKER_DATA sets the data folder")
        return [({"data": name}, 0) for name in (available[1:2] if quick else available)]

    def make(self, condition: Condition, seed: int) -> Instance:
        data = data_of(condition["data"])
        application = application_of(path_of(condition["data"]))
        split = application.hold_out(data, KEYS, SHARE, seed)
        adjustment: Any = None

        def problem(kernel: asker.Kernel | None) -> asker.Problem:
            nonlocal adjustment
            make: Any = bundle_problem if application.name == "bundle" else colmap_problem
            adjustment = make(split.training, kernel)
            return adjustment.problem

        def score(result: asker.Result) -> float:
            return split.predicted(adjustment.refined(result.values)).score

        start = {"the start, which saw them": lambda _: split.predicted(data).score}
        return Instance(problem, score, None, number=1.0, peers=start, without_number=frozenset(start))


FAMILY = HeldOutFamily()


def path_of(name: str) -> Any:
    data = data_folder()
    return data / "bal" / f"problem-{BAL[name]}-pre.txt.bz2" if name in BAL else data / "colmap" / name


@cache
def data_of(name: str) -> Any:
    return (read_bal if name in BAL else read_model)(path_of(name))
