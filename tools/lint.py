#!/usr/bin/env python3
"""What ./dev lint runs: formatting of every source file, and clang-tidy with a memory.

  lint.py format [--fix]           clang-format over the C++ files, a syntax check over the Python ones
  lint.py tidy BUILD STAMPS [--tests]
                                   clang-tidy over what BUILD compiles, skipping what STAMPS knows;
                                   with --tests over the tests as well

A translation unit is clean until anything that clang-tidy reads of it changes: a stamp's name is the
hash of its compile command, of every file that the last build of it included (from ninja's log),
of the .clang-tidy files and of the clang-tidy version. So tidy must follow a build of BUILD.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["runtime", "transport", "actors", "bindings", "tools", "tests", "docs"]
CLANG_FORMAT, CLANG_TIDY = "clang-format-14", "clang-tidy-14"


def files(*suffixes):
    return sorted(str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in suffixes)


def check_format(fix):
    sources = files(".h", ".c", ".cc", ".cu")
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    status = subprocess.run([CLANG_FORMAT, *mode, *sources]).returncode if sources else 0
    scripts = files(".py")
    for script in scripts:
        try:
            compile(pathlib.Path(script).read_text(), script, "exec")
        except SyntaxError as error:
            print(f"{script}:{error.lineno}: {error.msg}", file=sys.stderr)
            status = 1
    print(f"format: {len(sources)} C++ and {len(scripts)} Python files", file=sys.stderr)
    return status


def read_includes(build):
    """Object file -> the files it was built from, from ninja's dependency log."""
    log = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True,
                         text=True).stdout
    includes, current = {}, None
    for line in log.splitlines():
        if line.startswith("    "):
            current.append(os.path.normpath(os.path.join(build, line.strip())))
        elif line.strip() and not line.startswith("ninja:"):
            current = includes.setdefault(line.split(":", 1)[0], [])
    return includes


class Hashes:
    """Content hashes; each file is read once."""

    def __init__(self):
        self._known = {}

    def of(self, path):
        if path not in self._known:
            self._known[path] = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        return self._known[path]


def units_to_check(build, with_tests):
    """(source, object, command) of each project source, and of each header that none includes."""
    with open(os.path.join(build, "compile_commands.json")) as file:
        entries = json.load(file)
    includes = read_includes(build)
    folders = [folder for folder in FOLDERS if with_tests or folder != "tests"]
    units, alone, covered = [], [], set()
    for entry in entries:
        relative = os.path.relpath(entry["file"], ROOT)
        words = shlex.split(entry["command"])
        target = words[words.index("-o") + 1]
        unit = (entry["file"], includes.get(target), entry["command"])
        if relative.split(os.sep)[0] in folders:
            units.append(unit)
            covered.update(unit[1] or [])
        elif "/headers_alone/" in entry["file"]:
            alone.append(unit)
    for source, read, command in alone:
        header = re.search(r'#include "(.*)"', pathlib.Path(source).read_text()).group(1)
        if header.split("/")[0] in folders and str(ROOT / header) not in covered:
            units.append((source, read, command))
    missing = [source for source, read, _ in units if read is None]
    if missing:
        sys.exit(f"lint.py: not built yet: {missing[0]} (and {len(missing) - 1} more)")
    return units


def check_tidy(build, stamps, with_tests):
    build = os.path.abspath(build)
    os.makedirs(stamps, exist_ok=True)
    hashes = Hashes()
    version = subprocess.run([CLANG_TIDY, "--version"], check=True, capture_output=True).stdout
    configs = [ROOT / ".clang-tidy"] + [path for folder in FOLDERS
                                        for path in sorted((ROOT / folder).rglob(".clang-tidy"))]
    common = hashlib.sha256(version + b"".join(path.read_bytes() for path in configs)).hexdigest()

    work = []
    units = units_to_check(build, with_tests)
    for source, read, command in units:
        parts = [common, command, *(f"{path} {hashes.of(path)}" for path in sorted(set(read)))]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        stamp = pathlib.Path(stamps) / key
        if stamp.exists():
            stamp.touch()
        else:
            work.append((source, stamp))
    print(f"clang-tidy: {len(work)} of {len(units)} units changed", file=sys.stderr, flush=True)

    def check(item):
        source, stamp = item
        start = time.monotonic()
        # The commands are g++'s: clang does not know all of its warnings.
        result = subprocess.run([CLANG_TIDY, "-p", build, "--quiet",
                                 "--extra-arg=-Wno-unknown-warning-option", source],
                                capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if result.returncode == 0:
            stamp.touch()
        return source, result, time.monotonic() - start

    shown, failed = set(), []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        tasks = [pool.submit(check, item) for item in work]
        for number, task in enumerate(concurrent.futures.as_completed(tasks), 1):
            source, result, seconds = task.result()
            print(f"[{number}/{len(work)}] {os.path.relpath(source, ROOT)} {seconds:.1f} s",
                  file=sys.stderr, flush=True)
            if result.returncode == 0:
                continue
            failed.append(os.path.relpath(source, ROOT))
            # A header's complaint comes once, not once per source that includes it.
            if result.stdout not in shown:
                shown.add(result.stdout)
                print(result.stdout + ("" if result.stdout.strip() else result.stderr), flush=True)
    if failed:
        print(f"clang-tidy: {len(failed)} units are not clean: {' '.join(failed)}", file=sys.stderr)
        return 1
    # Stamps that nothing used for a month belong to files that are long gone.
    for stamp in pathlib.Path(stamps).iterdir():
        if time.time() - stamp.stat().st_mtime > 30 * 86400:
            stamp.unlink()
    return 0


def main(arguments):
    if arguments[:1] == ["format"] and arguments[1:] in ([], ["--fix"]):
        return check_format(bool(arguments[1:]))
    if arguments[:1] == ["tidy"] and len(arguments) in (3, 4) and arguments[3:] in ([], ["--tests"]):
        return check_tidy(*arguments[1:3], bool(arguments[3:]))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
