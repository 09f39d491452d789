"""Which sequences a pass takes: the smallest request first, none waits forever, each sequence once."""

from __future__ import annotations

from concurrent.futures import Future
from unittest.mock import patch

from fake_predictor import FakeJob
from hypothesis import given
from hypothesis import strategies as st

from litebert.serve import queue as queue_module
from litebert.serve.queue import OLDEST_SHARE, Queue, Ticket


def ticket(*jobs, numbers=1):
    """A request of jobs, each a list of the lengths of its sequences."""
    made = [FakeJob("embed", {}, list(lengths), numbers=numbers) for lengths in jobs]
    return Ticket(made, Future())


def run(parts):
    """What a model would do."""
    for part in parts:
        assert part.whole == (part.count == len(part.job.lengths))
        assert part.tokens == sum(part.job.lengths[: part.count])
        del part.job.lengths[: part.count]
        if not part.job.lengths:
            if later := part.job.arguments.get("later"):
                part.job.lengths += later.pop()
            else:
                part.job.result = "done"


def queue_of(*tickets):
    queue = Queue()
    for each in tickets:
        queue.add(each)
    return queue


def taken(queue, budget):
    """One pass: [(number of the request, tokens), ...] and the requests that it finished."""
    numbers = {id(each): i for i, each in enumerate(queue.all)}
    parts = queue.take(budget)
    run(parts)
    finished = queue.settle(parts)
    return [(numbers[id(part.ticket)], part.tokens) for part in parts], [numbers[id(each)] for each in finished]


class NumberedQueue(Queue):
    """A queue that remembers every request."""

    def __init__(self, *tickets):
        super().__init__()
        self.all = []
        for each in tickets:
            self.add(each)

    def add(self, each):
        self.all.append(each)
        super().add(each)


def test_the_fewest_tokens_go_first_and_equal_ones_in_order_of_arrival():
    queue = NumberedQueue(ticket([8], [8]), ticket([4]), ticket([4]), ticket([2]))
    assert taken(queue, 8) == ([(3, 2), (1, 4)], [3, 1])
    assert taken(queue, 8) == ([(2, 4)], [2])
    assert taken(queue, 8) == ([(0, 8)], [])
    assert taken(queue, 8) == ([(0, 8)], [0])
    assert len(queue) == 0


def test_what_has_room_beside_the_small_ones_shares_the_pass():
    queue = NumberedQueue(ticket([8, 8, 8]), ticket([3], [3]))
    assert taken(queue, 16) == ([(1, 3), (1, 3), (0, 8)], [1])
    assert taken(queue, 16) == ([(0, 16)], [0])


def test_a_sequence_longer_than_the_budget_is_a_pass_of_its_own():
    queue = NumberedQueue(ticket([50]), ticket([40]))
    assert taken(queue, 8) == ([(1, 40)], [1])
    assert taken(queue, 8) == ([(0, 50)], [0])


def test_no_flood_of_small_requests_starves_a_large_one():
    """In every pass there are enough small ones to fill it."""
    large = ticket([8] * 40)
    queue, total, passes = NumberedQueue(large), 0, 0
    while large.unfinished:
        while queue.tokens - large.left < 32:
            queue.add(ticket([2]))
        parts, _ = taken(queue, 16)
        total += sum(tokens for _, tokens in parts)
        passes += 1
        assert passes < 1000
    assert total <= 320 / OLDEST_SHARE + 64
    assert total >= 320 / OLDEST_SHARE - 64, "and no more than its share"


def test_one_small_request_does_not_wait_for_the_share_of_a_large_one():
    large = ticket([8] * 40)
    queue = NumberedQueue(large)
    for _ in range(20):
        queue.add(ticket([2]))
        assert taken(queue, 8)[0][0][1] == 2
        assert taken(queue, 8)[0] == [(0, 8)]


def test_far_larger_requests_are_not_ahead():
    queue = queue_of(ticket([100]), ticket([8]), ticket([9]))
    assert queue.ahead(2) == 8
    assert queue.ahead(3) == 17
    assert queue.ahead(24) == 17
    assert queue.ahead(25) == 117


