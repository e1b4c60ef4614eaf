"""Callers' transactions with views of any age: nothing they publish is lost, or stands still."""

from __future__ import annotations

import pytest

from tests.proof.callers import prove_callers
from tests.scale import scaled
from tests.servers.postgres import Database

SEEDS = scaled("CALLERS", usually=3)


@pytest.mark.timeout(60 + 10 * SEEDS)
def test_what_callers_publish_by_old_views_arrives_in_order(database: Database) -> None:
    for seed in range(SEEDS):
        with database.empty_store() as url:
            prove_callers(url, seed=seed, steps=60)
