"""All nodes' events → where it began, by `failure_causes.decisive`, and what followed."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import decisive

from headfirst.common import container_names as names
from headfirst.decide.diagnose import conditions, events
from headfirst.decide.diagnose.subject import Subject
from headfirst.decide.diagnose.types import Diagnosis, Event, NodeFacts, NodeState


def diagnose(nodes: Sequence[NodeFacts], subject: Subject, container: str = names.ENGINE) -> Diagnosis:
    """What is wrong with the ranks of one replica, and where it began. `container` is their name."""
    states = [_state(node, subject) for node in nodes]
    symptoms = [symptom for node in nodes for symptom in events.of_node(node, subject)]
    symptoms += conditions.of_all(nodes, subject, container)
    symptoms.sort(key=lambda symptom: symptom.at)
    head = nodes[0].health
    running = all(node.container and node.container.running for node in nodes)
    ready = running and head is not None and head.status == 200
    notes = [symptom for symptom in symptoms if symptom.weight == "note"] + _restarts(nodes, subject)
    if ready:  # what differs may work, and yet is worth a check; all else is over
        notes += [symptom for symptom in symptoms if symptom.weight == "mismatch"]
        return Diagnosis(ready=True, decisive=None, then=[], notes=notes, nodes=states)
    first = decisive(symptoms)
    rest = [symptom for symptom in symptoms if symptom.weight != "note" and symptom is not first]
    return Diagnosis(ready=False, decisive=first, then=rest, notes=notes, nodes=states)


def _restarts(nodes: Sequence[NodeFacts], subject: Subject) -> list[Event]:
    """How the runs ended after which Docker restarted a container."""
    told = []
    for node in nodes:
        before = events.of_earlier_run(node, subject) if node.container and node.container.restarts else []
        if before and node.container:
            first = decisive(before) or before[0]
            lines = [f"{first.means} ({first.rule})", *first.lines]
            times = node.container.restarts
            told.append(events.event(node, subject, "restarted", first.at, lines, times=times))
    return told


def _state(node: NodeFacts, subject: Subject) -> NodeState:
    container = node.container
    state = "unreachable" if node.problem else "missing"
    if container:
        ended = container.status in ("exited", "dead")
        state = f"{container.status} ({container.exit_code})" if ended else container.status
    return NodeState(
        rank=node.rank,
        host=node.host,
        state=state,
        doing=conditions.doing(node, subject),
        clock_offset_s=round(node.offset, 3),
        problem=node.problem,
    )
