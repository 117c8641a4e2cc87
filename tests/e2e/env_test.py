"""Runs `railhop env` in several environments.

Usage: env_test.py RAILHOP_BINARY [unittest arguments]
"""

import json
import subprocess
import sys
import unittest

RAILHOP = None


def run(*arguments, **variables):
    """Standard output and standard error of `railhop env`, in this environment alone."""
    result = subprocess.run([RAILHOP, "env", *arguments], env=variables, text=True, timeout=30,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    return result.stdout, result.stderr


def settings(**variables):
    """name -> object of `railhop env --json`."""
    return {line["name"]: line
            for line in map(json.loads, run("--json", **variables)[0].splitlines())}


class EnvTest(unittest.TestCase):
    def test_one_json_object_a_line(self):
        table = settings(MC_SLICE_SIZE="131072", MC_FORCE_TCP="1", MC_TE_FILTERS="mlx5_0,mlx5_1")
        self.assertGreater(len(table), 20)
        for line in table.values():
            self.assertLessEqual({"name", "type", "value", "default", "allowed", "help"},
                                 set(line))
        self.assertEqual(table["MC_SLICE_SIZE"]["value"], 131072)
        self.assertEqual(table["MC_SLICE_SIZE"]["default"], 65536)
        self.assertIs(table["MC_FORCE_TCP"]["value"], True)
        self.assertIs(table["MC_FORCE_HCA"]["value"], False)
        self.assertEqual(table["MC_TE_FILTERS"]["value"], "mlx5_0,mlx5_1")
        self.assertEqual(table["MC_MIN_RPC_PORT"]["alias"], "MC_MIN_PRC_PORT")

    def test_relaying_is_among_them(self):
        table = settings(MC_PXN_ENABLE="1", MC_PXN_INFLIGHT_DEPTH="7", MC_PXN_GROUP_ID="node",
                         MC_PXN_RAIL_MAP='{"mlx5_0": "rail0"}')
        self.assertIs(table["MC_PXN_ENABLE"]["value"], True)
        self.assertEqual(table["MC_PXN_INFLIGHT_DEPTH"]["value"], 7)
        self.assertEqual(table["MC_PXN_INFLIGHT_DEPTH"]["default"], 4)
        self.assertEqual(table["MC_PXN_GROUP_ID"]["value"], "node")
        self.assertEqual(json.loads(table["MC_PXN_RAIL_MAP"]["value"]), {"mlx5_0": "rail0"})
        self.assertIn("MC_PXN_GROUPID is set and changes nothing", run(MC_PXN_GROUPID="node")[1])
        errors = run(MC_PXN_INFLIGHT_DEPTH="0")[1]
        for word in ("MC_PXN_INFLIGHT_DEPTH", '"0"', "1..64", "PXN is off"):
            self.assertIn(word, errors)

    def test_a_line_per_variable(self):
        text, errors = run(MC_RETRY_CNT="3")
        lines = text.splitlines()
        self.assertEqual(lines[0].split(), ["variable", "value", "default", "allowed", "meaning"])
        self.assertEqual([line.split()[0] for line in lines[1:]], list(settings()))
        retry = next(line for line in lines if line.startswith("MC_RETRY_CNT "))
        self.assertEqual(retry.split()[1:4], ["3", "9", "1..127"])
        self.assertEqual(errors, "")

    def test_warns_of_what_is_not_valid(self):
        text, errors = run("--json", MC_RETRY_CNT="many")
        self.assertIn('"value":9', next(line for line in text.splitlines() if "RETRY" in line))
        self.assertEqual(errors.count("\n"), 1)
        for word in ("MC_RETRY_CNT", '"many"', "1..127"):
            self.assertIn(word, errors)


if __name__ == "__main__":
    RAILHOP = sys.argv.pop(1)
    unittest.main()
