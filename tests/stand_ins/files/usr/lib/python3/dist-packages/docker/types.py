"""Fixture: types of Python's docker SDK."""


class Ulimit(dict):
    """As in the SDK."""


class DeviceRequest(dict):
    """As in the SDK."""


class LogConfig(dict):
    """As in the SDK."""
