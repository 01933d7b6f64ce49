"""Figures of disparity maps."""

from pathlib import Path

import numpy as np

from asker.io.figures import figure


def draw_maps(path: Path, maps: dict[str, dict[str, np.ndarray]]) -> None:
    """Draw disparity maps in a grid with a row and a colour scale for each image pair."""
    columns = max(map(len, maps.values()))
    with figure(path, 2.6 * columns, 2.5 * len(maps)) as fig:
        grid = fig.subplots(len(maps), columns, squeeze=False)
        for axes, (pair, row) in zip(grid, maps.items(), strict=True):
            largest = max(float(np.nanmax(m)) for m in row.values())
            for ax in axes:
                ax.set_axis_off()
            for ax, (name, disparity) in zip(axes, row.items(), strict=False):
                image = ax.imshow(disparity, cmap="viridis", vmin=0, vmax=largest)
                ax.set_title(f"{pair}: {name}", fontsize=9)
            fig.colorbar(image, ax=list(axes), label="disparity (px)", shrink=0.8)
