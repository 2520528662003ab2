"""Documentation of the action upload; the work is done in plugins/action/upload.py."""

DOCUMENTATION = r"""
module: upload
short_description: Send one large file to a host, in pieces, and go on where an interrupted transfer ended
description:
  - Sends the file through the connection straight to its place; a partial file O(dest).part is continued.
  - A file of the same size at O(dest) is taken for the same file, so put something unique into its name.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Reports whether it would send.
    support: full
options:
  src:
    description: File on the controller.
    type: path
    required: true
  dest:
    description: Full path on the host; its folder must exist. Mode 0600.
    type: path
    required: true
  what:
    description: What the progress is called.
    type: str
    default: upload
"""

EXAMPLES = r"""
- name: Send the archive
  headfirst.serving.upload:
    src: /srv/engine.tar
    dest: /var/lib/headfirst/images/engine.tar
"""

RETURN = r"""
size:
  description: Bytes of the file.
  type: int
  returned: always
sent:
  description: Bytes that were sent this time.
  type: int
  returned: always
"""
