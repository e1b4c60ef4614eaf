"""The jobs as actors of Dramatiq."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from redrive.integrations.dramatiq import QuietTracking
from tests.jobs.shop import BROKER, work

broker = RedisBroker(url=BROKER)  # type: ignore[no-untyped-call]  # it has no types
broker.add_middleware(QuietTracking())
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def work_actor(kind: str) -> None:
    """Do it."""
    work(kind)
