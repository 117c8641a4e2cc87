"""Checks from the #include lines that dependencies run one way only.

    runtime < transport < actors < bindings, tools
    within transport: ring, topology, cuda < staging, copy, fabric < engine

Folders of one level may use each other, but not both ways. Generated protobuf headers are for the
.cc files named in PROTOBUF_USERS. The runtime does not know what it runs: some words do not occur
in it. Headers for applications reach neither Abseil nor protobuf, however indirectly.
"""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

LEVELS = {"runtime": 0, "transport": 1, "actors": 2, "bindings": 3, "tools": 3}
TRANSPORT_LEVELS = {"ring": 0, "topology": 0, "cuda": 0, "staging": 1, "copy": 1, "fabric": 1,
                    "engine": 2}
PROTOBUF_USERS = re.compile(r"actors/bootstrap\w*\.cc|transport/topology/.*|tools/.*")
FOREIGN_TO_RUNTIME = re.compile(r"CUDA|RDMA|PXN", re.IGNORECASE)
PUBLIC_HEADERS = ["actors/bootstrap.h", "transport/engine/data_path.h"]
HIDDEN_FROM_PUBLIC = re.compile(r"absl/|google/|.*\.pb\.h$")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def sources(root):
    """{path from the root: its text} of everything that has a place in the layers."""
    found = {}
    for folder in LEVELS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return found


def includes(text):
    return INCLUDE.findall(text)


def folder_of(path):
    """The unit that dependencies are counted between: runtime, transport/ring, actors, ..."""
    parts = path.split("/")
    if parts[0] == "transport" and len(parts) > 2:
        return "/".join(parts[:2])
    return parts[0]


def level_of(folder):
    """(level of the top folder, level within transport); None for what has no place."""
    parts = folder.split("/")
    if parts[0] not in LEVELS:
        return None
    inner = TRANSPORT_LEVELS.get(parts[1]) if len(parts) > 1 else 0
    return None if inner is None else (LEVELS[parts[0]], inner)


def check_direction(files):
    errors = []
    edges = {}  # (from folder, to folder) -> an include that makes it
    for path, text in files.items():
        user = folder_of(path)
        if level_of(user) is None:
            errors.append(f"{path}: folder {user} has no level: add it to this test")
            continue
        for include in includes(text):
            used = folder_of(include)
            if used == user or used.split("/")[0] not in LEVELS:
                continue
            if level_of(used) is None:
                errors.append(f"{path}: includes {include}, whose folder has no level")
            elif level_of(used) > level_of(user):
                errors.append(f"{path}: includes {include}, but {used} lies above {user}")
            else:
                edges.setdefault((user, used), f"{path} includes {include}")
    for (user, used), why in edges.items():
        if user < used and (used, user) in edges:
            errors.append(f"{user} and {used} use each other: {why}; {edges[used, user]}")
    return errors


def check_protobuf(files):
    return [
        f"{path}: includes the generated header {include}"
        for path, text in files.items()
        for include in includes(text)
        if include.endswith(".pb.h") and not PROTOBUF_USERS.fullmatch(path)
    ]


def check_runtime_words(files):
    errors = []
    for path, text in files.items():
        if not path.startswith("runtime/"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if FOREIGN_TO_RUNTIME.search(line):
                errors.append(f"{path}:{number}: {line.strip()}")
    return errors


def check_public_headers(files):
    errors = []
    for public in PUBLIC_HEADERS:
        if public not in files:
            errors.append(f"{public}: missing")
        reached = {public: public}  # header -> the way to it
        todo = [public]
        while todo:
            header = todo.pop()
            for include in includes(files.get(header, "")):
                way = f"{reached[header]} -> {include}"
                if HIDDEN_FROM_PUBLIC.match(include):
                    errors.append(way)
                elif include in files and include not in reached:
                    reached[include] = way
                    todo.append(include)
    return errors


CHECKS = [check_direction, check_protobuf, check_runtime_words, check_public_headers]


class RepositoryTest(unittest.TestCase):
    def test_repository(self):
        files = sources(ROOT)
        self.assertIn("runtime/log.h", files)
        errors = [error for check in CHECKS for error in check(files)]
        self.assertEqual(errors, [], "\n" + "\n".join(errors))


class RulesTest(unittest.TestCase):
    """Each rule catches what it is there for."""

    def errors(self, **files):
        tree = {"actors/bootstrap.h": "", "transport/engine/data_path.h": ""}
        tree.update({name: text for name, text in files.pop("tree").items()})
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in tree.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            found = sources(root)
        return [error for check in CHECKS for error in check(found)]

    def assert_one(self, tree, part):
        errors = self.errors(tree=tree)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(part, errors[0])

    def test_a_good_tree(self):
        tree = {
            "runtime/a.h": "#include <vector>\n",
            "transport/ring/r.h": '#include "runtime/a.h"\n',
            "transport/fabric/sim/s.cc": '#include "transport/ring/r.h"\n',
            "actors/bootstrap_config.cc": '#include "proto/runtime_config.pb.h"\n',
            "tools/t.cc": '#include "actors/bootstrap.h"\n',
        }
        self.assertEqual(self.errors(tree=tree), [])

    def test_upwards(self):
        self.assert_one({"runtime/a.cc": '#include "transport/ring/r.h"\n'}, "lies above runtime")
        self.assert_one({"transport/copy/c.h": '#include "actors/x.h"\n'}, "lies above")
        self.assert_one({"actors/a.h": '#include "tools/x.h"\n'}, "lies above actors")
        self.assert_one({"transport/ring/r.h": '#include "transport/fabric/f.h"\n'}, "lies above")
        self.assert_one({"transport/fabric/f.h": ' # include <transport/engine/e.h>\n'}, "lies above")

    def test_both_ways(self):
        tree = {
            "transport/copy/c.h": '#include "transport/staging/s.h"\n',
            "transport/staging/s.cc": '#include "transport/copy/c.h"\n',
        }
        self.assert_one(tree, "use each other")

    def test_a_folder_without_a_level(self):
        self.assert_one({"transport/magic/m.h": ""}, "has no level")

    def test_protobuf_in_the_wrong_place(self):
        for path in ["actors/submit_actor.cc", "actors/bootstrap_config.h", "transport/ring/r.cc"]:
            self.assert_one({path: '#include "proto/runtime_config.pb.h"\n'}, "generated header")

    def test_a_foreign_word_in_the_runtime(self):
        for word in ["CUDA", "rdma", "Pxn"]:
            self.assert_one({"runtime/a.h": f"\n// for {word}\n"}, "runtime/a.h:2")

    def test_abseil_behind_a_public_header(self):
        tree = {
            "actors/bootstrap.h": '#include "runtime/a.h"\n',
            "runtime/a.h": '#include "runtime/b.h"\n',
            "runtime/b.h": '#include "absl/status/status.h"\n',
        }
        self.assert_one(tree, "actors/bootstrap.h -> runtime/a.h -> runtime/b.h -> absl/")


if __name__ == "__main__":
    unittest.main()
