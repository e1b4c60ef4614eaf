"""What a worker asks of its store in one turn, awaited together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from redrive.store import Claim

__all__ = ["found_nothing", "no_claim", "together"]


async def no_claim() -> None:
    """Stand in for the claim of a turn that makes none."""


async def together(
    report: Awaitable[object], settle: Awaitable[None], claim: Awaitable[Claim | None]
) -> tuple[object, BaseException | None, Claim | BaseException | None]:
    """Await all to the end, even when cancelled: an answer from the store is never dropped."""
    begun = asyncio.gather(report, settle, claim, return_exceptions=True)
    try:
        reported, settled, claimed = await asyncio.shield(begun)
    except asyncio.CancelledError:
        await begun
        raise
    return reported, settled, claimed


def found_nothing(claim: Claim | None) -> bool:
    """Tell whether a claim was made, and nothing is due now that anybody could have."""
    return (
        claim is not None
        and not claim.deliveries
        and not claim.suspects
        and (claim.next_due is None or claim.next_due > claim.now)
    )
