"""Methods by name; one paper, one file."""

from collections.abc import Callable
from functools import partial
from typing import Any

from asker.strategies.asker import ASKER
from asker.strategies.gnc import GNC
from asker.strategies.gnc_yang import GM, TLS, SurrogateGNC
from asker.strategies.irls import IRLS
from asker.strategies.mhq import MHQ
from asker.strategies.moo import LMMOO
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
    "moo": LMMOO,
    "regemm": ReGeMM,
    "gnc-gm": partial(SurrogateGNC, GM()),
    "gnc-tls": partial(SurrogateGNC, TLS(superlinear=True)),
    "asker": ASKER,
    "asker-published": ASKER.published,
    "asker-paper": ASKER.paper,
}
"""What `--method` takes: a name, and the strategy with its default settings."""
