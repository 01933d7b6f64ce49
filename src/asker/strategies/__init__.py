"""Strategies by name; each paper has one file.

strategy.py                      interface of strategies, `init` and `step` on a frozen state, and shared functions
irls.py, …                       one paper each; graduated_filter.py is ASKER as in the paper, with filter.py
asker.py                         ASKER, the default: the paper's method with a first descent and a last phase
composite/phases.py              compositions of strategies: first descent, last phase, return to the best point
composite/with_block_moves.py    a method, followed by alternating moves of single variables and descents
composite/inlier_exchange.py     a descent, followed by trials that add or remove single inliers
"""

from collections.abc import Callable
from dataclasses import Field
from functools import partial
from typing import Any, ClassVar, Protocol

from asker.strategies.asker import ASKER
from asker.strategies.composite.phases import LastPhase
from asker.strategies.composite.with_block_moves import WithMoves
from asker.strategies.gnc import GNC
from asker.strategies.gnc_surrogate import GM, TLS, SurrogateGNC
from asker.strategies.irls import IRLS
from asker.strategies.lm_moo import LMMOO
from asker.strategies.mhq import MHQ
from asker.strategies.regemm import ReGeMM
from asker.strategies.sqrt_psi import SqrtPsi
from asker.strategies.strategy import Strategy
from asker.strategies.triggs import Triggs


class Method(Strategy, Protocol):
    """Strategy whose settings are the fields of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


METHODS: dict[str, Callable[[], Method]] = {
    "irls": IRLS,
    "triggs": Triggs,
    "sqrt-psi": SqrtPsi,
    "mhq": MHQ,
    "gnc": GNC,
    "gnc-exit": partial(GNC, early_exit=True),
    "gnc-last": partial(LastPhase, GNC()),
    "moo": LMMOO,
    "regemm": ReGeMM,
    "gnc-gm": partial(SurrogateGNC, GM()),
    "gnc-tls": partial(SurrogateGNC, TLS(superlinear=True)),
    "asker": ASKER,
    "asker-moves": WithMoves,
    "asker-published": ASKER.published,
    "asker-paper": ASKER.paper,
}
"""Strategies with default settings, by their names in the option `--method`."""