def test_outputs_that_wait_for_others_are_bounded(monkeypatch):
    """Two requests could be spread over passes; the second must wait until the first holds nothing."""
    monkeypatch.setattr(queue_module, "MOST_NUMBERS", 100)
    queue = NumberedQueue(ticket([8] * 4, numbers=80), ticket([8] * 3, numbers=80), ticket([2], numbers=80))
    assert taken(queue, 8) == ([(2, 2)], [2]), "one that is whole holds nothing"
    assert taken(queue, 8) == ([(1, 8)], [])
    queue.add(ticket([8] * 2, numbers=80))
    assert taken(queue, 8) == ([(1, 8)], []), "and not the third, although it is smaller"
    assert taken(queue, 8) == ([(1, 8)], [1])
    assert taken(queue, 8) == ([(3, 8)], [])
    assert taken(queue, 8) == ([(3, 8)], [3])


def test_the_outputs_of_one_pass_are_bounded(monkeypatch):
    monkeypatch.setattr(queue_module, "MOST_NUMBERS", 100)
    queue = NumberedQueue(*(ticket([2], numbers=40) for _ in range(5)), ticket([3], numbers=1000))
    assert taken(queue, 64)[1] == [0, 1]
    assert taken(queue, 64)[1] == [2, 3]
    assert taken(queue, 64)[1] == [4]
    assert taken(queue, 64)[1] == [5]


def test_a_request_that_nobody_waits_for_is_dropped():
    gone = [False]
    waits, given_up, cancelled, left = ticket([1]), ticket([1]), ticket([1]), ticket([1])
    left.client_is_gone = lambda: gone[0]
    queue = queue_of(waits, given_up, cancelled, left)
    assert queue.drop() == []
    given_up.given_up = gone[0] = True
    cancelled.promise.cancel()
    assert queue.drop() == [given_up, cancelled, left]
    assert [part.ticket for part in queue.take(10)] == [waits]


def test_a_long_sequence_gets_room_in_a_pass_that_short_ones_keep_joining():
    """It is the oldest request: once it has earned its tokens, none joins before it."""
    long, budget, running, steps = ticket([50]), 64, [], 0
    queue = queue_of(ticket([8]), long)
    while steps < 100:
        steps += 1
        for _ in range(10):
            queue.add(ticket([8]))
        room = budget - sum(part.tokens for part in running)
        parts = queue.take(room, at_least_one=not running)
        if any(part.ticket is long for part in parts):
            break
        running += parts
        done, running = running[:3], running[3:]  # these stop early
        run(done)
        queue.settle(done)
    assert 5 < steps < 40


SEQUENCES = st.lists(st.integers(1, 20), max_size=5)
NUMBERS = st.sampled_from([1, 40, 200])


@given(
    requests=st.lists(
        st.tuples(st.lists(st.tuples(SEQUENCES, st.lists(SEQUENCES, max_size=2)), min_size=1, max_size=4), NUMBERS),
        min_size=1,
        max_size=8,
    ),
    budget=st.integers(1, 40),
    together=st.integers(1, 4),
)
@patch.object(queue_module, "MOST_NUMBERS", 100)
def test_every_sequence_runs_once_and_every_request_ends(requests, budget, together):
    """Also where a job asks for more sequences once it has the first."""
    waiting = []
    for jobs, numbers in requests:
        made = ticket(*(lengths for lengths, _ in jobs), numbers=numbers)
        for job, (_, later) in zip(made.jobs, jobs, strict=True):
            job.arguments["later"] = [list(step) for step in later]
            made.left += sum(map(sum, later))
        made.tokens = made.left
        waiting.append(made)
    tokens, queue, ran, finished = sum(each.tokens for each in waiting), Queue(), 0, []
    while waiting or len(queue):
        for _ in range(together):
            if waiting:
                queue.add(waiting.pop())
        parts = queue.take(budget)
        assert parts
        assert sum(part.tokens for part in parts) <= budget or sum(part.count for part in parts) == 1
        ran += sum(part.tokens for part in parts)
        run(parts)
        finished += queue.settle(parts)
    assert ran == tokens
    assert len(finished) == len(requests)
    assert all(each.left == 0 and each.split is None for each in finished)
