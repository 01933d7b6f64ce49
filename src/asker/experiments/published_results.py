"""Published results for comparison: the numbers of the paper and of the authors' program.

They are the lowest Ψ within 100 iterations for τ = 1 pixel, with k1 and k2 acting on pixels.  Numbers read from the
paper's figures are accurate to about 1 %.
"""

COMPARED = ("irls", "mhq", "gnc", "moo", "asker-published")

AUTHORS_PROGRAM = {
    "trafalgar-21": (4924.0, 3475.3, 3464.4, 3468.1, 3430.8),
    "ladybug-49": (2202.0, 2074.6, 2073.2, 2085.6, 2037.4),
    "dubrovnik-16": (14325.7, 9916.5, 9412.6, 9548.8, 9411.4),
}
PAPERS_FIGURES = {
    "trafalgar-126": (15340, 14560, 14500, 14500, 14430),
    "trafalgar-138": (7850, 7460, 7380, 7310, 7240),
    "trafalgar-201": (None, 19460, 19100, 19190, 18980),
    "trafalgar-225": (20890, 19880, 19580, 19700, 19460),
    "dubrovnik-150": (59100, 59700, 58150, 58150, 57900),
    "dubrovnik-202": (76200, 77400, 74800, 75500, 74400),
    "dubrovnik-253": (89000, 90300, 87500, 89200, 86900),
    "ladybug-318": (16170, 15570, 15430, 15600, 15330),
    "final-93": (30950, 30000, 29600, 29900, 30000),
    "final-394": (47800, 46750, 46000, 45900, 45600),
}
PAPERS_INLIERS = {  # percent within 0.577 pixels: the paper's table
    "ladybug-49": (80.4, 82.3, 82.1, 81.9, 82.3),
    "trafalgar-21": (50.9, 69.0, 68.3, 68.8, 69.10),
    "trafalgar-201": (66.31, 69.2, 69.1, 68.8, 69.33),
    "trafalgar-225": (67.05, 69.8, 69.9, 70.01, 70.01),
}


def reference_cost(instance: str, method: str) -> tuple[float, str] | None:
    """Return a published cost and its source, or None if there is none."""
    for table, source in ((AUTHORS_PROGRAM, "authors' program"), (PAPERS_FIGURES, "paper's figure")):
        if instance in table and method in COMPARED:
            cost = table[instance][COMPARED.index(method)]  # type: ignore[index]
            return None if cost is None else (float(cost), source)
    return None


def reference_inliers(instance: str, method: str) -> float | None:
    """Return the percentage of inliers in the paper's table, or None if there is none."""
    if instance in PAPERS_INLIERS and method in COMPARED:
        return PAPERS_INLIERS[instance][COMPARED.index(method)]
    return None
