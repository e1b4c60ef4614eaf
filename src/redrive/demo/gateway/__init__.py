"""The demo of the gateway: a file says which orders go to whose API, and no Python does."""
