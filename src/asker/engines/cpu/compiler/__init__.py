"""The compiler: from a JAX function of one item to a loop over all items, in machine code.

    trace       JAX makes a jaxpr of the function, with arrays as they are for one item                  loops.py
    scalarise   the jaxpr is walked; its arrays become arrays of scalar values                          jaxprs.py
                one rule for each primitive: arithmetic, sums and products                               rules.py
                what moves values and computes nothing; indices; sorting                              movement.py
                factorisations of small matrices                                                linear_algebra.py
    simplify    statements are shared and folded; what nobody needs is not printed                     scalars.py
    print       straight-line code inside one loop                                                       loops.py
    compile     the text becomes LLVM's                                                                     llvm.py
                several items at once, one in each lane of a vector                                      lanes.py
                and that machine code, once per machine; it stays in the cache folder                   native.py
                what is called                                                                         compile.py
                Python functions, from their own text                                                functions.py

What has no rule, or becomes too many statements, is run by XLA instead, a batch at a time.  `primitives()` lists what
is known, and what is left out for which reason (known.py, `asker.tracing.unsupported_primitives`).  Engine xla takes
the scalar program as it is, and prints nothing.

Others import from here, and from no file inside.  The compiler knows arrays, versions of JAX, the cache folder and
threads; it does not know what a residual, a problem or a strategy is.
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
