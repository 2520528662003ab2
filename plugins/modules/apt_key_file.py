#!/usr/bin/python
"""Module: an apt repository's key on a node, accepted by its fingerprint alone. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_key_file
short_description: Fetch the signing key of an apt repository and accept it by its fingerprint
description:
  - Fetches a file of OpenPGP keys, takes the primary key that has the fingerprint with its user IDs,
    subkeys and signatures, and writes a file of this key alone for C(Signed-By). Other keys and other
    content of the fetched file do not reach apt.
  - Proxies are those of the environment, and of lines NAME=VALUE of the file C(HEADFIRST_ENVIRONMENT_FILE).
  - Needs no gpg. A file that this module has written for the fingerprint is kept, and nothing is fetched.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Fetches nothing and reports what it would do.
    support: full
options:
  url:
    description: Where the key is; http, https or file.
    type: str
    required: true
  fingerprint:
    description: Fingerprint of the primary key, 40 hexadecimal digits; spaces do not matter.
    type: str
    required: true
  dest:
    description: The file to write. It is armoured when it ends in C(.asc) and binary when it ends in C(.gpg).
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Fetch the key of NVIDIA's CUDA repository
  headfirst.serving.apt_key_file:
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprint: EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC
    dest: /etc/apt/keyrings/cuda.asc
"""

RETURN = r"""
dest:
  description: The file with the key.
  type: str
  returned: success
"""

import os
import shlex
import tempfile
import typing as t
import urllib.error

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from ansible_collections.headfirst.serving.plugins.module_utils.openpgp import armoured, public_keys

LIMIT = 1 << 20
TIMEOUT_S = 30
FORMS: t.Dict[str, t.Callable[[bytes], bytes]] = {".asc": armoured, ".gpg": bytes}


def primary_keys(data: bytes) -> t.Dict[str, bytes]:
    """Packets of each primary key by fingerprint; empty for what holds none."""
    try:
        return public_keys(data)
    except ValueError:
        return {}


def is_ours(data: bytes, fingerprint: str, write: t.Callable[[bytes], bytes]) -> bool:
    """Whether a file holds the key alone, and exactly as this module writes it."""
    key = primary_keys(data).get(fingerprint)
    return key is not None and write(key) == data


def read_environment_file() -> None:
    """Set the variables of the file that the environment names."""
    text = HostSource().read(os.environ.get("HEADFIRST_ENVIRONMENT_FILE", ""))
    os.environ.update(word.split("=", 1) for word in shlex.split(text))


def main() -> None:
    """Fetch, take the key, write and exit."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "fingerprint": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    url, dest = module.params["url"], module.params["dest"]
    fingerprint = module.params["fingerprint"].replace(" ", "").upper()
    write = FORMS.get(os.path.splitext(dest)[1])
    if write is None:
        module.fail_json(msg=f"dest is {dest}; apt reads keys from files that end in .asc or .gpg.")
    changed = not is_ours(HostSource().read_bytes(dest), fingerprint, write)
    if changed and not module.check_mode:
        read_environment_file()
        try:
            data = open_url(url, timeout=TIMEOUT_S).read(LIMIT)
        except (urllib.error.URLError, OSError) as error:
            module.fail_json(msg=f"{url} cannot be fetched: {error}.")
        keys = primary_keys(data)
        if fingerprint not in keys:
            module.fail_json(
                msg=f"{url} holds {', '.join(keys) or 'no OpenPGP key'}, not the key {fingerprint}. "
                "Nothing was installed. If the repository's owner announced a new key, give its fingerprint."
            )
        os.makedirs(os.path.dirname(dest), mode=0o755, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=module.tmpdir, delete=False) as file:
            file.write(write(keys[fingerprint]))
        os.chmod(file.name, 0o644)
        module.atomic_move(file.name, dest)
    module.exit_json(changed=changed, dest=dest)


if __name__ == "__main__":
    main()
