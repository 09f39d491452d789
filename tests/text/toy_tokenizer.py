"""A tokenizer simple enough to check by eye; in a separate module, so that worker processes can import it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import zlib

import numpy as np


class WordTokenizer:
    """One id per word, from a checksum; a word of only '~' has no tokens."""

    vocab_size = 1000
    fingerprint = "f" * 64

    def encode_batch(self, texts):
        return [np.array([word_id(word) for word in text.split() if word.strip("~")], np.int32) for text in texts]


class DyingTokenizer(WordTokenizer):
    """Takes its worker process down, as the system's out-of-memory killer would; in the main process it is harmless."""

    def encode_batch(self, texts):
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_batch(texts)


class UninterruptedTokenizer(WordTokenizer):
    """Refuses to work where Ctrl-C could end its process in the middle of an import."""

    def encode_batch(self, texts):
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return super().encode_batch(texts)


class OneTokenizer(WordTokenizer):
    """One token for any sentence: as fast as it gets."""

    fingerprint = "1" * 64

    def encode_batch(self, texts):
        return [np.ones(1, np.int32) for _ in texts]


def word_id(word):
    return zlib.crc32(word.encode()) % 1000
