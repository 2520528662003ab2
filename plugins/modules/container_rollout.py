#!/usr/bin/python
"""Documentation of the action plugin of the same name, which runs modules on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_rollout
short_description: Replace a container, and return to the one that served where the new one fails
description:
  - Creates the container of O(spec) as C(NAME.GENERATION) beside the one that serves, so that what can be
    refused is refused while the latter still serves. Then stops the latter, gives O(name) to the new one,
    starts it, and waits until it serves. A container that serves as O(spec) defines is left alone.
  - Where the new container does not serve, or a proof fails, the one that served before is started again, and
    the task fails with the reason, the last log lines, and what serves now.
  - The container that served before stays, stopped. Older ones are removed with their images.
  - Runs M(headfirst.serving.container), M(headfirst.serving.container_generations) and
    M(headfirst.serving.container_watch) on the host. The next run completes one that was interrupted.
options:
  name: {description: Name of the container that serves., type: str, required: true}
  title: {description: "What messages call it, V(The router).", type: str, required: true}
  spec:
    description: What the container is, as for M(headfirst.serving.container).
    type: dict
    required: true
  fingerprint:
    description: Its fingerprint, from M(headfirst.serving.container) with C(state=created) in check mode.
    type: str
    required: true
  url: {description: Address of the service as the host reaches it., type: str, required: true}
  path: {description: Path under O(url) that answers 200 when it serves., type: str, default: /health}
  ready_timeout: {description: Seconds of the longest wait for that., type: int, required: true}
  stop_timeout: {description: Seconds between SIGTERM and SIGKILL., type: int, default: 30}
  proofs:
    description: Modules that must succeed on the host when the container answers, also one that ran before.
    type: list
    elements: dict
    default: []
    suboptions:
      module:
        description: The module.
        type: str
        required: true
        choices: [ansible.builtin.uri, headfirst.serving.webui_check]
      args: {description: Its arguments., type: dict, required: true}
  backup:
    description:
      - Arguments of M(headfirst.serving.webui_backup). The data is backed up when the container that serves
        has stopped, and restored before it is started again. Without them the data is left alone.
    type: dict
    default: {}
attributes:
  check_mode: {support: full, description: Reports what would change; waits for nothing.}
  diff_mode: {support: none, description: The task that compares shows the difference.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Compare the container
  headfirst.serving.container:
    name: headfirst-page
    state: created
    spec: {image: "nginx:1.27", network_mode: host}
  check_mode: true
  register: compared

- name: Run the page
  headfirst.serving.container_rollout:
    name: headfirst-page
    title: The page
    spec: {image: "nginx:1.27", network_mode: host}
    fingerprint: "{{ compared.fingerprint }}"
    url: http://127.0.0.1
    path: /
    ready_timeout: 60
"""

RETURN = r"""
generation: {description: The generation that serves., type: str, returned: success}
"""
