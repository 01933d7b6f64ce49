"""The version, here and nowhere else, and the time since when it is imported; the build reads this file."""

import time

__version__ = "0.6.0"
IMPORTED = time.time()
