"""Found first on PYTHONPATH by `python3 -m railhop.shim`: installs the shim, then runs the
sitecustomize that would have been found without it."""

import importlib.machinery
import importlib.util
import os
import sys

import railhop.shim

railhop.shim.install()

_here = os.path.dirname(os.path.abspath(__file__))
_others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
