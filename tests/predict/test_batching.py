from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.predict.batching import plan_batches, plan_packed

lengths = st.lists(st.integers(1, 60), max_size=40)


@settings(deadline=None)
@given(lengths, st.integers(1, 200))
def test_packed_batches_keep_the_budget_and_lose_nothing(lengths, max_tokens):
    batches = plan_packed(lengths, max_tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= max_tokens
    # Nothing was cut too early: each batch is full, or the next sequence would not have fitted.
    for batch, after in itertools.pairwise(batches):
        assert sum(lengths[i] for i in batch) + lengths[after[0]] > max_tokens


@settings(deadline=None)
@given(lengths, st.integers(1, 200), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_padded_batches_keep_the_budget_and_lose_nothing(lengths, max_tokens, max_padding):
    batches = plan_batches(lengths, max_tokens, max_padding, max_sequences=8)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        sizes = [lengths[i] for i in batch]
        cells = max(sizes) * len(sizes)
        assert len(sizes) <= 8
        assert len(sizes) == 1 or cells <= max_tokens
        assert cells - sum(sizes) <= max_padding * cells
