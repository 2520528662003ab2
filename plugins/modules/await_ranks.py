#!/usr/bin/python
"""Documentation of the action plugin of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: await_ranks
short_description: Wait until a distributed engine serves
description:
  - Watches the container of one rank on every host at the same time. Done when rank 0 answers both requests
    of O(readiness). No request is sent to the other ranks.
  - Fails on all hosts within seconds once any rank dies, with the rank, its host, the log lines that
    decide and a next step. Fails as well when the time is up, with what each rank was doing last.
  - Runs on the controller; needs as many forks as there are ranks.
options:
  name:
    description: Name of the rank's container on this host.
    type: str
    required: true
  rank:
    description: This host's rank; rank 0 serves the API.
    type: int
    required: true
  hosts:
    description: All hosts whose ranks belong together.
    type: list
    elements: str
    required: true
  start_error:
    description: Why this host's container could not be started; that ends the wait on all hosts.
    type: str
    default: ""
  url:
    description: Address of the API as rank 0's own host reaches it, without a trailing slash.
    type: str
    required: true
  model:
    description: Served name of the model; it is added to the body of the probe.
    type: str
    required: true
  readiness:
    description: The requests to rank 0.
    type: dict
    required: true
    suboptions:
      path: {description: Path that answers 200 when the engine serves., type: str, required: true}
      probe_path: {description: Path of the POST request., type: str, required: true}
      probe_body: {description: JSON that is sent there., type: dict, required: true}
      answer:
        description: >-
          Keys and indices of something in the JSON of the answer. Null, 0 and what is empty do not count; a
          score of 0.0 does.
        type: list
        elements: str
        required: true
  engine_log:
    description: >-
      What the engine's log reports beside the rules that hold for every engine, as the keys of a log profile
      (plugin_utils/engine_log_rules.py).
    type: dict
    default: {}
  api_key:
    description: The API's key. It is redacted in every log line.
    type: str
  timeout:
    description: The longest wait, in seconds.
    type: int
    default: 3600
attributes:
  check_mode: {support: full, description: Waits for nothing.}
  diff_mode: {support: none, description: Changes nothing.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Wait until the ranks serve
  headfirst.serving.await_ranks:
    name: headfirst-engine
    rank: "{{ engine_rank }}"
    hosts: "{{ ansible_play_hosts_all }}"
    url: "{{ engine_url }}"
    model: demo
    readiness:
      path: /health
      probe_path: /v1/chat/completions
      probe_body: {messages: [{role: user, content: Hello}], max_tokens: 1}
      answer: [usage, completion_tokens]
"""

RETURN = r"""
answer: {description: On rank 0 the text that a chat probe was answered., type: str, returned: success}
failure:
  description: The rank that decides, with C(host), C(rank), C(reason), C(lines) and C(hint).
  type: dict
  returned: failure
ranks: {description: Every host with what became of its rank., type: dict, returned: failure}
"""
