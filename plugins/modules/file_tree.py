#!/usr/bin/python
"""A folder with exactly these files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: file_tree
short_description: Keep a folder with exactly these files
description:
  - Writes the files that differ, each in one step, and removes every other file below the folder.
options:
  path:
    description: The folder, made where it is missing.
    type: path
    required: true
  files:
    description: Content by path relative to the folder.
    type: dict
    required: true
  mode:
    description: Permissions of the files; folders have those that let the same users in.
    type: str
    default: "0644"
  owner:
    description: User ID that owns folders and files.
    type: int
    default: 0
attributes:
  check_mode: {support: full, description: Reports what would change.}
  diff_mode: {support: none, description: No differences.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Write the targets
  headfirst.serving.file_tree:
    path: /etc/headfirst/prometheus/targets
    files:
      node.json: "[]"
"""

RETURN = r"""
written: {description: Files that were written., type: list, elements: str, returned: always}
removed: {description: Files that were removed., type: list, elements: str, returned: always}
"""

import os
import tempfile
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


class Tree:
    """A folder whose files are `files`."""

    def __init__(self, folder: Path, files: t.Mapping[str, str], mode: int, owner: int) -> None:
        self._folder, self._mode, self._owner = folder, mode, owner
        self._files = {folder / name: text.encode() for name, text in files.items()}

    def differing(self) -> t.List[Path]:
        """Files to write: missing, with other content, another mode or owner."""
        return [path for path in self._files if not self._is_right(path)]

    def surplus(self) -> t.List[Path]:
        """Files to remove."""
        found = [path for path in self._folder.rglob("*") if path.is_symlink() or not path.is_dir()]
        return sorted(path for path in found if path not in self._files)

    def make_folders(self) -> None:
        """Make the folder and those in it; who may read a file may enter them."""
        wanted = {parent for path in self._files for parent in path.parents if self._folder in parent.parents}
        for folder in [self._folder, *sorted(wanted)]:
            folder.mkdir(parents=True, exist_ok=True)
            os.chmod(str(folder), self._mode | (self._mode & 0o444) >> 2)
            os.chown(str(folder), self._owner, -1)

    def write(self, path: Path) -> None:
        """Replace one file."""
        handle, name = tempfile.mkstemp(dir=str(path.parent), prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(self._files[path])
        os.chmod(name, self._mode)
        os.chown(name, self._owner, -1)
        os.replace(name, path)

    def _is_right(self, path: Path) -> bool:
        if path.is_symlink() or not path.is_file():
            return False
        found = path.stat()
        return (found.st_mode & 0o7777, found.st_uid, path.read_bytes()) == (
            self._mode,
            self._owner,
            self._files[path],
        )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "owner": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    params = module.params
    bad = [name for name in params["files"] if os.path.isabs(name) or ".." in name.split("/")]
    if bad:
        module.fail_json(msg="{} does not stay inside {}.".format(bad[0], params["path"]))
    tree = Tree(Path(params["path"]), params["files"], int(params["mode"], 8), params["owner"])
    written, removed = tree.differing(), tree.surplus()
    missing = not os.path.isdir(params["path"])
    if not module.check_mode:
        tree.make_folders()
        for path in written:
            tree.write(path)
        for path in removed:
            path.unlink()
    module.exit_json(
        changed=bool(written or removed or missing),
        written=[str(path) for path in written],
        removed=[str(path) for path in removed],
    )


if __name__ == "__main__":
    main()
