"""Robust estimation at large scale.

The public names are listed in `asker._api` and imported on first access, so that `asker --help` starts quickly.
"""

from typing import TYPE_CHECKING

from asker.version import IMPORTED as _IMPORTED  # noqa: F401  imported before any other module of the package

if TYPE_CHECKING:
    from asker._api import *  # noqa: F403  (what type checkers see)
else:
    from importlib import import_module as _import_module

    def __getattr__(name):
        public = _import_module("asker._api")
        globals().update({listed: getattr(public, listed) for listed in ("__all__", *public.__all__)})
        if name in globals():
            return globals()[name]
        raise AttributeError(f"module 'asker' has no attribute {name!r}")

    def __dir__():
        return _import_module("asker._api").__all__
