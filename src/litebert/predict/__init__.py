"""Raw text in, plain answers out.

predictor            one object with a method per ability; load: from a name to its model or export, tokenizer and task
abilities            the list of what a Predictor can do; ability: how one is declared, for Python, CLI and HTTP alike
texts, masks, order, tags, questions, similarity    the abilities
job                  texts as requests; a call in progress: its requests, the passes they share, its result
runtime              what runs requests: torch_runtime (fused, graphs; adapters), onnx_runtime, remote (another process)
exits, lanes         when a text has been read enough; texts at different depths in one batch
files, show          the command line: texts from files, results on a terminal
"""
