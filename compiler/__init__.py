"""The compiler: from an ONNX or TFLite file to a program of the machine. Begin with ``pipeline.py``."""
