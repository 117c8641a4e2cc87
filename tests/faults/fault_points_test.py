"""Holds the list of fault points against the sources and against what was built.

  fault_points_test.py with|without BINARY...

Each point of tests/faults/fault_points.h is used exactly once in the sources, and no other is. A
build without fault points holds none of their names in any of its BINARIES (programs and static
libraries); one with them holds all, each in at least one, so that the search is known to find them.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ["runtime", "transport", "actors", "tools"]
LISTED = re.compile(r'\{"((?:sender|relay)\.\w+)", PassedWhen::')
USED = re.compile(r'^[^/\n]*\bRAILHOP_FAULT_POINT\(\s*"([^"]*)"', re.MULTILINE)
MARKER = re.compile(rb"railhop-fault-point:([\w.]*)")


def main(build, binaries):
    listed = LISTED.findall((ROOT / "tests/faults/fault_points.h").read_text())
    used = [name for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in (".h", ".cc", ".cu") for name in USED.findall(path.read_text())]
    assert listed and len(set(listed)) == len(listed), listed
    assert sorted(used) == sorted(listed), (
        f"only in the sources or twice: {sorted(set(used) - set(listed)) or sorted(used)}; "
        f"only in tests/faults/fault_points.h: {sorted(set(listed) - set(used))}")

    found = set()
    for binary in binaries:
        names = {name.decode() for name in MARKER.findall(pathlib.Path(binary).read_bytes())}
        if build == "without":
            assert not names, f"{binary} holds the fault points {sorted(names)}"
        found |= names
    if build == "with":
        assert found >= set(listed), f"in no binary: {sorted(set(listed) - found)}"
    print(f"{len(listed)} points; {len(found)} of them in {len(binaries)} binaries")


if __name__ == "__main__":
    assert sys.argv[1] in ("with", "without") and len(sys.argv) > 2
    main(sys.argv[1], sys.argv[2:])
