"""The queue of a model: which sequences run in the next pass.

A request can have many sequences: it may contain many texts, and a long text is split into windows. A pass is made of
sequences, not of requests, so a large request is spread over many passes and small ones overtake it. The request with
the fewest tokens left goes first; requests of equal size go in order of arrival. To prevent starvation, the oldest
request gets a fixed share of all tokens, regardless of its size.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

OLDEST_SHARE = 0.25  # share of the tokens for the oldest request
# For admission, requests up to this many times larger count as ahead of a new one.
FAR_LARGER = 4
MOST_NUMBERS = 64_000_000  # outputs of one pass, and outputs kept between passes; four bytes each


class Job(Protocol):
    """One validated input of one ability."""

    result: Any  # None until it is finished

    @property
    def tokens(self) -> int: ...
    @property
    def masks(self) -> int: ...
    @property
    def lengths(self) -> Sequence[int]: ...
    @property
    def numbers(self) -> int: ...


@dataclass(eq=False)
class Ticket:
    """The jobs of one request, and the future that its handler awaits."""

    jobs: Sequence[Job]
    promise: asyncio.Future[Sequence[Any]]
    client_is_gone: Callable[[], bool] = lambda: False
    started: bool = False
    given_up: bool = False
    left: int = field(init=False)  # tokens not yet run
    credit: float = 0.0  # tokens it may run ahead of smaller requests
    split: Job | None = None  # the job that is partly run and keeps its outputs; at most one
    unfinished: list[Job] = field(init=False)

    def __post_init__(self) -> None:
        self.unfinished = list(self.jobs)
        self.left = self.tokens = sum(job.tokens for job in self.jobs)

    def waiting(self, running: Collection[int]) -> Iterator[Job]:
        """The unfinished jobs that are in no pass, the one partly run first."""
        ordered = sorted(self.unfinished, key=lambda each: each is not self.split)
        return (job for job in ordered if id(job) not in running)


@dataclass(eq=False)
class Part:
    """The next `count` sequences of a job, for one pass."""

    ticket: Ticket
    job: Job
    count: int = 0
    tokens: int = 0
    whole: bool = False  # these are all the sequences that the job waits for


class Queue:
    """The unfinished requests of one model, in order of arrival."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []
        self._running: set[int] = set()  # identities of the jobs that have a part in a pass

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def tokens(self) -> int:
        """Tokens not yet run."""
        return sum(ticket.left for ticket in self._tickets)

    @property
    def waiting(self) -> int:
        """Requests not yet started."""
        return sum(not ticket.started for ticket in self._tickets)

    def ahead(self, tokens: int) -> int:
        """Tokens ahead of a new request with `tokens` tokens; much larger requests do not count."""
        return sum(ticket.left for ticket in self._tickets if ticket.left <= FAR_LARGER * tokens)

    def add(self, ticket: Ticket) -> None:
        """Add a request."""
        self._tickets.append(ticket)

    def drop(self) -> list[Ticket]:
        """Remove and return the requests whose clients have left."""
        dropped = [each for each in self._tickets if each.given_up or each.promise.cancelled() or each.client_is_gone()]
        if dropped:
            self._tickets = [ticket for ticket in self._tickets if ticket not in dropped]
        return dropped

    def all_stop_early(self) -> bool:
        """Whether all that wait for a pass may join one in which texts stop early."""
        waiting = (job for ticket in self._tickets for job in ticket.unfinished if id(job) not in self._running)
        return all(getattr(job, "rule", None) is not None for job in waiting)

    def take(self, budget: int, at_least_one: bool = True) -> list[Part]:
        """Select the next pass: as many sequences as fit into `budget` tokens (one in any case if `at_least_one`).

        Otherwise these join a pass that is running, and none does while the oldest request waits for room there.
        """
        if not at_least_one and self._oldest_needs_room(budget):
            return []
        held = sum(each.split.numbers for each in self._tickets if each.split)
        selection = _Selection(budget, held, self._running, at_least_one)
        if self._tickets:
            selection.add(self._tickets[0], most=self._tickets[0].credit)
        for ticket in sorted(self._tickets, key=lambda each: each.left):
            if selection.room <= 0:
                break
            selection.add(ticket)
        parts = list(selection.parts.values())
        assert parts or not self._tickets or not at_least_one
        self._running |= {id(part.job) for part in parts}
        for part in parts:
            part.ticket.started = True
            part.ticket.left = max(part.ticket.left - part.tokens, 0)
        self._share(parts)
        return parts

    def _oldest_needs_room(self, room: int) -> bool:
        """Whether the oldest request has earned its next sequence, but that is longer than the room.

        Without this, short ones would fill each place that becomes free, and it would never be long enough.
        """
        if not self._tickets:
            return False
        oldest = self._tickets[0]
        following = next((job.lengths[0] for job in oldest.waiting(self._running) if job.lengths), 0)
        return room < following <= oldest.credit

    def _share(self, parts: Sequence[Part]) -> None:
        """The oldest request earns credit for every token of the pass, and pays for its own."""
        if self._tickets:
            oldest = self._tickets[0]
            own = sum(part.tokens for part in parts if part.ticket is oldest)
            total = sum(part.tokens for part in parts)
            oldest.credit = max(oldest.credit + OLDEST_SHARE * total - own, 0.0)

    def settle(self, parts: Sequence[Part]) -> list[Ticket]:
        """Update the queue after a pass; returns the requests that are finished."""
        touched = list(dict.fromkeys(part.ticket for part in parts))
        self._running -= {id(part.job) for part in parts}
        for part in parts:
            if not part.whole:
                part.ticket.split = part.job
            elif part.ticket.split is part.job:
                part.ticket.split = None
        for ticket in touched:
            ticket.unfinished = [job for job in ticket.unfinished if job.result is None]
            if ticket.split is not None and ticket.split.result is not None:  # it failed
                ticket.split = None
        finished = [ticket for ticket in touched if not ticket.unfinished]
        self._tickets = [ticket for ticket in self._tickets if ticket not in finished]
        return finished


