"""The block system: the one linear system of every strategy, solved block by block.

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ

    choose      dense, sparse, or by conjugate gradients                                                 system.py
    eliminate   one group of variables leaves the system: L, z and Y                                elimination.py
                the loops for it                                                                         blocks.py
                derivatives, made inside of them                                                     in_passing.py
    assemble    the matrix of those that are kept, S = H_KK − YYᵀ, row by row                           reduced.py
                the loops for it                                                                    matrix_rows.py
    solve       Cholesky, dense or sparse                                                             factorise.py
                the dense one of few unknowns, in blocks                                         small_cholesky.py
                or products with S alone                                                    conjugate_gradients.py
    substitute  back, for the eliminated variables                                                  elimination.py
    invert      blocks of the inverse, without damping                                                  inverse.py
                of the kept variables, and from these of the eliminated ones                       kept_inverse.py
                the own blocks of single variables                                                   own_blocks.py
                how uncertain each observation is                                                     predicted.py

`reference.py` writes the same system as one dense matrix: the oracle of all that.  `gradients.py` has what needs
derivatives and no system, wide.py what is done where an observation has too many derivatives for a loop that is
printed.  Other loops are straight-line code for the block sizes at hand (printing.py).

Others import from here, and from no file inside.  Who touches whom comes from `asker.engines.sparsity`, what holds
directions that are not determined from `asker.engines.inverse_blocks`.
"""

from asker.engines.cpu.system.codegen import spacious
from asker.engines.cpu.system.diagonal_blocks import own_blocks
from asker.engines.cpu.system.gradients import barred_out, radial_change, two_gradients
from asker.engines.cpu.system.inverse import Inverse
from asker.engines.cpu.system.linearization import Derivatives, InPassing, Linearization, Weights
from asker.engines.cpu.system.prediction_variance import predicted
from asker.engines.cpu.system.system import System, choose_solver
from asker.engines.cpu.system.wide_residuals import shortened

__all__ = [
    "Derivatives",
    "InPassing",
    "Inverse",
    "Linearization",
    "System",
    "Weights",
    "barred_out",
    "choose_solver",
    "own_blocks",
    "predicted",
    "radial_change",
    "shortened",
    "spacious",
    "two_gradients",
]
