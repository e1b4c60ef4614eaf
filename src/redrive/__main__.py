"""`python -m redrive` is the `redrive` command."""

from __future__ import annotations

import sys

from redrive.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
