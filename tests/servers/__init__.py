"""Real servers for the tests: found, or started, once for all the processes that test."""
