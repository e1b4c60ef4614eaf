"""The app: what your code declares, publishes by and opens, put together from everything below."""
