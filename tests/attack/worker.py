"""One process of an attack; see `workers`."""

import sys
from pathlib import Path

from tests.attack.workers import work

if __name__ == "__main__":
    name, seed, first, step, stop, until, state = sys.argv[1:]
    work(name, int(seed), int(first), int(step), int(stop), float(until), Path(state))
