"""Methods by name; one paper, one file.

strategy.py     every strategy: `init` and `step` on a frozen state, and the pieces that several use
irls.py, …      a paper each; asker.py is ASKER as in the paper, with filter.py
phases.py       strategies made of strategies: a first descent, a last phase, the best point kept
default.py      ASKER, the default: the paper's method in such phases
with_moves.py   a method, then moves of single variables and descents in turn
exchanges.py    a descent, then single observations in and out of those that are believed
"""

from collections.abc import Callable
from functools import partial
from typing import Any

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
from asker.strategies.triggs import Triggs

METHODS: dict[str, Callable[[], Any]] = {
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
"""What `--method` takes: a name, and the strategy with its default settings."""
