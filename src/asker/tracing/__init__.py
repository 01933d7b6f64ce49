"""What is known of a JAX function: its digest, whether it is affine, which primitives it uses."""
