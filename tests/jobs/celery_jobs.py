"""The jobs as tasks of Celery."""

from celery import Celery

from redrive.integrations.celery import connect
from tests.jobs.shop import BROKER, work

celery = Celery("jobs", broker=BROKER, backend=BROKER)
connect()


@celery.task(name="work")  # type: ignore[untyped-decorator]  # Celery comes without types
def work_task(kind: str) -> str:
    """Do it."""
    return work(kind)
