"""Cells that are more than a period ahead of the clock. Either the clock was set back, and the cell is rebased; or the caller
is stale. The mark of the last rebase tells the two apart."""

import typing

FREE_RETURNS = 3  # from then on a caller has to be twice as far away each time
RETURNS_MAX = 15


class Mark(typing.NamedTuple):
    to: int  # the clock
    lead: int  # the cell's own time before
    returns: int  # how often the cell was ahead again, less the periods that its lead went on


def rebase(mark, own, period, now):
    """The mark after a rebase of a cell of this own time and period, or None if the caller is stale."""
    if mark is None:
        return Mark(now, own, 0)
    if own <= mark.to + period:  # the cell did not go ahead again: the clock went back further
        return mark._replace(to=now)
    returns = max(0, mark.returns - max(0, own - mark.lead) // period)
    if abs(now - mark.to) < period * 2 ** max(0, returns - FREE_RETURNS):
        return None
    other_clock = own < mark.lead - 2 * period
    return Mark(now, own if other_clock else max(mark.lead, own), min(returns + 1, RETURNS_MAX))
