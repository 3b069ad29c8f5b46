# SPDX-License-Identifier: Apache-2.0
"""One line for each check, a count at the end."""

import sys


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, problem=None):
        """`problem` says what is wrong; nothing, None or "" is a pass."""
        if problem:
            self.failed += 1
            print(f"FAIL  {name}: {problem}")
        else:
            self.passed += 1
            print(f"ok    {name}")
        sys.stdout.flush()

    def skip(self, name, why):
        self.skipped += 1
        print(f"skip  {name}: {' '.join(str(why).split())[:300]}")

    def run(self, name, function, *args, **options):
        """A check whose function returns the problem, or raises it."""
        try:
            problem = function(*args, **options)
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # a check that breaks has failed; torch has errors of this kind
            problem = f"{type(e).__name__}: ... {' '.join(str(e).split())[-300:]}"
        self.check(name, problem)

    def end(self):
        print(f"{self.skipped} skipped, which torch itself can't do")
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0
