"""Token ids in, hidden states and logits out; model folders in and out.

config              the shape of a model, and which layer uses which block
encoder, heads      the network, as the paper describes it
hub                 model folders in the Hub's layout; `names` maps tensor names
google              TensorFlow checkpoints, read by tf_checkpoint and tf_index without TensorFlow
convert             any checkpoint -> a model folder; the same weights compared with transformers
adapter, count      LoRA adapters; parameters, FLOPs and memory as formulas
fast                the encoder's layers on a GPU, tested against `encoder`
"""
