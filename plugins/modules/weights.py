"""Documentation of the action weights; the work is done in plugins/action/weights.py."""

DOCUMENTATION = r"""
module: weights
short_description: Read what a host has of a model, and decide what role weights does there
description:
  - Belongs to role weights, which registers the steps as C(__weights_folders), C(__weights_status) and
    C(__weights_decided). A step reads what those before it registered on all hosts of the play.
  - Writes nothing but the marker of M(headfirst.serving.shared_folder_facts).
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Writes no marker. A host without the node tools reports nothing.
    support: full
options:
  step:
    description:
      - V(folders) reads on which file systems the folders are, V(status) what C(headfirst-weights status)
        prints.
      - V(decide) compares the hosts; plugin_utils/weights_decision.py describes each value.
    type: str
    choices: [folders, status, decide]
    required: true
  variables:
    description: The variables of the role without their prefix, and C(has_token) for C(weights_token).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Read what is there
  headfirst.serving.weights:
    step: status
    variables: "{{ __weights_variables }}"
  register: __weights_status
"""

RETURN = r"""
folders:
  description: What M(headfirst.serving.shared_folder_facts) returned.
  type: dict
  returned: step folders
state:
  description: What the host reports; empty in check mode without the node tools.
  type: dict
  returned: step status
decision:
  description: What the tasks of the role do on this host.
  type: dict
  returned: step decide
"""
