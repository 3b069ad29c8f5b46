# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the Python package, which must be installed: PYTHON python/tests/run.py [PATTERN]. Ends with one line
"N passed, N failed", with ", N skipped" if any were."""

import pathlib
import sys
import unittest


class Result(unittest.TextTestResult):
    """Counts what passed: not every Python counts skipped tests among those that ran."""

    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    here = pathlib.Path(__file__).parent
    names = sys.argv[1] if len(sys.argv) > 1 else "*"
    tests = unittest.defaultTestLoader.discover(str(here), pattern=f"test_{names}.py")
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(tests)
    bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(f"{result.passed} passed, {bad} failed" + (f", {len(result.skipped)} skipped" if result.skipped else ""))
    return bad > 0 or result.passed == 0


if __name__ == "__main__":
    sys.exit(main())
