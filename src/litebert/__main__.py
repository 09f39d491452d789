"""`python -m litebert`, and so `torchrun --nproc-per-node 8 -m litebert pretrain ...`."""

from litebert.cli import main

main()
