"""The CPU engine.

    engine.py    the verbs of `asker.engines.interface.Engine`
    linear_model.py  a problem at a point: blocks of the inverse of H, for covariances
    factors.py   residuals and derivatives of one factor group, as compiled loops
    compiler/    from a JAX function of one observation to a loop in machine code
    system/      the one linear system, block by block
    sparse/      the sparse Cholesky factorisation that it may need
    cholesky.py  the dense one, in tiles
    machine_code.py  how LLVM makes it, what is kept of it, and who hears of compiling
    ahead.py     machine code that is made beside other work, before it is run
    threads.py   tasks for several threads
    pool.py      arrays that are used again

Imports point one way: machine_code <- ahead, threads; threads <- cholesky <- sparse <- system <- factors <- engine,
linear_model; ahead, threads <- compiler <- sparse, system, factors.
"""
