"""Fixture: errors of Python's docker SDK."""


class DockerException(Exception):
    """As in the SDK."""


class APIError(DockerException):
    """As in the SDK."""


class NotFound(APIError):
    """As in the SDK."""


class ImageNotFound(NotFound):
    """As in the SDK."""
