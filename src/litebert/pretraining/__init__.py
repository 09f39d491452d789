"""Pretraining: token stores -> batches -> losses -> a run and its model."""
