"""The CPU engine.

    engine.py              the operations of `asker.engines.interface.Engine`
    linearized_problem.py  a problem linearised at a point: blocks of the inverse of H, for covariances
    factor_loops.py        residuals and Jacobians of one factor group, as compiled loops
    compiler/              compiles a JAX function of one observation into a machine-code loop over all observations
    system/                the linear system of a step: assembly, Schur complement, solvers
    sparse/                sparse Cholesky factorisation
    cholesky.py            tiled dense Cholesky factorisation
    background_compile.py  a thread that compiles while other code is traced
    code_cache.py          object code of LLVM: compilation, cache on disk, loading
    threads.py             thread teams and task scheduling
    array_pool.py          reuse of large arrays

Imports point one way: code_cache <- background_compile, threads; threads <- cholesky <- sparse <- system <-
factor_loops <- engine, linearized_problem; background_compile, threads <- compiler <- sparse, system, factor_loops.
"""
