"""The block system: the one linear system of every strategy, solved block by block.

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ

    solver       dense or sparse Cholesky, or conjugate gradients                                     system.py
    elimination  one group of variables E is eliminated: L, z and Y                       schur_elimination.py
                 loops for it                                                                         blocks.py
                 Jacobians evaluated inside of these loops                                   fused_jacobians.py
    assembly     the Schur complement of the kept variables K, S = H_KK − YYᵀ, row by row   schur_complement.py
                 loops for it                                                                     schur_rows.py
    solution     Cholesky factorisation, dense or sparse                                         schur_solve.py
                 blocked dense Cholesky for few unknowns                                      small_cholesky.py
                 matrix-free conjugate gradients                                         conjugate_gradients.py
    back-substitution for the eliminated variables                                         schur_elimination.py
    inverse      blocks of the inverse, without damping                                              inverse.py
                 blocks of kept variables, and from these of eliminated ones                   schur_inverse.py
                 diagonal blocks of H                                                        diagonal_blocks.py
                 prediction variances of observations                                    prediction_variance.py

`dense_reference.py` solves the same system as one dense matrix and is the test oracle.  `gradients.py` computes
gradients and directional derivatives without a system; `wide_residuals.py` handles observations with too many
derivatives for printed loops.  All other loops are straight-line code for the given block sizes (`codegen.py`).

*Kept* variables are those that are not eliminated (the cameras of a bundle adjustment problem).  Other packages import
from this module, not from its submodules.  The sparsity structure comes from `asker.engines.sparsity`, the
regularisation of undetermined directions from `asker.engines.inverse_blocks`.
"""

from asker.engines.cpu.system.codegen import padded_rows
from asker.engines.cpu.system.diagonal_blocks import diagonal_hessian_blocks
from asker.engines.cpu.system.gradients import radial_change, two_gradients, without_active_bounds
from asker.engines.cpu.system.inverse import Inverse
from asker.engines.cpu.system.linearization import Derivatives, FusedJacobian, Linearization, Weights
from asker.engines.cpu.system.prediction_variance import prediction_variances
from asker.engines.cpu.system.system import System, choose_solver
from asker.engines.cpu.system.wide_residuals import compressed

__all__ = [
    "Derivatives",
    "FusedJacobian",
    "Inverse",
    "Linearization",
    "System",
    "Weights",
    "choose_solver",
    "compressed",
    "diagonal_hessian_blocks",
    "padded_rows",
    "prediction_variances",
    "radial_change",
    "two_gradients",
    "without_active_bounds",
]
