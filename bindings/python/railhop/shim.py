"""Lets programs written for mooncake.engine run on railhop.engine, unchanged.

  python3 -m railhop.shim CMD ARGUMENTS...     runs CMD; every Python under it sees the shim
  railhop.shim.install()                       the same, in this process only

Only mooncake.engine is replaced; other parts of an installed mooncake package stay as they are.
"""

import importlib
import importlib.machinery
import os
import sys


class _EngineFinder:
    """Gives railhop.engine to who imports mooncake.engine; loads it only then."""

    @classmethod
    def find_spec(cls, name, _path=None, _target=None):
        return importlib.machinery.ModuleSpec(name, cls) if name == "mooncake.engine" else None

    @classmethod
    def create_module(cls, _spec):
        engine = importlib.import_module("railhop.engine")
        cls._own_spec = engine.__spec__
        return engine

    # The module keeps saying what it is.
    @classmethod
    def exec_module(cls, module):
        module.__spec__ = cls._own_spec


class _PackageFinder:
    """Stands in for the package mooncake where none is installed."""

    @classmethod
    def find_spec(cls, name, _path=None, _target=None):
        if name != "mooncake":
            return None
        return importlib.machinery.ModuleSpec(name, cls, is_package=True)

    @staticmethod
    def create_module(_spec):
        return None

    @staticmethod
    def exec_module(_module):
        pass


def install():
    """Makes `import mooncake.engine` find railhop.engine. May be called more than once."""
    if _EngineFinder not in sys.meta_path:
        sys.meta_path.insert(0, _EngineFinder)
        sys.meta_path.append(_PackageFinder)
        sys.modules.pop("mooncake.engine", None)


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
