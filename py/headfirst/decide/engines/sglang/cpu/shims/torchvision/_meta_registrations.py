"""Empty on purpose. PyPI's torchvision is a CUDA build, whose operators do not load beside a CPU torch.

The original registers shapes for those operators and fails with "operator torchvision::nms does not exist".
SGLang needs torchvision.transforms only, which is plain Python.
"""
