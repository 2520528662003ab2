"""What role weights does on a host, by its variables and what the hosts of the play report. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER, SOURCES
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer
from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_choice import (
    choose,
    differences,
    first_alike,
)
from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_refusals import refusal

_STATUS = {
    **dict.fromkeys(("address", "digest", "whole", "pinned"), "str"),
    **dict.fromkeys(("answers", "is_whole", "in_place", "occupied", "leftover"), "bool"),
    **{name: {"type": "str", "required": False} for name in ("asked", "error")},
    "changed": {"type": "list", "elements": "str"},
    "repaired": {"type": "list", "elements": "str", "required": False},
    "files": {"type": "dict", "elements": "str"},
}


class Role:
    """The role on one host.

    `variables` are the role's without their prefix. `reports` has for each host of the play, in its order,
    what it reported so far: model, place and error of shared_folder_facts; `state`, {} in check mode on a
    clean host; `failure`, why it could not read the model folder in place.
    """

    def __init__(
        self, host: str, variables: Mapping[str, Any], reports: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.host, self.variables, self.reports = host, variables, reports
        self.converts: bool = variables["convert_to_bf16"]
        self.folder = re.sub(r"(?<=.)/+$", "", variables["model"])
        last = self.folder.rpartition("/")[2] if self.converts else variables["name"]
        self.source_name = variables["source_name"] or last
        self.source_dir = f"{variables['dir']}/{self.source_name}"
        self.served_dir = f"{variables['dir']}/{variables['name']}"
        self.members: list[str] = variables["members"] or [variables["address"]]
        self.is_head = variables["address"] == self.members[0]
        self.request = ["--from", variables["source"], *_option("--revision", variables["revision"])]

    @property
    def own_folder(self) -> str:
        """A folder that may be served where it is, else ""; what is converted is a copy anyway."""
        is_folder = SOURCES[self.variables["source"]] is FOLDER and self.variables["shared"] != "stage"
        return self.folder if is_folder and not self.converts and self.folder != self.served_dir else ""

    @cached_property
    def writers(self) -> dict[str, str]:
        """For each host the first one that writes into the same weights_dir, which acts."""
        return first_alike({host: report["place"]["id"] for host, report in self.reports.items()})

    @property
    def parts(self) -> Mapping[str, str]:
        """Layers by address; {} where hosts share a folder, which then has everything."""
        alone = len(set(self.writers.values())) == len(self.reports)
        return self.variables["layers"] if alone else {}

    @property
    def status_argv(self) -> list[str]:
        """The command that reports what is there."""
        v = self.variables
        layers = ["--layers", self.parts.get(v["address"], "")] if self.parts else []
        return [
            *(v["command"], "status", "--served-dir", self.served_dir, "--address", v["address"]),
            *("--model", v["model"], *self.request),
            *(["--source-dir", self.source_dir] if self.converts else []),
            *layers,
            *(["--is-head"] if self.is_head else []),
        ]

    def status(self, printed: str) -> dict[str, Any]:
        """What it printed, of this host alone; {} for nothing, and ValueError for what is no status.

        Only the head reports what is asked for.
        """
        if not printed:
            return {}
        status = node_answer.named(node_answer.parsed(printed), _STATUS)
        if status["address"] != self.variables["address"]:
            raise ValueError(f"it speaks for {node_answer.quoted(status['address'])}")
        if "asked" in status and not self.is_head:
            raise ValueError("it speaks for the head")
        return status

    def decide(self, *, key: str = "", running: Sequence[str] = (), check: bool = False) -> dict[str, Any]:
        """Each value that a task of the role reads, by name.

        `key` is the public one that the head signs with, `running` names containers of `readers`.
        """
        v, host, served = self.variables, self.host, self.served_dir
        states = {name: report["state"] for name, report in self.reports.items()}
        models = {name: report["model"] for name, report in self.reports.items()}
        choice = choose(states, self.members, self.writers, self.parts, models)
        state, report, writer = states[host], self.reports[host], self.writers[host]
        reader = first_alike({name: model.get("sight", "") for name, model in models.items()})[host]
        holds, lacking = v["address"] in choice["holders"], len(states) - len(choice["holders"])
        in_place, signs = state.get("in_place", False), self.is_head and len(choice["order"]) > 1
        key_file = f"/run/headfirst/jobs/weights-{v['name']}.key"
        wrong = differences(state.get("files", {}), choice["first"]["files"])
        why = self.reports[reader]["failure"] or ", ".join(wrong)
        asked = {**v, "source_name": self.source_name, "model": self.folder}
        may_be_in_place = v["shared"] == "in_place" or choice["all_see_it"]
        reads = v["verify_deep"] or (state.get("changed") and not in_place)
        # Notes of what was converted: with them a later run brings only what is missing.
        removable = writer == host and not v["keep_fp8"] and not self.parts and state.get("digest")
        return {
            "refusal": refusal(asked, host, report, state, choice, 0 if check else lacking),
            "in_place": bool(self.own_folder and may_be_in_place and lacking) and not check,
            "in_place_argv": [
                *(v["command"], "in-place", self.own_folder, served, "--pinned", choice["asked"])
            ],
            "in_place_reader": reader,
            "in_place_used": not holds and writer == host,
            "in_place_differs": "" if holds else f"{self.own_folder} on {host} is not used: {why}.",
            # Several hosts need not read the same files.
            "verifies": bool(reads) and host == (reader if in_place else writer) and not check,
            "verify_argv": [v["command"], "verify", served, *(["--deep"] if v["verify_deep"] else [])],
            "lacking": lacking > 0,
            "brings": lacking > 0 and v["address"] in choice["order"],
            "awaits": writer != host and not holds,
            "is_head": self.is_head,
            "signs": signs,
            "key_file": key_file,
            "argv": self._argv(choice, key, key_file if signs else ""),
            # The clients' caches stay in our own folder, and can be removed with it.
            "environment": {
                variable: f"{v['dir']}/.cache/{source.name}"
                for source in SOURCES.values()
                for variable in source.caches
            },
            "token_variable": SOURCES[v["source"]].token_variable,
            "leftover": self.source_dir if state.get("leftover") and removable else "",
            "differs": "" if check else self._differs(choice, state),
            "finding": self._finding([] if check else state.get("repaired", []), running),
        }

    def _argv(self, choice: Mapping[str, Any], key: str, key_file: str) -> list[str]:
        v, order, gives = self.variables, choice["order"], choice["head_gives"]
        converts, several = self.converts, len(order) > 1
        fetch = [
            *("--model", v["model"], *self.request),
            *(["--convert-to", self.served_dir] if converts else []),
            *(["--keep-fp8"] if v["keep_fp8"] else []),
        ]
        layers = [word for address in order for word in ("--layers", self.parts.get(address, ""))]
        return [
            *(v["command"], "pipeline", self.source_dir if converts and not gives else self.served_dir),
            *("--address", v["address"], "--port", str(v["port"]), "--connections", str(v["connections"])),
            *(["--encrypt"] if v["encrypt"] else []),
            *("--fetch", v["fetch"]),
            *(word for address in order for word in ("--member", address)),
            *([*layers, "--hidden-layers", str(v["hidden_layers"])] if self.parts else []),
            *(["--signed-by", key] if several else []),
            *_option("--signing-key", key_file),
            *([] if gives else fetch),
        ]

    def _differs(self, choice: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        """Why this host does not serve the bytes of the others; "" where it does."""
        files, own = choice["files"].items(), state.get("files", {}).items()
        identity = choice["identity"]
        if state.get("digest") and state["answers"] and state[identity] == choice["digest"] and own <= files:
            return ""
        others = set() if self.parts else own ^ choice["first"]["files"].items()
        names = sorted({name for name, _digest in (own - files) | others} | set(state.get("changed", [])))
        return (
            f"{self.served_dir} on {self.host} is not what the others serve. Files that differ: "
            f"{', '.join(names) or 'all of them'}. Remove them on {self.host} and run again."
        )

    def _finding(self, repaired: Sequence[str], running: Sequence[str]) -> dict[str, str]:
        """What was repaired, and the containers that ran before the files were right; {} for nothing."""
        if not repaired:
            return {}
        commands = "; ".join(self.variables["readers"][name] for name in running)
        listed = ", ".join(repaired[:5]) + (", …" if len(repaired) > 5 else "")
        fix = (
            f"{', '.join(running)} started before and may have loaded the wrong bytes. Its replica starts "
            f"again after, on {self.host}: {commands}"
        )
        return {
            "id": "weights-repaired",
            "severity": "warning",
            "what": f"{len(repaired)} file(s) of {self.served_dir} were wrong and are repaired: {listed}",
            "fix": fix if running else "",
        }


def _option(name: str, value: str) -> list[str]:
    return [name, value] if value else []
