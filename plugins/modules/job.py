"""Documentation of the action job; the work is done in plugins/action/job.py."""

DOCUMENTATION = r"""
module: job
short_description: Run a program on the node as a systemd unit that survives a lost connection
description:
  - Runs a program as the transient unit C(headfirst-job-<name>) and follows it to its end.
  - A lost SSH connection, or an end of ansible-playbook, leaves the unit running. The next run of the same
    task joins it; where the task has become another one (argv or environment), the unit is replaced.
  - The program may keep one JSON object with C(done), C(total), C(unit) and C(note) in the file that the
    environment variable E(HEADFIRST_PROGRESS_FILE) names, and leave its result, a JSON object, in the file
    that E(HEADFIRST_RESULT_FILE) names. What O(returns) names of it becomes the task's result, with
    C(changed); its C(msg) is the message of a failure. A result with another name is refused.
  - A number C(alive) in that object is not shown; where it changes, the program is not silent for
    O(silence_timeout).
  - Each new progress is appended, as a JSON line, to the controller's file that E(HEADFIRST_PROGRESS) names.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Runs nothing and is skipped.
    support: partial
requirements:
  - systemd 240 or later on the node
options:
  name:
    description: Name of the job; letters, digits and hyphens.
    type: str
    required: true
  what:
    description: What the job does, for people. The name, if not given.
    type: str
  argv:
    description: Program and arguments. Needed where O(state) starts it.
    type: list
    elements: str
    default: []
  environment:
    description: Environment variables of the program.
    type: dict
    default: {}
  environment_secret:
    description:
      - Environment variables that are in no argv and in no log.
      - A file of mode 0600 below C(/run/headfirst), in memory, carries them and goes when the program ends.
    type: dict
    default: {}
  state:
    description:
      - V(finished) waits for the end of the program.
      - V(started) waits for its first progress and leaves it running.
      - V(awaited) waits for the end of the program that V(started) left running, and never starts it.
      - V(stopped) ends it.
    type: str
    choices: [finished, started, awaited, stopped]
    default: finished
  reconnect_timeout:
    description: Seconds to try to connect again after the connection was lost.
    type: int
    default: 600
  timeout:
    description: Seconds after which systemd ends the program, also without a controller. 0 is no limit.
    type: int
    default: 86400
  silence_timeout:
    description:
      - Seconds without a new progress and without a new line of output after which the program is ended.
      - 0 is no limit.
    type: int
    default: 3600
  returns:
    description:
      - The names of the result that the program leaves, each with its type (V(str), V(int), V(float),
        V(bool), V(list) or V(dict)), or with C(type), C(elements), C(options), C(choices), C(required),
        C(nullable), C(min) and C(max). Names are required, but for those with C(required=false).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Convert the weights
  headfirst.serving.job:
    name: weights-convert
    what: convert
    argv: [/opt/headfirst/bin/headfirst-weights, convert, /data/DeepSeek-R1, /data/DeepSeek-R1-bf16]
"""

RETURN = r"""
exit:
  description: How the unit ended, as systemd reports it (SERVICE_RESULT, EXIT_CODE, EXIT_STATUS).
  type: str
  returned: on failure
"""
