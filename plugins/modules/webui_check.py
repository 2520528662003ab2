#!/usr/bin/python
"""Prove that Open WebUI is of use."""

from __future__ import annotations

DOCUMENTATION = r"""
module: webui_check
short_description: Prove that people can sign in to Open WebUI and choose the model
description:
  - Signs in and finds the model in the list of the page.
  - Changes nothing, except that an account which O(previous_password) still opens gets O(password).
options:
  url:
    description: Address of Open WebUI, without a trailing slash.
    type: str
    required: true
  email:
    description: Sign-in name.
    type: str
    required: true
  password:
    description: Password.
    type: str
    required: true
  previous_password:
    description: Password that the account may still have; empty for none.
    type: str
    default: ""
  model:
    description: ID of the model that must be listed.
    type: str
    required: true
  seconds:
    description: The longest wait for the model to be listed.
    type: int
    default: 30
attributes:
  check_mode: {support: full, description: Does nothing.}
  diff_mode: {support: none, description: A password is not shown.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Sign in and find the model
  headfirst.serving.webui_check:
    url: "{{ open_webui_url }}"
    email: admin@localhost
    password: "{{ password }}"
    model: demo
"""

RETURN = r"""
models: {description: IDs of the models that the page lists., type: list, elements: str, returned: success}
"""

import json
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import http_probe

TIMEOUT_S = 30.0
INTERVAL_S = 2.0
REFUSED = (400, 401, 403)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "email": {"type": "str", "required": True},
            "password": {"type": "str", "required": True, "no_log": True},
            "previous_password": {"type": "str", "default": "", "no_log": True},
            "model": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, models=[])
    token, changed = _sign_in(module)
    end = time.monotonic() + module.params["seconds"]
    while True:
        models, words = _models(module.params["url"], token)
        if module.params["model"] in models:
            module.exit_json(changed=changed, models=models)
        if time.monotonic() > end:
            break
        time.sleep(INTERVAL_S)
    what = "Open WebUI does not list the model {}, but {} ({}).".format(
        module.params["model"], models or "none", words
    )
    module.fail_json(
        msg=what + " Check that this host reaches the engine, and that its API key and model name are right."
    )


def _sign_in(module: AnsibleModule) -> t.Tuple[str, bool]:
    """The session's token, and whether the account got a new password."""
    params = module.params
    status, token, words = _session(params, params["password"])
    if status in REFUSED and params["previous_password"]:
        before, token, _words = _session(params, params["previous_password"])
        if before == 200:
            _change_password(module, token)
            status, token, words = _session(params, params["password"])
            if status == 200:
                return token, True
    if status == 200:
        return token, False
    what = "Open WebUI does not let {} sign in ({}).".format(params["email"], words)
    if status in REFUSED:
        what += (
            " The account was made with another password: give that one, or change it on the page, or stop "
            "Open WebUI and empty its data folder, which deletes all accounts and chats."
        )
    module.fail_json(msg=what)
    raise AssertionError("fail_json does not return")


def _session(params: t.Dict[str, t.Any], password: str) -> t.Tuple[int, str, str]:
    body = {"email": params["email"], "password": password}
    status, text, words = http_probe.ask(params["url"] + "/api/v1/auths/signin", None, body, TIMEOUT_S)
    return status, str(json.loads(text)["token"]) if status == 200 else "", words


def _change_password(module: AnsibleModule, token: str) -> None:
    params = module.params
    body = {"password": params["previous_password"], "new_password": params["password"]}
    url = params["url"] + "/api/v1/auths/update/password"
    status, text, words = http_probe.ask(url, token, body, TIMEOUT_S)
    if status != 200 or text.strip() != "true":
        module.fail_json(
            msg="Open WebUI does not change the password of {} ({}).".format(params["email"], words)
        )


def _models(url: str, token: str) -> t.Tuple[t.List[str], str]:
    status, text, words = http_probe.ask(url + "/api/models", token, None, TIMEOUT_S)
    if status != 200:
        return [], words
    return [model["id"] for model in json.loads(text)["data"]], words


if __name__ == "__main__":
    main()
