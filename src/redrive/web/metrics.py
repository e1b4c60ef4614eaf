"""Metrics of the server itself, in the text that Prometheus reads."""

from __future__ import annotations

from collections import Counter, defaultdict

__all__ = ["Requests"]

_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")


class Requests:
    """Counts requests by method, route and status; no label is anybody's free text."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._times: Counter[str] = Counter()

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._counts[method if method in _METHODS else "other", route, status] += 1
        self._seconds[route] += seconds
        self._times[route] += 1

    def render(self) -> bytes:
        """Return all series as text."""
        lines = [
            "# HELP redrive_http_requests_total Requests answered.",
            "# TYPE redrive_http_requests_total counter",
            *(
                f'redrive_http_requests_total{{method="{method}",route="{route}",'
                f'status="{status}"}} {count}'
                for (method, route, status), count in sorted(self._counts.items())
            ),
            "# HELP redrive_http_request_seconds How long requests took.",
            "# TYPE redrive_http_request_seconds summary",
            *(
                line
                for route, seconds in sorted(self._seconds.items())
                for line in (
                    f'redrive_http_request_seconds_sum{{route="{route}"}} {seconds:.6f}',
                    f'redrive_http_request_seconds_count{{route="{route}"}} {self._times[route]}',
                )
            ),
        ]
        return "\n".join(lines).encode() + b"\n"
