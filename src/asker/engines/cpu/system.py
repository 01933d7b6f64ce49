"""The one linear system,

    (Σ Jᵢᵀ (aᵢ I + bᵢ rᵢ rᵢᵀ) Jᵢ + λI) δ = −Σ cᵢ Jᵢᵀ rᵢ,

solved by eliminating one group of variables (see structure.py) and factorising, or iterating on, what is left.
`reference` writes the same system as one dense matrix; every other way is tested against it.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from asker.engines.cpu import blocks
from asker.engines.cpu.factorise import DenseCholesky, SparseCholesky, Symmetric, conjugate_gradients
from asker.engines.cpu.reduced import ReducedMatrix
from asker.engines.cpu.threads import even_bounds, run_loop, run_tasks
from asker.engines.solvers import CG, SMALLEST_DIAGONAL, SOLVERS, LinearSolver
from asker.engines.structure import EliminatedSlot, FactorLayout, Structure
from asker.problem import Variables

Delta = dict[Variables, np.ndarray]
LARGEST_SUMS = 1 << 26  # bytes


class Linearization(NamedTuple):
    """One factor group at a point: residuals and derivatives, observation by observation."""

    r: np.ndarray  # (n, p)
    J: np.ndarray  # (n, p·D)


class Weights(NamedTuple):
    """One factor group's part of a model: a, b, c per residual; `radial` says whether b is there."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    radial: bool


