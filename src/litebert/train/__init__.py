"""What every training run stands on: optimisers, schedules, checkpoints, devices, and the log."""
