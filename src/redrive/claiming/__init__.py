"""Claiming: how much may start now, and whose deliveries go first.

Each claim passes five bounds, from the worker to the single delivery:

1. `allowance`: the worker works out how many deliveries of each destination it has places for, and
   asks the store for no more than that. A slow destination cannot take the places of the others.
2. `passage`: the destination's gate, shared by all workers, says how much it lets through now:
   nothing while it is paused, blocked or its breaker is open; a few probes while the breaker is
   half open; otherwise as many as there are tokens for first attempts, retries and replays.
   A rate that it shares with other destinations (`sharing`) may leave it less than that.
3. `turnstile`: counts within one claim what has passed, so that neither allowance nor passage is
   exceeded whatever kinds of work are mixed. At the end it says what the gate has been charged.
4. `fair_selection`: asks the store (`ready`) for as many tenants, and as much of their work, as can
   matter, and no more: a destination may have a million tenants.
5. `round_robin`: deals the room out among those tenants. They take turns in the order of their
   names, from where the last claim stopped; a turn is three deliveries times the tenant's weight,
   and ends early when the tenant's own rate is used up.

The store does all this within the transaction that leases what was chosen, so two workers never
spend the same token and never take the same turn.
"""
