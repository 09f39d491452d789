"""Token stores in; a model that fills masks and knows the order of sentences out.

recipes             every choice between a document and a masked example
examples, chapters  documents -> pairs of segments -> rows of a fixed number of tokens
masking, batches    rows -> masked arrays, as a pure function of (seed, step); `stream` makes them ahead
config, data        the config of a run, its tokenizer and stores
run, objective      the learner that `train` runs: model, losses, stages
evaluate            held-out scores, filled masks, and the model card that shows both
plan, dry_run       what a run will cost, before it starts
show, minimal_pairs readable examples; BLiMP-style evaluation
"""
