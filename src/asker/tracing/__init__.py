"""Analysis of JAX functions by tracing: digests, affinity, and the primitives that are used."""
