"""One solve with one strategy: the loop, its checkpoint and the result."""
