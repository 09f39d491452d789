"""The one training loop: a `Learner` (model, batches, loss, evaluation) in, a run folder with checkpoints out.

config, learner    the settings of a run, and what differs between runs
trainer            the loop: step, guard, report, evaluate, checkpoint, resume, roll back, stop
graphs             gradients of a micro-batch, recorded once and replayed from a CUDA graph
optimizer, schedule, guard    the update, its learning rate, and whether to take it at all
checkpoint, folder, log       what the run folder holds
device, processes             the hardware of one process, and several processes as one run
"""
