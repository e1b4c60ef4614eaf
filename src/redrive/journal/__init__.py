"""The journal: local files that keep what the store could not take, until it can.

Each process writes files of its own (`writer.py`), one JSON object a line (`line.py`), and holds a
lock on the one it writes. Whoever gets the lock of a file gives it to the store (`draining.py`).
Nothing is given twice: the store knows events by their ids, and how far a file was given is written
beside it. `folder.py` tells what there is.
"""
