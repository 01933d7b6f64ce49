"""Files, page and printed report of a refinement."""
