"""Sparse Cholesky factorisation: A x = b for a large sparse positive definite matrix.

    ordering      nested dissection                                                        nested_dissection.py
                  minimum degree between the separators                                       minimum_degree.py
                  the elimination tree of fronts of both                                    elimination_tree.py
    symbolic      memory layout of panels and update stacks, parallel tasks                         symbolic.py
    amalgamation  larger supernodes, for an engine that processes many in parallel     supernode_amalgamation.py
    numeric       multifrontal factorisation and substitution                                   multifrontal.py
    inverse       the entries of A⁻¹ on the pattern of the factor                           selected_inverse.py

Ordering and symbolic factorisation are done once per pattern, the numeric factorisation once per matrix, the inverse on
request.  Other packages import from this module only.  The package depends on tiled dense Cholesky, the compiler and
threads, but not on problems.
"""

from asker.engines.cpu.sparse.multifrontal import Multifrontal
from asker.engines.cpu.sparse.selected_inverse import selected_inverse, solve_factorised
from asker.engines.cpu.sparse.supernode_amalgamation import WideFronts, wide_fronts

__all__ = ["Multifrontal", "WideFronts", "selected_inverse", "solve_factorised", "wide_fronts"]
