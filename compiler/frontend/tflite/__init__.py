"""TensorFlow Lite files: ``schema.py`` reads one, ``operators.py`` names what each operator becomes, ``model.py`` makes
the ONNX model."""
