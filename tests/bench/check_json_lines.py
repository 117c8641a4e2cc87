#!/usr/bin/env python3
"""Runs a benchmark with --json and checks the form of its standard output.

  check_json_lines.py EXECUTABLE [ARGUMENTS...]

Exits 77 (skipped) if the benchmark says that it cannot measure here.
"""

import json
import math
import subprocess
import sys

CANNOT_MEASURE = 77


def check(line, names):
    figure = json.loads(line)
    name = figure["name"]
    assert name and name not in names, f"name '{name}' is empty or comes twice"
    names.add(name)
    numbers = ["value"]
    if "ratio" in figure:
        numbers += ["reference", "ratio"]
        assert figure["reference_is"], f"{name}: what is the reference?"
    if "control" in figure:
        numbers.append("control")
    for key in numbers:
        number = figure[key]
        assert isinstance(number, (int, float)) and math.isfinite(number) and number >= 0, (
            f"{name}: {key} is {number}")
    assert figure["unit"] and figure["subject_is"], f"{name}: without unit or subject"
    assert figure["includes"] and all(isinstance(i, str) for i in figure["includes"]), (
        f"{name}: what does the time include?")
    assert figure["pairs"] >= 1
    assert len(figure["placement"]["cores"]) == 2 and figure["placement"]["relation"]


def main(command):
    result = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True)
    if result.returncode == CANNOT_MEASURE:
        return CANNOT_MEASURE
    assert result.returncode == 0, f"exit code {result.returncode}"
    names = set()
    for line in result.stdout.splitlines():
        check(line, names)
    assert names, "no line at all"
    print(f"{len(names)} figures: {', '.join(sorted(names))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
