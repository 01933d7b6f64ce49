"""The one linear system,

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ,

solved by eliminating one group of variables (elimination.py) and factorising, or iterating on, what is left.
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
    """Analysed once for a problem's structure; then `solve` for any point, weights and damping."""

    def __init__(
        self,
        structure: Structure,
        solver: LinearSolver = "auto",
        relative_damping: bool = False,
    ):
        """`relative_damping`: λ diag(H) in place of λI, for variables whose numbers have different units."""
        settings = solver if isinstance(solver, CG) else CG()
        solver = "cg" if isinstance(solver, CG) else solver
        if solver not in CPU_SOLVERS:
            raise ValueError(f"linear_solver must be one of {', '.join(CPU_SOLVERS)}, or CG(...), not {solver!r}")
        self.structure = structure
        self.solver = choose_solver(structure) if solver == "auto" else solver
        self.relative = relative_damping
        self.last_gradient = np.inf
        """‖g‖ of the last system that conjugate gradients solved."""
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
        """The step δ, or None when no way of factorising worked."""
        if self.solver == "reference":
            held = [lin for lin in linear if isinstance(lin, Linearization)]
            return reference(self.structure, held, model, damping, self.relative)
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

    def ask(self, linear: Callable[[], Sequence[Derivatives]], model: list[Weights]) -> Delta:
        """Ask for what `solve` will run, and give back a step as it comes (`asker.engines.cpu.background_compile`)."""
        if not isinstance(self.finish, ConjugateGradients):
            self.finish.ask()
        derivatives = linear()
        elimination = self.eliminate(derivatives, model, 1.0)
        assert elimination is not None
        if self.structure.n_kept:
            self.reduced.assemble(derivatives, model, elimination)
        return self._substituted(elimination, np.zeros(self.structure.n_kept))

    def release(self) -> None:
        """Give back most of the memory, until there is something to solve again."""
        if self.solver != "reference":
            self.eliminate.release()

    def _substituted(self, elimination: Elimination, x: np.ndarray) -> Delta:
        """δ of all free variables from that of the kept ones."""
        delta = self.structure.parts(x)
        if self.structure.eliminated is not None:
            delta[self.structure.eliminated] = elimination.substitute(x)
        return delta


# Measured by benchmarks/growth.py.
ONE_LONG_VECTOR = 12  # unknowns from which plain matrix products beat printed blocks
SMALL = 1500  # unknowns up to which the dense matrix costs next to nothing
LARGEST_DENSE = 20_000  # unknowns: 3 GB
NEARLY_FULL = 0.5  # share of the matrix from which the dense one is faster
LARGEST_SPARSE = 2e9  # filled places, before the fill-in of the factorisation


def choose_solver(structure: Structure) -> str:
    """Dense where the reduced matrix is small or nearly full, else sparse, else conjugate gradients."""
    n = structure.n_kept
    kept = structure.kept
    if len(structure.problem.variables) == len(kept) == 1 == len(kept[0]) and n > ONE_LONG_VECTOR:
        return "reference"
    if n <= SMALL:
        return "dense-cholesky"
    ptr, columns = structure.pattern(after_elimination=True)
    _, dims = structure.kept_variables
    filled = 2 * float(np.sum(np.repeat(dims, np.diff(ptr)) * dims[columns]))
    if n <= LARGEST_DENSE and filled > NEARLY_FULL * n**2:
        return "dense-cholesky"
    return "cg" if filled > LARGEST_SPARSE else "sparse-cholesky"
