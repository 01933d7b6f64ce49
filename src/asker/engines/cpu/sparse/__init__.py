"""The sparse Cholesky factorisation: A x = b for a large matrix with few numbers in each row.

    order       thin cuts take the graph of the matrix apart                                        dissection.py
                minimum degree orders what lies between them                                    minimum_degree.py
                both make one tree of fronts                                                  elimination_tree.py
    symbolic    where every number lies, in panels and on stacks; which subtrees are tasks            symbolic.py
    wide        larger fronts, for an engine that does many of them at once                              wide.py
    numeric     front by front: assemble, eliminate, leave the rest to the parent; substitute     multifrontal.py
    invert      those numbers of A⁻¹ that lie where the factor has some                       selected_inverse.py

The first two are done once for a pattern, the third for every matrix, the last where it is asked for.  Others import
from here alone.  The room knows dense Cholesky in tiles and threads, and no problem.
"""

from asker.engines.cpu.sparse.multifrontal import Multifrontal
from asker.engines.cpu.sparse.selected_inverse import selected_inverse, solve_again
from asker.engines.cpu.sparse.supernode_amalgamation import WideFronts, wide_fronts

__all__ = ["Multifrontal", "WideFronts", "selected_inverse", "solve_again", "wide_fronts"]
