"""litebert: ALBERT (A Lite BERT), whole and exact, in PyTorch."""

__version__ = "0.1.0"