class System:
    """Analysed once for a problem's structure; then `solve` for any point, weights and damping."""

    def __init__(
        self,
        structure: Structure,
        solver: LinearSolver | CG = "auto",
        relative_damping: bool = False,
    ):
        """`relative_damping`: λ diag(H) in place of λI, for variables whose numbers have different units."""
        self.cg = solver if isinstance(solver, CG) else CG()
        solver = "cg" if isinstance(solver, CG) else solver
        if solver not in SOLVERS:
            raise ValueError(f"linear_solver must be one of {', '.join(SOLVERS)}, or CG(...), not {solver!r}")
        self.structure = structure
        self.solver = choose_solver(structure) if solver == "auto" else solver
        self.relative = relative_damping
        self.last_gradient = np.inf
        self.seconds = {"assemble": 0.0, "factorise": 0.0}
        e = structure.eliminated
        self.d = 0 if e is None else e.manifold.tangent
        n = structure.n_eliminated
        self.L = np.empty((n, self.d * (self.d + 1) // 2))
        self.z = np.empty((n, self.d))
        self.Y = [
            blocks.spacious(f.n, f.kept_width * self.d) if f.eliminated is not None else np.empty((0, 0))
            for f in structure.layouts
        ]
        self._kept_indices = [[f.index_of(s) for s in f.kept] for f in structure.layouts]
        self._sums = [_sums(f) for f in structure.layouts]
        self.own: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in structure.layouts]
        """U and G of each kept slot, where the factor has an eliminated one: see `blocks.coupling`."""
        if self.solver in ("dense-cholesky", "sparse-cholesky"):
            dense = self.solver == "dense-cholesky"
            self.reduced = ReducedMatrix(structure, dense)
            self.factorise = DenseCholesky() if dense else SparseCholesky(self.reduced)
        elif self.solver == "cg":
            self.reduced = ReducedMatrix(structure, dense=False, eliminate=False)
            self.symmetric = Symmetric(structure.n_kept, *self.reduced.coordinates())

    def solve(self, linear: list[Linearization], model: list[Weights], damping: float) -> Delta | None:
        """The step δ, or None when no way of factorising worked."""
        if self.solver == "reference":
            return reference(self.structure, linear, model, damping, self.relative)
        begin = time.perf_counter()
        if not self._eliminate(linear, model, damping):
            return None
        if not self.structure.n_kept:
            return self._substitute(np.zeros(0))
        reduced = self.reduced
        reduced.assemble(linear, model, self)
        added = damping * _unit(reduced.diagonal, self.relative)
        assembled = time.perf_counter()
        self.seconds["assemble"] += assembled - begin
        x = self._iterate(added) if self.solver == "cg" else self.factorise(reduced, reduced.gradient, added)
        self.seconds["factorise"] += time.perf_counter() - assembled
        return None if x is None else self._substitute(x)

    def _eliminate(self, linear: list[Linearization], model: list[Weights], damping: float) -> bool:
        """V = LLᵀ, z = L⁻¹g and Y = WL⁻ᵀ of the eliminated variables; False if some V is not positive."""
        if self.structure.eliminated is None:
            return True
        self.L[...] = 0.0
        self.z[...] = 0.0
        variables = even_bounds(len(self.L), smallest=1024)
        sharing = [(k, f, f.eliminated) for k, f in enumerate(self.structure.layouts) if f.eliminated is not None]
        for k, f, e in sharing:
            kernel = blocks.eliminated_blocks(f.p, f.width, e.offset, e.dim, model[k].radial)
            run_loop(kernel, variables, e.ptr, linear[k].J, linear[k].r, *model[k][:3], self.L, self.z)
        failed = np.zeros(1, dtype=bool)
        run_loop(blocks.factor_blocks(self.d, self.relative), variables, damping, self.L, self.z, failed)
        if failed[0]:
            return False
        for k, f, e in sharing:
            if f.kept:
                self._couple(k, f, e, linear[k], model[k])
        return True

    def _couple(self, k: int, f: FactorLayout, e: EliminatedSlot, lin: Linearization, abc: Weights) -> None:
        """Y, and the own blocks of the kept variables, summed in one place per task."""
        kernel = blocks.coupling(f.p, f.width, tuple((s.offset, s.dim) for s in f.kept), e.offset, e.dim, abc.radial)
        for sums in self._sums[k]:
            sums[...] = 0.0
        variables = self._kept_indices[k]
        triples = list(zip(variables, self._sums[k][::2], self._sums[k][1::2], strict=True))
        bounds = np.linspace(0, f.n, len(self._sums[k][0]) + 1).astype(np.uint64)

        def task(t: int) -> None:
            own = [x for v, U, G in triples for x in (v, U[t], G[t])]
            kernel(bounds[t], bounds[t + 1], e.index, lin.J, lin.r, *abc[:3], self.L, self.Y[k], *own)

        run_tasks(task, len(bounds) - 1)
        totals = [sums.sum(axis=0) for sums in self._sums[k]]
        self.own[k] = list(zip(totals[::2], totals[1::2], strict=True))

    def _couple_back(self, x: np.ndarray, t: np.ndarray) -> None:
        """t += Yᵀx."""
        for k, f in enumerate(self.structure.layouts):
            if f.eliminated is not None and f.kept:
                kernel = blocks.couple_back(self.d, tuple((s.offset_in_Y, s.dim) for s in f.kept))
                columns = [s.columns for s in f.kept]
                run_loop(kernel, even_bounds(len(t), smallest=1024), f.eliminated.ptr, *columns, self.Y[k], x, t)

    def _substitute(self, x: np.ndarray) -> Delta:
        delta = self.structure.parts(x)
        if self.structure.eliminated is not None:
            t = self.z.copy()
            self._couple_back(x, t)
            kernel = blocks.solve_transposed(self.d)
            run_loop(kernel, even_bounds(len(t), smallest=1024), self.L, t, out := np.empty_like(t))
            delta[self.structure.eliminated] = out
        return delta

    def _iterate(self, damping: np.ndarray) -> np.ndarray | None:
        """Conjugate gradients on S = H_KK − YYᵀ without forming it; preconditioned by its diagonal blocks."""
        H = self.symmetric(self.reduced.values, damping)
        slots = [
            (f, f.eliminated, self.Y[k], s)
            for k, f in enumerate(self.structure.layouts)
            if f.eliminated is not None
            for s in f.kept
        ]
        g = self.reduced.gradient
        t = np.empty_like(self.z)

        def subtract_coupled(y: np.ndarray, t: np.ndarray) -> None:
            for f, e, Y, s in slots:
                kernel = blocks.couple_forward(self.d, s.offset_in_Y, s.dim, f.kept_width)
                bounds = even_bounds(s.n_variables, smallest=8)
                run_loop(kernel, bounds, s.rows_ptr, s.rows, e.index, Y, t, s.first, y)

        def product(x: np.ndarray) -> np.ndarray:
            y = H @ x
            if slots:
                t[...] = 0.0
                self._couple_back(x, t)
                subtract_coupled(y, t)
            return y

        if not (np.isfinite(H.data).all() and np.isfinite(g).all()):
            return None
        inverse = self._inverse_diagonal_blocks(H, slots)

        def divide(r: np.ndarray) -> np.ndarray:
            parts = self.structure.parts(r)
            return np.concatenate([np.einsum("nij,nj->ni", inverse[v], parts[v]).ravel() for v in parts])

        def precondition(r: np.ndarray) -> np.ndarray:
            z = divide(r)
            for _ in range(self.cg.order):  # Σ (B⁻¹(B − S))ⁱ B⁻¹ r
                z += divide(r - product(z))
            return z

        size = float(np.linalg.norm(g))
        tol = self.cg.forcing(size / self.last_gradient)
        self.last_gradient = size
        return conjugate_gradients(product, precondition, -g, tol, self.cg.max_iterations)

    def _inverse_diagonal_blocks(self, H: Any, slots: list) -> Delta:
        inverse = {}
        for v, first in self.structure.first.items():
            d, n = v.manifold.tangent, len(v)
            at = first + np.arange(n * d).reshape(n, d)
            B = np.asarray(H[np.repeat(at, d, axis=1).ravel(), np.tile(at, (1, d)).ravel()]).reshape(n, d, d).copy()
            whole = B.copy()
            for f, _, Y, s in slots if self.cg.order == 0 else []:  # a power series needs the blocks of H_KK
                if s.first == first:
                    kernel = blocks.schur_diagonal(self.d, s.offset_in_Y, s.dim, f.kept_width)
                    run_loop(kernel, even_bounds(n, smallest=8), s.rows_ptr, s.rows, Y, B)
            bad = ~_positive(B)
            B[bad] = whole[bad]
            bad[bad] = ~_positive(whole[bad])
            B[bad] = np.eye(d)
            inverse[v] = np.linalg.inv(B)
        return inverse


def _positive(B: np.ndarray) -> np.ndarray:
    """Which of the symmetric blocks (n, d, d) are safely positive definite."""
    smallest = np.linalg.eigvalsh(B)[:, 0]
    return smallest > 1e-12 * np.abs(B).max(axis=(1, 2))


def _sums(f: FactorLayout) -> list[np.ndarray]:
    """U and G of each kept slot, one copy per task; few tasks where the copies would be large."""
    if f.eliminated is None:
        return []
    bytes_each = sum(8 * s.n_variables * s.dim * (blocks.lanes(s.dim) + 1) for s in f.kept)
    n_tasks = int(np.clip(LARGEST_SUMS // max(bytes_each, 1), 1, min(64, max(1, f.n // 2048))))
    shapes = [shape for s in f.kept for shape in ((s.n_variables, s.dim, blocks.lanes(s.dim)), (s.n_variables, s.dim))]
    return [np.empty((n_tasks, *shape)) for shape in shapes]


# Measured by benchmarks/growth.py.
ONE_LONG_VECTOR = 12  # unknowns from which plain matrix products beat printed blocks
SMALL = 1500  # unknowns up to which the dense matrix costs next to nothing
LARGEST_DENSE = 20_000  # unknowns: 3 GB
NEARLY_FULL = 0.5  # share of the matrix from which the dense one is faster
LARGEST_SPARSE = 2e9  # filled places, before the fill-in of the factorisation


def choose_solver(structure: Structure) -> LinearSolver:
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


def _unit(diagonal: np.ndarray, relative: bool) -> np.ndarray:
    """What λ is multiplied with."""
    return np.maximum(diagonal, SMALLEST_DIAGONAL) if relative else np.ones_like(diagonal)


def reference(
    structure: Structure,
    linear: list[Linearization],
    model: list[Weights],
    damping: float,
    relative: bool = False,
) -> Delta | None:
    """One dense matrix over all free variables: the oracle of the other solvers, and the door for small problems."""
    free = [v for v in structure.problem.variables if v.is_free]
    sizes = [len(v) * v.manifold.tangent for v in free]
    first = dict(zip(free, np.cumsum([0, *sizes])[:-1].tolist(), strict=True))
    n = sum(sizes)
    H, g = np.zeros((n, n)), np.zeros(n)
    for f, lin, abc in zip(structure.layouts, linear, model, strict=True):
        if not f.free:
            continue
        J = lin.J.reshape(f.n, f.p, f.width)
        Jr = np.einsum("npd,np->nd", J, lin.r)
        slots = [f.factors.slots[k].variables for k in f.free]
        dims = [v.manifold.tangent for v in slots]
        if len(slots) == 1 and len(slots[0]) == 1:  # one variable: plain matrix products
            one = slice(first[slots[0]], first[slots[0]] + dims[0])
            flat = J.reshape(-1, f.width)
            H[one, one] += flat.T @ (np.repeat(abc.a, f.p)[:, None] * flat)
            if abc.radial:
                H[one, one] += Jr.T @ (abc.b[:, None] * Jr)
            g[one] += abc.c @ Jr
            continue
        blocks_ = np.einsum("n,npd,npe->nde", abc.a, J, J)
        if abc.radial:
            blocks_ += np.einsum("n,nd,ne->nde", abc.b, Jr, Jr)
        at = np.concatenate(
            [first[v] + f.indices[k][:, None] * d + np.arange(d) for v, k, d in zip(slots, f.free, dims, strict=True)],
            axis=1,
        )
        np.add.at(H, (at[:, :, None], at[:, None, :]), blocks_)
        np.add.at(g, at, abc.c[:, None] * Jr)
    H[np.diag_indices(n)] += damping * _unit(np.diagonal(H), relative)
    try:
        x = np.linalg.solve(H, -g)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(x).all():
        return None
    return {v: x[s : s + size].reshape(len(v), -1) for (v, s), size in zip(first.items(), sizes, strict=True)}
