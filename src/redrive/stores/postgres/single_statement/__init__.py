"""What a single statement can do: it is a transaction of its own, and one trip to the server.

Each covers what is common, and says so when it is not enough; then come the steps that cover all.
"""
