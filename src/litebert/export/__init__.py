"""Models as files for other runtimes: ONNX (fp32 and int8) and torch.export packages."""
