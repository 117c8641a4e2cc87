"""What librailhop_c exports: the functions of its header, all of them, and nothing else.

Usage: exports_test.py LIBRARY HEADER

A host process may have other copies of the standard library, protobuf and Abseil: theirs and ours
must not meet.
"""

import re
import subprocess
import sys
import unittest

LIBRARY, HEADER = None, None


class ExportsTest(unittest.TestCase):
    def test_only_the_functions_of_the_header(self):
        listed = subprocess.run(["nm", "-DC", "--defined-only", LIBRARY], check=True,
                                capture_output=True, text=True).stdout
        # Address, type, name. Weak ones, too: templates of the standard library, of another version
        # than the host's.
        exported = {line.split(maxsplit=2)[2] for line in listed.splitlines()}
        with open(HEADER, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/|^#.*?$", "", file.read(), flags=re.DOTALL | re.MULTILINE)
        declared = set(re.findall(r"\b(\w+)\([^()]*\);", text))
        self.assertIn("createTransferEngine", declared)
        self.assertEqual(declared - exported, set(), "not exported")
        self.assertEqual(exported - declared, set(), "exported, but not in the header")


if __name__ == "__main__":
    LIBRARY, HEADER = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=2)
