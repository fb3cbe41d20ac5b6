"""`python -m meta`."""

import sys

from meta.cli import main

if __name__ == "__main__":
    sys.exit(main())
