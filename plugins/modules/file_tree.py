#!/usr/bin/python
"""A folder with exactly these files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: file_tree
short_description: Keep a folder with exactly these files
description:
  - Writes the files that differ, each in one step, and removes every other file below the folder.
  - Folders and files belong to the user of the module. Symbolic links inside are removed and never followed.
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
  group:
    description: Group ID of folders and files.
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

import contextlib
import os
import secrets
import stat
import typing as t

from ansible.module_utils.basic import AnsibleModule

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class Tree:
    """A folder whose files are `files`, contents by relative path.

    Every name is resolved below an open folder, since a container that writes there could insert a link.
    """

    def __init__(
        self, folder: str, files: t.Mapping[str, str], mode: int, group: int, check: bool = False
    ) -> None:
        self._folder, self._mode, self._group, self._check = folder, mode, group, check
        self._files = {tuple(name.split("/")): text.encode() for name, text in files.items()}
        self.written: t.List[str] = []
        self.removed: t.List[str] = []
        self.missing = not os.path.isdir(folder)

    def apply(self) -> None:
        """Make it so, or with `check` find out what would change."""
        if self.missing and self._check:
            self.written = ["/".join((self._folder, *name)) for name in self._files]
            return
        os.makedirs(self._folder, exist_ok=True)
        with _closing(os.open(self._folder, _FOLDER)) as folder:
            self._set_access(folder)
            self._fill(folder, ())

    def _fill(self, folder: int, above: t.Tuple[str, ...]) -> None:
        depth = len(above)
        here = [name for name in self._files if name[:depth] == above]
        folders = {name[depth] for name in here if len(name) > depth + 1}
        files = {name[depth]: self._files[name] for name in here if len(name) == depth + 1}
        for name in sorted(os.listdir(folder)):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                folders.add(name)
            elif name not in files:
                self.removed.append("/".join((self._folder, *above, name)))
                if not self._check:
                    os.unlink(name, dir_fd=folder)
        for name, content in sorted(files.items()):
            if not self._is_right(folder, name, content):
                self.written.append("/".join((self._folder, *above, name)))
                if not self._check:
                    self._write(folder, name, content)
        for name in sorted(folders):
            try:
                if not self._check:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=folder)
                descriptor = os.open(name, _FOLDER, dir_fd=folder)
            except (FileNotFoundError, NotADirectoryError):
                if not self._check:
                    raise
                new = [path for path in here if path[depth] == name]
                self.written += ["/".join((self._folder, *path)) for path in new]
                continue
            with _closing(descriptor):
                self._set_access(descriptor)
                self._fill(descriptor, (*above, name))

    def _set_access(self, folder: int) -> None:
        """Who may read a file may enter its folder; from then on nobody else writes there."""
        if not self._check:
            os.fchown(folder, os.geteuid(), self._group)
            os.fchmod(folder, self._mode | (self._mode & 0o444) >> 2)

    def _write(self, folder: int, name: str, content: bytes) -> None:
        part = ".new-" + secrets.token_hex(8)
        with os.fdopen(os.open(part, _NEW, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            os.fchown(file.fileno(), os.geteuid(), self._group)
            os.fchmod(file.fileno(), self._mode)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _is_right(self, folder: int, name: str, content: bytes) -> bool:
        try:
            descriptor = os.open(name, _READ, dir_fd=folder)
        except OSError:  # missing, or a link
            return False
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            return (
                stat.S_ISREG(status.st_mode)
                and (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
                == (self._mode, os.geteuid(), self._group)
                and file.read() == content
            )


@contextlib.contextmanager
def _closing(descriptor: int) -> t.Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "group": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    params = module.params
    bad = [name for name in params["files"] if {"", ".", ".."} & set(name.split("/"))]
    if bad:
        module.fail_json(msg="{} does not stay inside {}.".format(bad[0], params["path"]))
    tree = Tree(
        params["path"], params["files"], int(params["mode"], 8), params["group"], check=module.check_mode
    )
    tree.apply()
    module.exit_json(
        changed=bool(tree.written or tree.removed or tree.missing), written=tree.written, removed=tree.removed
    )


if __name__ == "__main__":
    main()
