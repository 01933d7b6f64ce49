"""The compiler: it turns a JAX function of one item into a machine-code loop over all items.

    trace       JAX traces the function of one item to a jaxpr                                       loops.py
    scalarise   the jaxpr is unrolled to scalar operations                                           jaxprs.py
                rules for arithmetic, sums and products                                    arithmetic_rules.py
                rules for data movement, indexing and sorting                                movement_rules.py
                rules for factorisations of small matrices                                   linear_algebra.py
    simplify    common subexpressions, constant folding, removal of dead code                       scalars.py
    print       straight-line Python code inside one loop                                             loops.py
    compile     the Python subset is translated to LLVM IR                              llvm.py, statements.py
                expressions                                                                     expressions.py
                loops over items in SIMD lanes                                                    vectorize.py
                the IR is compiled to machine code, which is cached on disk                             jit.py
                callable functions, with one specialisation per kind of arguments                   compile.py
                functions written in the Python subset                                     python_functions.py

A function that uses a primitive without a rule, or needs too many statements, is run by XLA in batches instead.
`primitives()` lists the supported primitives, and the reason for each unsupported one (supported_primitives.py,
`asker.tracing.unsupported_primitives`).  The xla engine uses the scalar program without printing it.

Other packages import from this module, not from its submodules.  The compiler depends on arrays, versions of JAX, the
cache folder and threads, but not on residuals, problems or strategies.
"""

from asker.engines.cpu.compiler.arithmetic_rules import ReadsOutside, UnsupportedPrimitive
from asker.engines.cpu.compiler.compile import Printed, compile_source
from asker.engines.cpu.compiler.jaxprs import scalarise
from asker.engines.cpu.compiler.loops import Argument, BatchedLoop, Loop, make_loop
from asker.engines.cpu.compiler.python_functions import compiled
from asker.engines.cpu.compiler.scalars import Name, NotCompiled, Program
from asker.engines.cpu.compiler.supported_primitives import Primitives, primitives

__all__ = [
    "Argument",
    "BatchedLoop",
    "Loop",
    "Name",
    "NotCompiled",
    "Primitives",
    "Printed",
    "Program",
    "ReadsOutside",
    "UnsupportedPrimitive",
    "compile_source",
    "compiled",
    "make_loop",
    "primitives",
    "scalarise",
]
