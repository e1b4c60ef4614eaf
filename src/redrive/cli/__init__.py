"""The command line: commands by group, with reading, doing and printing apart."""
