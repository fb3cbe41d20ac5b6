"""One process of an attack; see `workers`."""

import sys
from pathlib import Path

from tests.attack.workers import work

if __name__ == "__main__":
    name, *numbers, until, state = sys.argv[1:]
    work(name, *map(int, numbers), float(until), Path(state))
