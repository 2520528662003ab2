"""What role weights refuses, of its variables, of a host's folders and of the hosts of a play."""

from __future__ import annotations

from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_refusals import refusal
from together import together

VARIABLES: dict[str, Any] = {
    "name": "m",
    "source_name": "m",
    "source": "path",
    "model": "/srv/m",
    "dir": "/models",
    "shared": "auto",
    "convert_to_bf16": False,
    "address": "10.0.0.1",
    "members": ["10.0.0.1", "10.0.0.2"],
    "encrypt": False,
    "has_token": True,
    "layers": {},
    "hidden_layers": 0,
}
FOLDERS: dict[str, Any] = {"model": {"exists": True}, "place": {"type": "nfs4"}, "error": ""}


def refused(
    *,
    folders: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    order: tuple[str, ...] = ("10.0.0.1",),
    missing: int = 1,
    **changed: Any,
) -> str:
    choice = {"order": list(order)}
    return refusal(VARIABLES | changed, "node1", FOLDERS | (folders or {}), state or {}, choice, missing)


def test_nothing_is_wrong() -> None:
    assert refused() == ""
    assert refused(shared="in_place") == ""
    assert refused(shared="in_place", folders={"model": {}}) == ""  # in check mode, or a hub's model
    assert refused(convert_to_bf16=True, name="m-bf16") == ""
    assert refused(source="modelscope", model="org/m") == ""
    # A single host needs neither token nor members; the head is needed for hosts without the model only.
    assert refused(has_token=False, members=["10.0.0.1"]) == ""
    assert refused(has_token=False, members=[], order=()) == ""
    assert refused(order=(), missing=0) == ""
    # The folder itself is no copy of the model.
    assert refused(shared="in_place", model="/models/m", state={"occupied": True}) == ""


@together(
    ("changed", "words"),
    [
        ({"convert_to_bf16": True}, "are both m. A converted model needs two folders: call it m-bf16."),
        ({"convert_to_bf16": True, "name": "n", "shared": "in_place"}, "Set weights_shared=auto."),
        ({"shared": "in_place", "source": "modelscope"}, "the model comes from modelscope."),
        ({"shared": "in_place", "folders": {"model": {"exists": False}}}, "no files in /srv/m on node1."),
        ({"shared": "in_place", "state": {"occupied": True}}, "/models/m on node1 is a copy of the model."),
        (
            {"folders": {"error": "Read-only file system"}},
            "on nfs4, a shared file system, and cannot be written",
        ),
        (
            {"model": "srv/m"},
            "the model is an absolute folder on the head, such as /data/DeepSeek-R1; it is srv/m.",
        ),
        ({"address": "10.0.0.9"}, "weights_address 10.0.0.9 is none of weights_members 10.0.0.1, 10.0.0.2."),
        ({"has_token": False}, "Set weights_token"),
        ({"layers": {"10.0.0.1": "0-2"}}, "Set weights_hidden_layers"),
        ({"order": ("10.0.0.2",)}, "The head, weights_members[0], signs"),
        ({"order": ()}, "The head, weights_members[0], signs"),
    ],
)
def test_what_cannot_work_is_refused(changed: dict[str, Any], words: str) -> None:
    assert words in refused(**changed)


def test_what_the_host_reports_comes_first_and_alone() -> None:
    assert refused(state={"error": "No hub answers."}, has_token=False, model="srv/m") == "No hub answers."
