"""`python -m isentrope` is `isentrope`."""

import sys

from isentrope.cli import main

if __name__ == "__main__":
    sys.exit(main())
