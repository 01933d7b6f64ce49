"""A problem on the devices: the linear solver, the arrays, and the programs that use them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from asker.engines.interface import Point
from asker.engines.solvers import LinearSolver
from asker.engines.sparsity import Structure
from asker.engines.xla import devices, distributed
from asker.engines.xla.blocks import AXIS
from asker.engines.xla.device_program import (
    DeviceVerbs,
    ProgramInputs,
    device_functions,
)
from asker.engines.xla.formulas import of_unit_width
from asker.engines.xla.layout import Layout
from asker.engines.xla.pair_sums_pallas import is_supported
from asker.engines.xla.placement import REPLICATED, SHARDED, Placement
from asker.engines.xla.programs import Precompilation, Programs
from asker.engines.xla.solver_selection import SolverChoice, select_solver
from asker.io.log import devices as devices_log
from asker.kernels.kernel import Kernel
from asker.problem.problem import Problem
from asker.problem.reductions import ALONE, Sums
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import float64
from asker.tracing.jax_compat import check_xla


class DeviceProblem:
    """A problem on devices, and the programs that work on it."""

    def __init__(
        self,
        problem: Problem,
        linear_solver: LinearSolver = "auto",
        eliminate: Variables | bool = True,
        relative_damping: bool = False,
        n_devices: int | None = None,
        alone: bool = False,
    ):
        """
        Parameters
        ----------
        n_devices
            Number of JAX devices to use; all of them by default.
        alone
            Use only the devices of this process.
        """
        check_xla()
        _check_traceable(problem)
        self.problem, self.relative_damping = problem, relative_damping
        used = devices.available(n_devices, alone)
        self.mesh = Mesh(np.array(used), (AXIS,))
        self.portion, self.is_alone = problem.portion, alone
        self.returns_portion = False
        """True if results are those of the portion of this process instead of the whole problem."""
        self.sums = Sums(self.portion.variables, distributed.all_sum) if self.portion else ALONE
        self.structure = Structure(problem, self._eliminated(eliminate))
        sizes: Any = (len(self.mesh.local_devices), distributed.all_max) if self.portion else (self.mesh.size,)
        self.layout = Layout(self.structure, *sizes)
        choice = select_solver(linear_solver, self.layout, distributed.all_union if self.portion else np.unique)
        self.linear_solver = choice.name
        self.plan = self._checked_plan(used, choice)
        """Devices, solver and memory, as text for the user."""
        self.free = tuple(v for v in problem.variables if v.is_free)
        self.functions = device_functions(
            self.structure, choice, self.layout.n_local, relative_damping, is_supported(used[0])
        )
        self.placement = Placement(problem, self.layout, self.mesh)
        self._put_arrays(choice)
        self.layout.release()
        self._set_kernels([f.kernel for f in problem.factors])
        self._row_specs, self._step_specs = self.placement.specs(problem.variables), self.placement.specs(self.free)
        self._moved_specs = self._step_specs, SHARDED, REPLICATED
        self._programs = Programs(self.mesh, devices.compiler_options(used[0]))
        self._total_structures: dict[Any, list[Any]] = {}
        """The tree structure of the totals of each trial function."""
        self._precompiled: set[Any] = set()
        """Trial functions, with kernels, whose programs are compiled."""
        self._precompilation: Precompilation | None = None
        """If set, programs are compiled and not run."""
        self._pending_records: list[jax.Array] | None = None
        """Records of solves that the host has not read yet; None if each is read at once."""
        self.last_gradient: Any = np.inf
        self.cg_steps = 0
        self.auxiliary_engines: dict[str, Any] = {}
        self.seconds = {"evaluate": 0.0, "solve": 0.0, "together": 0.0}

    def _eliminated(self, eliminate: Variables | bool) -> Variables | bool:
        """Return the variables to eliminate: the partitioned ones, if each process has a portion."""
        if not self.portion:
            return eliminate
        variables = self.portion.variables
        if isinstance(eliminate, Variables) and eliminate is not variables:
            raise ProblemError(
                f"eliminate must be {variables.name}, which are partitioned among the processes, not {eliminate.name}"
            )
        distributed.check_portions(self.portion)
        return variables

    def _checked_plan(self, used: list[Any], choice: SolverChoice) -> str:
        """Return the plan as text; raise an error if memory is too small or the processes have different data."""
        need = devices.estimate(self.layout, choice.name, choice.fronts)
        plan = devices.plan(need, choice.name, used)
        devices.check_memory(need, used)
        if not self.is_alone:
            devices_log.info(plan)
            if jax.process_count() > 1:
                distributed.check_same(self.fingerprint(), "were given different data")
        return plan

    def fingerprint(self) -> bytes:
        """Return the fingerprint of the whole problem."""
        return self.problem.fingerprint(distributed.all_sum)

    def _put_arrays(self, choice: SolverChoice) -> None:
        """Put the arrays that do not depend on a point or a kernel on the devices."""
        put, layout = self.placement.put, self.layout
        pattern, fronts = choice.pattern, choice.fronts
        with float64():
            n_used = np.bincount(layout.device, minlength=layout.n_devices).astype(np.int32)
            arrays = (layout.observations, () if pattern is None else pattern.arrays, n_used)
            self._arrays = jax.tree.map(put, arrays)
            self._fronts = jax.tree.map(lambda x: put(x, REPLICATED), () if fronts is None else fronts.arrays)
            self._fixed = self.placement.put_rows([v.fixed for v in self.problem.variables])

    def _set_kernels(self, kernels: Sequence[Kernel]) -> None:
        """Set the kernels, whose widths are arguments of the programs."""
        self._kernels = of_unit_width(kernels)
        self._taus = self.placement.put_widths(self.problem.factors)

    # ------------------------------------------------------------ programs

    def _program(
        self,
        key: Any,
        function: Callable[..., Any],
        in_specs: tuple[Any, ...],
        out_specs: Any,
        names: tuple[str, ...] | None = None,
        with_system: bool = False,
    ) -> Callable[..., Any]:
        """Return the program `function(verbs, point, ...)`; its arguments are the parts of a point and those after it.

        Parameters
        ----------
        names
            Names of numbers, which are passed as one array after all other arguments.
        with_system
            Whether the program may solve; otherwise the arrays of the linear system are not passed to it.
        """
        key = key, names, self._kernels
        functions, problem, kernels = self.functions, self.problem, self._kernels

        def run(inputs: Any, point: Any, *rest: Any) -> Any:
            verbs = DeviceVerbs(functions, problem, kernels, ProgramInputs(*inputs[0], *inputs[1:]))
            if names is None:
                return function(verbs, Point(*point), *rest)
            return function(verbs, Point(*point), *rest[:-1], dict(zip(names, rest[-1], strict=True)))

        input_specs = SHARDED, self._row_specs, REPLICATED, REPLICATED, REPLICATED
        point_specs = self._row_specs, SHARDED, REPLICATED
        number_specs = () if names is None else (REPLICATED,)
        specs = input_specs, point_specs, *in_specs, *number_specs
        jitted = self._programs.jitted(key, run, specs, out_specs)
        arrays = self._arrays if with_system else (self._arrays[0], (), self._arrays[2])
        fronts = self._fronts if with_system else ()
        last = np.float64(self.last_gradient) if self.linear_solver == "cg" else None
        inputs = arrays, self._fixed, fronts, self._taus, last
        if self._precompilation is None:
            return lambda *arguments: self._programs.run(key, (inputs, *arguments))
        compilation = self._precompilation
        return lambda *arguments: compilation.compile(jitted, (inputs, *arguments), out_specs)

    @contextmanager
    def _clock(self, activity: str) -> Iterator[None]:
        """Add the time of the block to `seconds`."""
        begin = time.perf_counter()
        with float64(), devices.errors_explained():
            yield
        self.seconds[activity] += time.perf_counter() - begin

    def _read(self, values: Any) -> Any:
        """Return results of a program as numbers on the host."""
        return values if self._precompilation else jax.tree.map(float, jax.device_get(values))

    def _read_record(self, record: jax.Array) -> tuple[bool, list[float]]:
        """Return whether the linear systems of a program had solutions, and the totals that it computed."""
        record.copy_to_host_async()
        ok, size, steps, *totals = np.asarray(record).tolist()
        if self.linear_solver == "cg":
            self.last_gradient, self.cg_steps = size, self.cg_steps + int(steps)
        return bool(ok), totals


def _check_traceable(problem: Problem) -> None:
    """Raise an error if JAX cannot trace a residual function."""
    for f in problem.factors:
        if f.jacobian is not None:
            raise ProblemError(
                f"{f.name}: a residual with `jacobian=` is a NumPy function, which only engine='cpu' runs"
            )
