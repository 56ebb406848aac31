"""Is the engine on the card that it was given? A runtime that ignores a variable, or a container that numbers cards its
own way, would have a night measure another card. Pure; who holds what is read elsewhere (cards/tenancy.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from contracts import Card


def wrong_card(card: Card, holders: Mapping[str, Collection[int]], engine_pids: Collection[int]) -> str | None:
    """In words, when none of the engine's processes holds memory of its card and one holds another's. None: it is
    right, or nobody can say (a container's process ids are not the host's, a driver that lists no processes).

    `holders`: place of a card (Card.place) -> processes that hold memory of it. Pass only those that hold some: ROCr
    opens every card's render node, whichever is visible.
    """
    own = set(engine_pids)
    on = [place for place, pids in holders.items() if own & set(pids)]
    if card.place is None or not on or card.place in on:
        return None
    return (
        f"the engine was given {card.place} ({card.name}) and runs on {', '.join(on)}: unset visible-device variables "
        "in engine.env and in the shell, or name the card in engine.card"
    )
