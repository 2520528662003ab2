"""Filters about images on the controller."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.module_utils.image_archive import ArchiveError, describe
from ansible_collections.headfirst.serving.plugins.plugin_utils import registry_logins


def image_archive(path: str, name: str) -> dict[str, Any]:
    """Return what the archive made by docker save holds; see module_utils/image_archive.py."""
    try:
        return describe(path, name)
    except ArchiveError as error:
        raise AnsibleFilterError(str(error)) from error


def folder_sha256(folder: str) -> str:
    """SHA-256 over the names, modes and contents of all files of a folder, in hex."""
    root = Path(folder)
    if not root.is_dir():
        raise AnsibleFilterError(f"There is no folder {folder}.")
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def registry_login(path: str, image: str) -> dict[str, str]:
    """Return the environment with which image_job.py pulls the image; empty without a login for it."""
    if not path:
        return {}
    try:
        logins = registry_logins.logins(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise AnsibleFilterError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AnsibleFilterError(f"{path}: {error}") from None
    login = registry_logins.of_image(logins, image)
    return {"HEADFIRST_REGISTRY_LOGIN": json.dumps(login)} if login else {}


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {
            "image_archive": image_archive,
            "folder_sha256": folder_sha256,
            "registry_login": registry_login,
        }
