"""Entry point of `python tools/faults`: run the campaign with tests/helpers on the module path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))

from campaign import main

if __name__ == "__main__":
    sys.exit(main())
