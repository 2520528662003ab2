"""Module: is this very image in the node's engine already?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: Report whether the expected image is in the node's Docker Engine
description:
  - Compares the image of a name with what is expected of it, and changes nothing.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Changes nothing, so check mode is the same; a node without an engine has no image.
    support: full
options:
  name:
    description: Name of the image with its tag, its digest, or both.
    type: str
    required: true
  image_id:
    description: Expected ID, like V(sha256:…). Empty expects none.
    type: str
    default: ""
  archive:
    description: Expected content, as the filter image_archive describes it. Empty expects none.
    type: dict
    default: {}
  tarball:
    description: Archive on the node that the image is expected to be loaded from. Empty expects none.
    type: str
    default: ""
  labels:
    description: Expected labels.
    type: dict
    default: {}
  programs:
    description:
      - Programs that the image must have in its PATH. A container without network searches for them, where
        the image is the expected one.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Find the image
  headfirst.serving.image_info:
    name: lmsysorg/sglang:v0.5.19-cu129
"""

RETURN = r"""
image:
  description:
    - Keys present (bool), id ("" when there is none), reason (why it is not present), missing (the
      programs that it lacks) and, of an image that is there, bytes.
  type: dict
  returned: always
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import image_archive
from ansible_collections.headfirst.serving.plugins.module_utils.docker_client import (
    DockerException,
    NotFound,
    connect,
)

if t.TYPE_CHECKING:
    import docker


def look(client: docker.DockerClient, params: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    """The module's answer for an engine that answers."""
    try:
        attributes = client.images.get(without_tag(params["name"])).attrs
    except NotFound:
        return {"present": False, "id": "", "reason": "it is not there", "missing": []}
    reason = mismatch(attributes, params)
    lacking = [] if reason else missing(client, attributes["Id"], params["programs"])
    return {
        "present": not reason,
        "id": attributes["Id"],
        "reason": reason,
        "missing": lacking,
        "bytes": attributes["Size"],
    }


_SEARCH = 'for program; do command -v "$program" >/dev/null && echo "$program"; done; :'


def missing(client: docker.DockerClient, image_id: str, programs: t.Sequence[str]) -> t.List[str]:
    """Those of `programs` that a shell does not find in the image; all where it has no shell."""
    if not programs:
        return []
    command = ["-c", _SEARCH, "search", *programs]
    try:
        printed = client.containers.run(
            image_id, command, entrypoint="sh", network_mode="none", remove=True, stderr=False
        )
    except DockerException:
        return list(programs)
    names = printed.decode("utf-8", "replace").split()
    return [program for program in programs if program not in names]


def without_tag(name: str) -> str:
    """A name with tag and digest loses the tag: the digest is more exact."""
    repository, at, digest = name.partition("@")
    if at and ":" in repository.rsplit("/", 1)[-1]:
        repository = repository.rsplit(":", 1)[0]
    return repository + at + digest


def mismatch(attributes: t.Dict[str, t.Any], params: t.Dict[str, t.Any]) -> str:
    """Why the image (as inspected) is not the expected one; empty when it is."""
    image_id, expected = attributes["Id"], params["image_id"]
    if expected and image_id != expected:
        return f"its ID is {image_id}, not {expected}"
    archive = params["archive"]
    if params["tarball"]:
        archive = image_archive.describe(params["tarball"], params["name"])
    # An engine that converts an old archive for containerd's store gives an ID of its own.
    content = (attributes["RootFS"].get("Layers", []), attributes["Created"])
    if archive and image_id not in archive["ids"] and content != (archive["layers"], archive["created"]):
        return f"its ID is {image_id}, the archive holds {archive['ids'][0]}"
    labels = attributes["Config"].get("Labels") or {}
    for key, value in params["labels"].items():
        if labels.get(key) != value:
            return f"its label {key} is {labels.get(key, 'not set')}, not {value}"
    return ""


def main() -> None:
    """Read the state and exit."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "image_id": {"type": "str", "default": ""},
            "archive": {"type": "dict", "default": {}},
            "tarball": {"type": "str", "default": ""},
            "labels": {"type": "dict", "default": {}},
            "programs": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    client = connect(module)
    if client is None:
        nothing = {"present": False, "id": "", "reason": "there is no engine", "missing": []}
        module.exit_json(changed=False, image=nothing)
    try:
        module.exit_json(changed=False, image=look(client, module.params))
    except image_archive.ArchiveError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
