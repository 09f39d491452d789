"""Models as files for other runtimes, compared with torch before they are kept.

graph, model_graph    ONNX nodes, and a model built of them; quantize: 8-bit weights and products
check                 the same inputs through torch and through the file; folder: what an export adds to a model folder
onnx_file, torch_package, web    what is written: for ONNX Runtime, torch.export, the browser
"""
