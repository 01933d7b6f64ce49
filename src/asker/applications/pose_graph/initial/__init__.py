"""Where the solve of a pose graph begins."""
