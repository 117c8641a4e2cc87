"""The shim, in this process and around commands: what a program that imports mooncake.engine gets."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import railhop.engine
import railhop.shim

PACKAGE = pathlib.Path(railhop.engine.__file__).parent.parent
PRINT_ENGINE = "import mooncake.engine as e; print(e.__name__, e.TransferEngine.__module__)"


def run(*command, **environment):
    """`python -m railhop.shim COMMAND...`; the completed process."""
    return subprocess.run([sys.executable, "-m", "railhop.shim", *command], capture_output=True,
                          text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE), **environment})


class InProcessTest(unittest.TestCase):
    def tearDown(self):
        for name in [name for name in sys.modules if name.split(".")[0] == "mooncake"]:
            del sys.modules[name]

    def test_install_gives_the_engine(self):
        railhop.shim.install()
        finders = len(sys.meta_path)
        railhop.shim.install()
        self.assertEqual(len(sys.meta_path), finders, "twice is no harm")
        import mooncake.engine
        from mooncake.engine import TransferEngine
        self.assertIs(mooncake.engine, railhop.engine)
        self.assertIs(TransferEngine, railhop.engine.TransferEngine)
        self.assertEqual(railhop.engine.__spec__.name, "railhop.engine")
        with self.assertRaises(ImportError):
            import mooncake.store

    def test_other_parts_of_an_installed_package_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "mooncake")
            package.mkdir()
            (package / "__init__.py").write_text("")
            (package / "engine.py").write_text("raise ImportError('the one of the package')")
            (package / "store.py").write_text("NAME = 'store'")
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            railhop.shim.install()
            import mooncake.engine
            import mooncake.store
            self.assertIs(mooncake.engine, railhop.engine)
            self.assertEqual(mooncake.store.NAME, "store")


class CommandTest(unittest.TestCase):
    def test_a_program_gets_the_engine(self):
        done = run("/usr/bin/python3", "-c", PRINT_ENGINE)
        self.assertEqual((done.returncode, done.stdout),
                         (0, "railhop.engine railhop.engine\n"), done.stderr)

    def test_so_do_its_children(self):
        done = run("sh", "-c", f'/usr/bin/python3 -c "{PRINT_ENGINE}"')
        self.assertEqual((done.returncode, done.stdout),
                         (0, "railhop.engine railhop.engine\n"), done.stderr)

    def test_arguments_and_exit_codes_pass_through(self):
        done = run("/usr/bin/python3", "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "-h",
                   "a b")
        self.assertEqual((done.returncode, done.stdout), (7, "['-h', 'a b']\n"), done.stderr)

    def test_the_path_and_sitecustomize_of_before_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "sitecustomize.py").write_text("print('customized')")
            done = run("/usr/bin/python3", "-c", PRINT_ENGINE,
                       PYTHONPATH=os.pathsep.join((str(PACKAGE), folder)))
        # Once in the Python of the shim, once in the one that it runs.
        self.assertEqual((done.returncode, done.stdout),
                         (0, "customized\n" * 2 + "railhop.engine railhop.engine\n"), done.stderr)

    def test_a_command_that_does_not_exist(self):
        done = run("no-such-command")
        self.assertEqual(done.returncode, 127)
        self.assertEqual(done.stderr, "railhop.shim: cannot run no-such-command: "
                                      "No such file or directory\n")

    def test_usage(self):
        self.assertEqual(run().returncode, 2)
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("python3 -m railhop.shim CMD", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
