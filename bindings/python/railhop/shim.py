"""Lets programs written for mooncake.engine run on railhop.engine, unchanged.

  python3 -m railhop.shim CMD ARGUMENTS...     runs CMD; every Python under it sees the shim
  railhop.shim.install()                       the same, in this process only

Only mooncake.engine is replaced; other parts of an installed mooncake package stay as they are.
"""

import importlib
import importlib.util
import os
import sys
import types


def install():
    """Makes `import mooncake.engine` find railhop.engine. May be called more than once."""
    engine = importlib.import_module("railhop.engine")
    if "mooncake" not in sys.modules and importlib.util.find_spec("mooncake") is None:
        package = types.ModuleType("mooncake", "Stands in for the mooncake package: only engine.")
        package.__path__ = []
        sys.modules["mooncake"] = package
    sys.modules["mooncake.engine"] = engine
    if "mooncake" in sys.modules:
        sys.modules["mooncake"].engine = engine
    return engine


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2
    here = os.path.dirname(os.path.abspath(__file__))
    # _shim/sitecustomize.py installs the shim in each Python that starts; railhop must be found too.
    folders = [os.path.join(here, "_shim"), os.path.dirname(here)]
    old = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(folders + ([old] if old else []))
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        print(f"railhop.shim: cannot run {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
