"""Primitives of JAX that the CPU engine does not compile, by reason, and the warning about them.

A function that uses one of them is run by XLA.  The compiled primitives are in the table `RULES` of the engine's
compiler; a test fails if JAX has a primitive that is in neither table.  The table is here because problems, which do
not depend on engines, need it for the warning.
"""

NOT_COMPILED_BY_REASON = {
    "loops of unknown length": [
        "while",
    ],
    "factorisations by iteration, or too long to unroll": [
        "cholesky_update", "eig", "eigh", "eigh_jacobi", "geqp3", "geqrf", "hessenberg", "householder_product",
        "ormqr", "qr", "schur", "svd", "symmetric_product", "symmetric_update", "tridiagonal", "tridiagonal_solve",
    ],
    "searches": [
        "approx_top_k", "argmax", "argmin", "top_k",
    ],
    "special functions that libm does not have": [
        "bessel_i0e", "bessel_i1e", "cumlogsumexp", "digamma", "erf_inv", "igamma", "igamma_grad_a", "igammac",
        "nextafter", "polygamma", "random_gamma_grad", "regularized_incomplete_beta", "zeta",
    ],
    "bits of integers": [
        "clz", "iota_2x32_shape", "mulhi", "population_count", "reduce_xor", "shift_left", "shift_right_arithmetic",
        "shift_right_logical",
    ],
    "complex numbers": [
        "complex", "conj", "fft", "imag", "real",
    ],
    "random numbers": [
        "philox2x32", "philox4x32", "random_bits", "random_clone", "random_fold_in", "random_gamma", "random_seed",
        "random_split", "random_unwrap", "random_wrap", "rng_bit_generator", "rng_uniform", "threefry2x32",
        "threefry4x32",
    ],
    "windows and convolutions": [
        "conv_general_dilated", "ragged_dot", "ragged_dot_general", "reduce", "reduce_window", "reduce_window_max",
        "reduce_window_min", "reduce_window_sum", "scaled_dot", "scaled_matmul", "scaled_matmul_wrapper",
        "select_and_gather_add", "select_and_scatter", "select_and_scatter_add",
    ],
    "scattering by other operations": [
        "scatter-max", "scatter-min", "scatter-mul", "scatter-sub",
    ],
    "comparisons for sorting": [
        "eq_to", "le_to", "lt_to",
    ],
    "several devices": [
        "ag_done", "ag_start", "all_gather", "all_gather_done", "all_gather_invariant", "all_gather_reduced",
        "all_gather_reduced_start", "all_gather_start", "all_to_all", "all_to_all_done", "all_to_all_start",
        "axis_index", "device_put", "dll_constraint", "full_to_shard", "inspect_sharding", "layout_constraint",
        "mesh_cast", "pbroadcast", "pbroadcast_done", "pbroadcast_dynamic", "pbroadcast_start", "pgather", "pmax",
        "pmin", "ppermute", "ppermute_done", "ppermute_start", "precv", "preduced", "psend", "psum", "psum_done",
        "psum_invariant", "psum_invariant_start", "psum_start", "ragged_all_to_all", "reduce_scatter",
        "reduce_scatter_done", "reduce_scatter_start", "reduced_vary_cast", "reduced_vary_cast_p", "relayout",
        "reshard", "shard_map", "shard_to_full", "sharding_cast", "sharding_constraint", "unreduced_pmax",
        "unreduced_pmin", "unreduced_psum", "unreduced_psum_start", "unreduced_reduce_scatter",
        "unreduced_reduce_scatter_start", "vary_unreduced_cast", "vary_unreduced_cast_p",
        "with_memory_space_constraint", "xla_pmap",
    ],
    "mutable memory": [
        "accum_grad_in_ref", "addupdate", "box_get", "box_set", "core_map", "create_linear", "empty", "empty2",
        "empty_ref", "free_ref", "freeze", "get", "log_extend", "log_read", "mutable_array", "new_box", "new_log",
        "new_ref", "pin", "run_state", "swap", "unpin",
    ],
    "callbacks, and kernels of a device": [
        "after_all", "bias_bwd", "bias_fwd", "call_exported", "create_token", "cudnn_fusion", "debug_callback",
        "debug_print", "dot_product_attention_bwd", "dot_product_attention_bwd_wrapper",
        "dot_product_attention_fp8_bwd", "dot_product_attention_fp8_bwd_wrapper", "dot_product_attention_fp8_fwd",
        "dot_product_attention_fp8_fwd_wrapper", "dot_product_attention_fwd", "dot_product_attention_fwd_wrapper",
        "ffi_call", "infeed", "io_callback", "outfeed", "pure_callback",
    ],
    "internal primitives of tracing": [
        "broadcast_to", "call", "call_hi_primitive", "call_hi_primitive_linearized", "check", "composite",
        "custom_jvp_call_jaxpr", "custom_lin", "custom_partitioning", "custom_transpose_call", "custom_vmap_call",
        "dce_sink", "dim_as_value", "dimension_size", "from_edtype", "linear_call", "remat_opt", "shape_assertion",
        "stage", "tie", "to_edtype", "unreachable", "vmap", "zeros_like",
    ],
}  # fmt: skip
NOT_COMPILED = frozenset(name for names in NOT_COMPILED_BY_REASON.values() for name in names)
"""Names of all primitives that the CPU engine does not compile."""

REMEDIES = 'with a GPU use engine="xla", else write it without, or pass batched NumPy functions and `jacobian=`'


def cannot_compile(name: str, why: str = "") -> str:
    """Return the warning that a primitive is not compiled, with remedies."""
    return (
        f"the CPU engine cannot compile the JAX primitive '{name}'{why}; XLA computes it, which is slower: {REMEDIES}"
    )
