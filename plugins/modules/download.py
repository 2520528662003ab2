"""Documentation of the action download; the work is done in plugins/action/download.py."""

DOCUMENTATION = r"""
module: download
short_description: Bring one large file from a host, in pieces, within a size and the free disk
description:
  - The host states the size first. More than O(max_bytes), or than this machine's disk has room for beside
    1 GiB, is refused; and so is a host that then sends more or less.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Reports what it would bring.
    support: full
options:
  src:
    description: File on the host.
    type: path
    required: true
  dest:
    description: Full path on the controller, which must not exist; its folder must.
    type: path
    required: true
  max_bytes:
    description: The most bytes that the file may have.
    type: int
    required: true
  what:
    description: What the progress is called.
    type: str
    default: download
"""

EXAMPLES = r"""
- name: Bring the archive
  headfirst.serving.download:
    src: /var/lib/headfirst/images/engine.tar
    dest: /srv/engine.tar
    max_bytes: 40000000000
"""

RETURN = r"""
size:
  description: Bytes of the file.
  type: int
  returned: always
"""