class _Selection:
    """A pass while its sequences are being selected."""

    def __init__(self, budget: int, held: int, running: Collection[int] = (), at_least_one: bool = True):
        self._running, self._at_least_one = running, at_least_one
        self.parts: dict[int, Part] = {}  # by the identity of the job
        self.room = budget  # tokens
        self._numbers = 0  # outputs of jobs that this pass completes
        self._held = held  # outputs of partly run jobs

    def add(self, ticket: Ticket, most: float = math.inf) -> None:
        """Add what fits of a request, at most `most` tokens, its jobs in order."""
        for job in ticket.waiting(self._running):
            part = self.parts.get(id(job)) or Part(ticket, job)
            count, tokens, lengths = part.count, 0, job.lengths
            while count < len(lengths) and tokens + lengths[count] <= most:
                if tokens + lengths[count] > self.room and (tokens or self.parts or not self._at_least_one):
                    break
                tokens += lengths[count]
                count += 1
            part.whole = count == len(lengths)
            if not (part.whole or tokens) or not self._has_memory(part):
                return
            part.count, part.tokens = count, part.tokens + tokens
            self.parts[id(job)] = part
            self.room -= tokens
            most -= tokens
            if not part.whole:
                return

    def _has_memory(self, part: Part) -> bool:
        """Whether the outputs of a job fit in memory."""
        if part.ticket.split is part.job or id(part.job) in self.parts:
            return True  # already counted
        numbers = part.job.numbers
        if part.whole:
            fits = not self.parts or self._numbers + numbers <= MOST_NUMBERS
            self._numbers += numbers * fits
            return fits
        fits = part.ticket.split is None and (not self._held or self._held + numbers <= MOST_NUMBERS)
        self._held += numbers * fits
        return fits
