"""Real servers for the tests: found where there are some, started where there are binaries."""
