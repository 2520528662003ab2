"""Documentation of the action plugin of the same name, which runs modules on the hosts."""

DOCUMENTATION = r"""
module: rollout
short_description: Change a service to another generation, and return to the one that served where it fails
description:
  - Creates the container of O(spec) as C(NAME.GENERATION) beside the one that serves, so that what can be
    refused is refused while the latter still serves. Then stops the latter, gives O(name) to the new one,
    starts it, and waits until it serves. A container that serves as O(spec) defines is left alone.
  - With O(ranks) the hosts of the play do each step together; rank 0 stops and starts first. It fails on
    all hosts within seconds once any rank dies, with the rank, its host, the log lines that decide and a next
    step. Ansible must run as many hosts at a time as there are ranks.
  - Where the new generation does not serve, or a proof fails, the one that served before is started again, or
    what ran in its place, and the task fails with the reason, the last log lines, and what serves now.
  - The generation that served before stays, stopped. Older ones are removed with their images.
  - Runs M(headfirst.serving.container), M(headfirst.serving.container_generations) and
    M(headfirst.serving.container_watch) on the host. The next run completes one that was interrupted.
options:
  name: {description: Name of the container that serves., type: str, required: true}
  state:
    description:
      - V(serving) does all steps.
      - V(prepared) does those before the first stop, and returns what the others will interrupt. Where
        nothing is to stop it does all of them.
      - V(absent) stops and removes all generations, rank 0 first.
    type: str
    choices: [prepared, serving, absent]
    default: serving
  rank: {description: "This host's rank; rank 0 serves the API.", type: int, default: 0}
  ranks:
    description: Number of ranks, one on each host of the play. V(0), the service is on this host alone.
    type: int
    default: 0
  title: {description: "What messages call a service of one host, V(The router).", type: str, default: ""}
  spec:
    description: What the container is, as for M(headfirst.serving.container).
    type: dict
    default: {}
  compile_cache:
    description: As for M(headfirst.serving.container), for a new container.
    type: dict
    default: {}
  fingerprint:
    description: Its fingerprint, from M(headfirst.serving.container) with C(state=created) in check mode.
    type: str
    default: ""
  record:
    description:
      - The generation's record, as for M(headfirst.serving.container_generations). Its C(url) and
        C(readiness) decide whether the service serves.
    type: dict
    default: {}
  path:
    description: Path under the C(url) of O(record) that answers 200, for a record without C(readiness).
    type: str
    default: /health
  rollback:
    description: Return to O(generation), or without one to the generation that served before.
    type: bool
    default: false
  generation: {description: The generation that a rollback returns to., type: str, default: ""}
  version:
    description:
      - Name of the service's version, which is one generation of each replica. Empty, each generation is a
        version. Without it the record has none.
    type: str
  replicas:
    description: Replicas of the service. With several, the generations that served stay.
    type: int
    default: 1
  changed:
    description: Replicas that change before this one, each as its address and its role at a router.
    type: list
    elements: list
    default: []
  standbys:
    description: Generations that wait for a spare. They stay.
    type: list
    elements: str
    default: []
  family:
    description: Containers with this name, or with this name and a dash, are of one kind. Empty, all are.
    type: str
    default: ""
  planned:
    description:
      - Names of this kind that the host is to have. When the service serves, others are adopted or removed.
    type: list
    elements: str
    default: []
  is_last:
    description: Whether no other one of this kind starts on this host after this one.
    type: bool
    default: true
  supervisor:
    description: Program on the host that holds the supervisor back. Empty where there is none.
    type: str
    default: ""
  engine_log:
    description: >-
      What the engine's log reports beside the rules that hold for every engine, as the keys of a log profile
      (plugin_utils/engine_log_rules.py). Without it the service is no engine.
    type: dict
  drain_timeout:
    description: Seconds that requests get to end before a replica stops.
    type: int
    default: 120
  ready_timeout:
    description: Seconds of the longest wait until the service serves.
    type: int
    default: 3600
  stop_timeout: {description: Seconds between SIGTERM and SIGKILL., type: int, default: 30}
  proofs:
    description: Modules that must succeed on the host when the service answers, also one that ran before.
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
  headfirst.serving.rollout:
    name: headfirst-page
    title: The page
    spec: {image: "nginx:1.27", network_mode: host}
    fingerprint: "{{ compared.fingerprint }}"
    record: {url: "http://127.0.0.1"}
    path: /
    ready_timeout: 60
"""

RETURN = r"""
generation:
  description: The generation that serves; empty where a rollback has none to return to.
  type: str
  returned: success, but for V(absent)
restart:
  description: Its ranks are started; V(prepared) leaves that to V(serving).
  type: bool
  returned: success, but for V(absent)
running: {description: A rank ran before., type: bool, returned: "success, but for V(absent)"}
headfirst_findings:
  description: Warnings, each with C(id), C(severity), C(what) and C(fix).
  type: list
  elements: dict
  returned: where there are any
"""
