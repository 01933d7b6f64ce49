"""Random optimisation problems: a seed determines the structure and the numbers of a problem.

The compiled code depends on the *structure*: the residual functions, dimensions and manifolds, the kernels, the
strategy, and the presence of weights, bounds and constant variables.  Each block of SEEDS_PER_BLOCK consecutive seeds
has STRUCTURES_PER_BLOCK structures, shared by neighbouring seeds, which differ in observations, indices, noise,
outliers and kernel widths.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import asker
from asker.kernels.kernels import Mixture
from asker.problem.bounds import Bounded
from residual_pool import KINDS, SPECIES, Kind

SEEDS_PER_BLOCK, STRUCTURES_PER_BLOCK = 200, 50
MAX_UNKNOWNS = 120
"""Largest number of unknowns in one group of variables: the laws compute dense Jacobians."""
Kernel = Callable[[float], Any]

KERNELS: tuple[Kernel, ...] = (
    asker.Quadratic, asker.Huber, asker.PseudoHuber, asker.Cauchy, asker.GemanMcClure, asker.Welsch, asker.Tukey,
    asker.TruncatedQuadratic, asker.SmoothTruncated, Mixture,
    *(lambda tau, a=a: asker.Barron(tau, alpha=a) for a in (2.0, 1.0, 0.5, 0.0, -2.0, -np.inf)),
    lambda tau: asker.Scaled(asker.Tukey(tau / 4), 4.0),
)  # fmt: skip
STRATEGIES = (*asker.METHODS, "exchanges")
NEED_PENALTY = ("mhq", "regemm")


def strategy_named(name: str) -> Any:
    """Return a strategy of `asker.METHODS` or `exchanges`."""
    return asker.Exchanges() if name == "exchanges" else asker.METHODS[name]()


def suits(name: str, kernel: Kernel | None) -> bool:
    """Return whether a strategy supports a kernel: two of them need a lifted penalty."""
    k = asker.SmoothTruncated() if kernel is None else kernel(1.0)
    k = k.kernel if isinstance(k, asker.Scaled) else k
    is_smooth = name == "regemm" or k.domega(0.0) < 0
    return name not in NEED_PENALTY or k.quadratic or bool(k.has_penalty and is_smooth)


# ------------------------------------------------------------------ structure


@dataclass(frozen=True)
class BlockStructure:
    """Structure of a group of variables, without its numbers."""

    species: str
    is_bounded: bool
    has_constants: bool


@dataclass(frozen=True)
class GroupStructure:
    """Structure of a factor group, without its numbers."""

    kind: str
    blocks: tuple[int, ...]
    """Index of the group of variables of each slot."""
    kernel: Kernel | None
    is_weighted: bool
    has_widths: bool


@dataclass(frozen=True)
class Structure:
    """Structure of a problem, without its numbers."""

    blocks: tuple[BlockStructure, ...]
    groups: tuple[GroupStructure, ...]
    strategy: str | None
    options: dict[str, Any]


def structure(rng: np.random.Generator) -> Structure:
    """Return a random structure with one to three factor groups, which may share groups of variables."""
    blocks: list[BlockStructure] = []
    groups = []
    strategy = None if rng.random() < 0.5 else str(rng.choice(STRATEGIES))
    estimates_noise = rng.random() < 0.35
    for _ in range(rng.choice([1, 2, 3], p=[0.5, 0.35, 0.15])):
        fitting = [
            name
            for name, kind in KINDS.items()
            if not blocks or any(b.species in kind.species for b in blocks) or rng.random() < 0.1
        ]
        name = str(rng.choice(fitting))
        of = tuple(_block(rng, blocks, species) for species in KINDS[name].species)
        known = [k for k in KERNELS if strategy is None or suits(strategy, k)]
        kernel = None if estimates_noise and rng.random() < 0.7 else known[rng.integers(len(known))]
        groups.append(GroupStructure(name, of, kernel, rng.random() < 0.4, kernel is not None and rng.random() < 0.2))
    if all(b.has_constants for b in blocks):
        blocks[0] = replace(blocks[0], has_constants=False)
    options = {
        "eliminate": bool(rng.random() < 0.8),
        "linear_solver": str(rng.choice(["auto", "auto", "dense-cholesky", "sparse-cholesky"])),
        "relative_damping": [None, None, True][rng.integers(3)],
    }
    return Structure(tuple(blocks), tuple(groups), strategy, options)


def _block(rng: np.random.Generator, blocks: list[BlockStructure], species: str) -> int:
    """Return the index of an existing or a new group of variables."""
    same = [k for k, b in enumerate(blocks) if b.species == species]
    if same and rng.random() < 0.8:
        return int(rng.choice(same))
    can_be_bounded = SPECIES[species].is_euclidean
    blocks.append(BlockStructure(species, can_be_bounded and rng.random() < 0.25, rng.random() < 0.25))
    return len(blocks) - 1


# ------------------------------------------------------------------ problems


@dataclass(frozen=True, eq=False)
class Block:
    """Group of variables with its numbers."""

    values: Any
    """Initial guess."""
    manifold: Any
    fixed: np.ndarray
    bounds: dict[str, Any]

    def __len__(self) -> int:
        return len(self.fixed)


@dataclass(frozen=True, eq=False)
class Group:
    """Factor group with its numbers."""

    kind: Kind
    name: str
    slots: tuple[tuple[int, np.ndarray], ...]
    """Index of the group of variables of each slot, and the index of the variable of each observation."""
    data: tuple[np.ndarray, ...]
    kernel: Any
    weight: np.ndarray | None
    tau: np.ndarray | None

    @property
    def n(self) -> int:
        return len(self.slots[0][1])

    @property
    def y(self) -> np.ndarray:
        return self.data[-2]

    def taken(self, chosen: Any) -> "Group":
        """Return the group with the chosen observations, in the given order."""

        def some(x: np.ndarray | None) -> np.ndarray | None:
            return None if x is None else x[chosen]

        slots = tuple((k, index[chosen]) for k, index in self.slots)
        data = tuple(d[chosen] for d in self.data)
        return replace(self, slots=slots, data=data, weight=some(self.weight), tau=some(self.tau))

    def reference(self, values: Sequence[Any]) -> np.ndarray:
        """Return the residuals (n, p) computed by NumPy, at values of all groups of variables."""
        return self.kind.reference(*(gathered(values[k], index) for k, index in self.slots), *self.data)

    def is_possible(self, values: Sequence[Any]) -> np.ndarray:
        """Return the mask of the observations that satisfy the validity condition."""
        if self.kind.reference_of_valid is None:
            return np.ones(self.n, dtype=bool)
        return self.kind.reference_of_valid(*(gathered(values[k], index) for k, index in self.slots), *self.data)


def gathered(values: Any, index: np.ndarray) -> Any:
    """Return the value of the variable of each observation."""
    return tuple(part[index] for part in values) if isinstance(values, tuple) else values[index]


@dataclass(frozen=True, eq=False)
class RandomProblem:
    """Problem as arrays, from which `build` constructs an `asker.Problem`."""

    seed: int
    blocks: tuple[Block, ...]
    groups: tuple[Group, ...]
    strategy: str | None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def estimates_noise(self) -> bool:
        """Return whether the noise of a group is estimated."""
        return self.strategy is None and any(g.kernel is None and g.tau is None for g in self.groups if g.n)

    def build(self) -> asker.Problem:
        """Return the `asker.Problem`."""
        variables = [
            asker.Variables(b.values, None if b.bounds else b.manifold, b.fixed, name=f"block {k}", **b.bounds)
            for k, b in enumerate(self.blocks)
        ]
        return asker.Problem(
            *(
                asker.Factors(
                    g.kind.residual,
                    *(variables[k][index] for k, index in g.slots),
                    data=g.data,
                    kernel=g.kernel,
                    weight=g.weight,
                    tau=g.tau,
                    jacobian=g.kind.jacobian,
                    linear=g.kind.jacobian is not None,
                    valid=g.kind.valid,
                    name=g.name,
                )
                for g in self.groups
            )
        )

    def with_groups(self, groups: Sequence[Group]) -> "RandomProblem":
        """Return the problem with the same variables and other observations."""
        return replace(self, groups=tuple(groups))

    def __repr__(self) -> str:
        groups = ", ".join(f"{g.name} (n={g.n}, {g.kernel})" for g in self.groups)
        return f"seed {self.seed}: {groups}; {self.strategy}, {self.options}"


def random_problem(seed: int) -> RandomProblem:
    """Return the problem of a seed."""
    seed_block, number = divmod(seed, SEEDS_PER_BLOCK)
    of = structure(np.random.default_rng([1, seed_block, number * STRUCTURES_PER_BLOCK // SEEDS_PER_BLOCK]))
    rng = np.random.default_rng([2, seed])
    sizes = [_n_variables(rng, b) for b in of.blocks]
    truth = [SPECIES[b.species].draw(rng, n) for b, n in zip(of.blocks, sizes, strict=True)]
    groups = [_group(rng, g, k, truth, sizes) for k, g in enumerate(of.groups)]
    if all(g.weight is not None and not g.weight.any() for g in groups):
        groups[0] = replace(groups[0], weight=np.ones(groups[0].n))  # otherwise no observation would count
    far = float(rng.choice([0.0, 0.01, 0.3, 1.0]))
    in_own_unit = [any(KINDS[g.kind].jacobian and k in g.blocks for g in of.groups) for k in range(len(of.blocks))]
    blocks = [_initialised(rng, *each, far) for each in zip(of.blocks, truth, sizes, in_own_unit, strict=True)]
    if all(b.fixed.all() for b in blocks):
        blocks[0] = replace(blocks[0], fixed=np.zeros(len(blocks[0]), dtype=bool))
    return RandomProblem(seed, tuple(blocks), tuple(groups), of.strategy, of.options)


def _n_variables(rng: np.random.Generator, b: BlockStructure) -> int:
    n = int(rng.choice([1, 2, 5, 12, 30], p=[0.35, 0.15, 0.2, 0.2, 0.1]))
    return max(min(n, MAX_UNKNOWNS // SPECIES[b.species].manifold.tangent), 1)


def _group(rng: np.random.Generator, g: GroupStructure, number: int, truth: list[Any], sizes: list[int]) -> Group:
    kind = KINDS[g.kind]
    n = int(rng.choice([1, 4, 12, 40, 120], p=[0.05, 0.1, 0.2, 0.4, 0.25]))
    slots = tuple((k, rng.integers(0, sizes[k], n)) for k in g.blocks)
    regressors = [rng.normal(size=(n, d)) for d in kind.regressors]
    nothing = np.zeros(n) if kind.scalar else np.zeros((n, kind.size_of_y))
    exact = kind.reference(*(gathered(truth[k], i) for k, i in slots), *regressors, nothing, np.ones(n))
    sigma = float(rng.choice([0.0, 1e-3, 0.05], p=[0.1, 0.3, 0.6]))
    y = exact[:, : kind.size_of_y] + sigma * rng.normal(size=(n, kind.size_of_y))
    bad = rng.random(n) < rng.choice([0.0, 0.15, 0.4])
    y[bad] += 3 * rng.normal(size=(int(bad.sum()), kind.size_of_y))
    kind_of_data = rng.choice(["as it is", "rounded", "repeated", "constant"], p=[0.85, 0.05, 0.05, 0.05])
    if kind_of_data == "rounded":
        y = np.round(y, 1)
    if kind_of_data == "repeated":
        y[: n // 3] = y[-1]
    if kind_of_data == "constant":
        y[:] = 0.5
    y = y[:, 0] if kind.scalar else y
    scale = float(rng.choice([1.0, 1.0, 20.0]))
    width = float(scale * max(sigma, 1e-3) * np.sqrt(exact.shape[1]) * rng.choice([0.1, 3.0, 3.0, 3.0, 100.0]))
    weight = rng.uniform(0.25, 4.0, n) if g.is_weighted else None
    if weight is not None and g.kernel is not None and rng.random() < 0.5:
        weight[rng.random(n) < 0.2] = 0.0
    tau = width * rng.uniform(0.5, 2.0, n) if g.has_widths else None
    kernel = None if g.kernel is None else g.kernel(width)
    return Group(
        kind, f"{g.kind} {number}", slots, (*regressors, y, np.full(n, scale)), kernel, weight, tau
    )  # fmt: skip


def _initialised(
    rng: np.random.Generator, b: BlockStructure, truth: Any, n: int, in_own_unit: bool, far: float
) -> Block:
    """Return a group of variables at a distance `far` from the truth; with `in_own_unit` the bounds have unit 1."""
    manifold = SPECIES[b.species].manifold
    rows = manifold.pack(truth)
    start = manifold.unpack(np.array([manifold.retract(x, far * rng.normal(size=manifold.tangent)) for x in rows]))
    fixed = rng.random(n) < 0.3 if b.has_constants else np.zeros(n, dtype=bool)
    if b.has_constants and n > 1:
        fixed[0] = True
    bounds = {}
    if b.is_bounded:
        shape = (n, *manifold.shape)
        low, high = start - rng.uniform(0, 1, shape), start + rng.uniform(0, 1, shape)
        low[rng.random(shape) < 0.3], high[rng.random(shape) < 0.3] = -np.inf, np.inf
        bounds = {"lower": low, "upper": high, "unit": 1.0 if in_own_unit else float(rng.choice([1.0, 0.01, 10.0]))}
        manifold = Bounded(manifold.shape)
    return Block(start, manifold, fixed, bounds)
