"""Write a scene for the peers: from a BAL file, or a ring of cameras.

python scene.py OUT.npz --bal problem-49-7776-pre.txt.bz2
python scene.py OUT.npz --ring CAMERAS OBSERVATIONS
"""

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from asker.applications.bundle.bal import read_bal
from asker.applications.bundle.synthetic import make_scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bal", type=Path)
    parser.add_argument("--ring", type=int, nargs=2, metavar=("CAMERAS", "OBSERVATIONS"), default=(8, 2000))
    args = parser.parse_args()
    bundle = read_bal(args.bal) if args.bal else make_scene(*args.ring, seed=0).start
    part = args.out.with_suffix(".part.npz")  # an interrupted run leaves no incomplete scene
    np.savez(part, **{f.name: getattr(bundle, f.name) for f in dataclasses.fields(bundle)})
    part.replace(args.out)


if __name__ == "__main__":
    main()
