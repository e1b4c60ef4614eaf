"""The command line: one seed to look at, or as many as time allows."""

from __future__ import annotations

from tests.simulation.command import main

if __name__ == "__main__":
    main()
