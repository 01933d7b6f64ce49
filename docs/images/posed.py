"""Figure of the README: errors of camera centres after the refinement of approximate poses.

    python docs/images/posed.py

The figures are those of benchmarks/results/posed.md.  Writes posed.png next to this file.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "posed.md"
STYLES = {
    "start": ("#bbbbbb", "given poses"),
    "pycolmap, no loss": ("#e69f00", "COLMAP's adjustment, no loss"),
    "pycolmap, Cauchy": ("#d55e00", "COLMAP's adjustment, Cauchy"),
    "asker refine-poses": ("#0072b2", "asker refine-poses"),
}
"""Colour and title of each program."""


def rows() -> list[list[str]]:
    """Return the cells of the table of real images: start, program, median error, worst, ..."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if len(row) == 8 and (row[1] in STYLES or "scratch" in row[1])]


def main() -> None:
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    ax = figure.subplots()
    table = rows()
    levels = list(dict.fromkeys(row[0] for row in table if row[1] in STYLES))
    for k, (program, (color, title)) in enumerate(STYLES.items()):
        each = [float(row[2]) for level in levels for row in table if row[:2] == [level, program]]
        ax.bar(np.arange(len(levels)) + 0.2 * (k - 1.5), each, 0.19, color=color, label=title)
    for row, style in zip((row for row in table if "scratch" in row[1]), ("--", ":"), strict=False):
        ax.axhline(float(row[2]), color="#444444", linestyle=style, linewidth=1, label=f"{row[1]} ({row[4]} images)")
    names = [level.replace("focal 5 %, ", "focal length 5 %,\n") for level in levels]
    ax.set_xticks(np.arange(len(levels)), names)
    ax.set(yscale="log", xlabel="error of the given poses", ylabel="error of the centres, % of radius")
    figure.legend(*ax.get_legend_handles_labels(), ncols=3, fontsize=8, loc="outside upper center")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
