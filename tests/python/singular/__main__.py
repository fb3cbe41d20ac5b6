"""Judge the derivatives of elementwise operators beside singular points; see the package."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter

import tests.python.singular
from meta.testing.samples import FLOAT_DTYPES
from tests.python.singular.judge import MODES, judge
from tests.python.singular.variants import variants


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.python.singular", description=tests.python.singular.__doc__)
    parser.add_argument("operators", nargs="*", default=["*"], help="patterns of names, all by default")
    parser.add_argument("--dtypes", default=",".join(FLOAT_DTYPES))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--small", action="store_true", help="a part of the points")
    parser.add_argument("--show", type=int, default=3, help="findings of a kind that are printed")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong: set[str] = set()
    calls = [v for v in variants() if any(fnmatch.fnmatch(v.sample.op, pattern) for pattern in options.operators)]
    for variant in calls:
        for dtype in filter(variant.sample.accepts, options.dtypes.split(",")):
            verdict = judge(variant, dtype, options.modes.split(","), options.small)
            counts.update(verdict.counts)
            shown: Counter[str] = Counter()
            for finding in verdict.findings:
                wrong.add(str(variant))
                shown[finding.what] += 1
                if shown[finding.what] <= options.show:
                    print(finding, flush=True)
            if verdict.findings:
                print(f"{variant} {dtype}: {dict(shown)} of {verdict.counts.total()} results", flush=True)
    operators = {v.sample.op for v in calls}
    print(f"{len(calls)} calls of {len(operators)} operators, {len(wrong)} with wrong results")
    print(f"{counts.total()} results: {dict(counts)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
