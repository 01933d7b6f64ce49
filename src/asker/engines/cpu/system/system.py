"""The linear system of a step,

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ,

solved by eliminating one group of variables (schur_elimination.py) and solving for the kept ones by Cholesky
factorisation or conjugate gradients.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

from asker.engines.cpu.system.conjugate_gradients import ConjugateGradients
from asker.engines.cpu.system.dense_reference import reference, unit_of_damping
from asker.engines.cpu.system.linearization import Delta, Derivatives, Linearization, Weights
from asker.engines.cpu.system.schur_complement import ReducedMatrix
from asker.engines.cpu.system.schur_elimination import Elimination, Eliminator
from asker.engines.cpu.system.schur_solve import DenseCholesky, SparseCholesky
from asker.engines.solvers import CG, CPU_SOLVERS, LinearSolver
from asker.engines.sparsity import Structure


class System:
    """The linear solver of a problem's structure, which is analysed once."""

    def __init__(
        self,
        structure: Structure,
        solver: LinearSolver = "auto",
        relative_damping: bool = False,
    ):
        """`relative_damping` adds λ diag(H) instead of λI, for variables whose components have different units."""
        settings = solver if isinstance(solver, CG) else CG()
        solver = "cg" if isinstance(solver, CG) else solver
        if solver not in CPU_SOLVERS:
            raise ValueError(f"linear_solver must be one of {', '.join(CPU_SOLVERS)} or CG(...), not {solver!r}")
        self.structure = structure
        self.solver = choose_solver(structure) if solver == "auto" else solver
        self.relative = relative_damping
        self.last_gradient = np.inf
        """Gradient norm ‖g‖ of the last system that conjugate gradients solved."""
        self.seconds = {"assemble": 0.0, "factorise": 0.0}
        if self.solver == "reference":
            return
        self.eliminate = Eliminator(structure, relative_damping)
        self.reduced = ReducedMatrix(structure, self.solver == "dense-cholesky", eliminate=self.solver != "cg")
        self.finish: DenseCholesky | SparseCholesky | ConjugateGradients
        if self.solver == "cg":
            self.finish = ConjugateGradients(structure, self.reduced, settings)
        else:
            self.finish = (DenseCholesky if self.solver == "dense-cholesky" else SparseCholesky)(self.reduced)

    def solve(self, linear: Sequence[Derivatives], model: list[Weights], damping: float) -> Delta | None:
        """Return the step δ, or None if every factorisation fails."""
        if self.solver == "reference":
            stored = [lin for lin in linear if isinstance(lin, Linearization)]
            return reference(self.structure, stored, model, damping, self.relative)
        begin = time.perf_counter()
        elimination = self.eliminate(linear, model, damping)
        if elimination is None:
            return None
        if not self.structure.n_kept:
            return self._substituted(elimination, np.zeros(0))
        self.reduced.assemble(linear, model, elimination)
        added = damping * unit_of_damping(self.reduced.diagonal, self.relative)
        assembled = time.perf_counter()
        self.seconds["assemble"] += assembled - begin
        if isinstance(self.finish, ConjugateGradients):
            x, self.last_gradient = self.finish(elimination, added, self.last_gradient)
        else:
            x = self.finish(added)
        self.seconds["factorise"] += time.perf_counter() - assembled
        return None if x is None else self._substituted(elimination, x)

    def precompile(self, linear: Callable[[], Sequence[Derivatives]], model: list[Weights]) -> Delta:
        """Enqueue the compilation of the functions of `solve`, and return a step of arbitrary values.

        It must be called within `asker.engines.cpu.background_compile.precompiling`.
        """
        if not isinstance(self.finish, ConjugateGradients):
            self.finish.precompile()
        derivatives = linear()
        elimination = self.eliminate(derivatives, model, 1.0)
        assert elimination is not None
        if self.structure.n_kept:
            self.reduced.assemble(derivatives, model, elimination)
        return self._substituted(elimination, np.zeros(self.structure.n_kept))

    def release(self) -> None:
        """Free most of the memory until the next solve."""
        if self.solver != "reference":
            self.eliminate.release()

    def _substituted(self, elimination: Elimination, x: np.ndarray) -> Delta:
        """Return δ of all free variables from that of the kept ones."""
        delta = self.structure.parts(x)
        if self.structure.eliminated is not None:
            delta[self.structure.eliminated] = elimination.substitute(x)
        return delta


# Measured by benchmarks/scaling.py.
MIN_SINGLE_VECTOR_UNKNOWNS = 12  # unknowns of a single variable from which plain matrix products are faster
MAX_SMALL_UNKNOWNS = 1500  # unknowns up to which the matrix is always dense
MAX_DENSE_UNKNOWNS = 20_000  # unknowns of the largest dense matrix: 3 GB
MIN_DENSE_FILL = 0.5  # fraction of nonzeros from which a dense matrix is faster
MAX_SPARSE_ENTRIES = 2e9  # nonzeros of the largest sparse matrix, before the fill-in of its factorisation


def choose_solver(structure: Structure) -> str:
    """Return the solver: dense if the reduced matrix is small or nearly full, else sparse, or "cg" if it is too large.

    A single variable with many components is solved by "reference".
    """
    n = structure.n_kept
    kept = structure.kept
    if len(structure.problem.variables) == len(kept) == 1 == len(kept[0]) and n > MIN_SINGLE_VECTOR_UNKNOWNS:
        return "reference"
    if n <= MAX_SMALL_UNKNOWNS:
        return "dense-cholesky"
    ptr, columns = structure.pattern(after_elimination=True)
    _, dims = structure.kept_variables
    filled = 2 * float(np.sum(np.repeat(dims, np.diff(ptr)) * dims[columns]))
    if n <= MAX_DENSE_UNKNOWNS and filled > MIN_DENSE_FILL * n**2:
        return "dense-cholesky"
    return "cg" if filled > MAX_SPARSE_ENTRIES else "sparse-cholesky"
