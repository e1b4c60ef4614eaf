"""The ways to a server: the standard library's, which blocks, and aiohttp's."""
