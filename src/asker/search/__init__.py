"""Unknown noise: candidates, their refinement, and the choice among them."""
