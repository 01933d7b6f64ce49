"""`least_squares` and `curve_fit` with the signatures of SciPy."""
