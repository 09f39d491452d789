"""Fine-tuning: a model and labelled data -> a scored model folder.

config (what to train) -> data (examples as sequences of tokens) -> batches -> model (loss, outputs) -> run (the learner
of `train.trainer`) -> results (predictions, scores), card. study repeats a run over seeds and
learning rates, evaluate scores saved models, head_only fits a head without training, baselines adds simple methods,
contrast has the losses over whole batches of similarity and few labels.
"""
