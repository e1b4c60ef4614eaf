"""Tracking: events of application code go straight to their destinations, and never hurt it.

`track` (`tracker.py`) puts an event into a bounded buffer and returns. A thread with an event loop
of its own (`sender.py`) takes events out of it, looks at routes and gates that are at most a second
old (`outlook.py`), and sends them in batches, each destination by itself (`channel.py`). What has
arrived everywhere is done. What is left is handed to the store, or to the journal when the store
does not answer (`keeper.py`), and goes on as ordinary deliveries.
"""
