"""Every rule knows its real line, and no rule claims another's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils import engine_log_rules
from headfirst.diagnose import rules
from headfirst.diagnose.rules import LogRule

RULES = rules.log_rules()
SERVING = [
    "[2026-01-01 10:00:00] server_args={'api_key': 'sesame', 'model_path': '/models/demo'}",
    "[2026-01-01 10:00:09 TP0] Init torch distributed begin.",
    "[2026-01-01 10:00:12 TP0] Load weight begin. avail mem=78.67 GB",
    "Loading safetensors checkpoint shards:  38% Completed | 3/8 [00:01<00:02, 1.5it/s]",
    "node1:12345:12345 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
    "[2026-01-01 10:01:09 TP0] Capture cuda graph begin. This can take up to several minutes.",
    '[2026-01-01 10:02:09] INFO:     10.0.0.1:55234 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "[2026-01-01 10:02:09 TP0] Decode batch, #running-req: 6, #token: 1920, token usage: 0.94",
    "[2026-01-01 10:02:09] The server is fired up and ready to roll!",
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_knows_its_line(rule: LogRule) -> None:
    assert rule.pattern.search(rule.sample)
    assert rules.match(rule.sample) is rule
    assert not any(rule.pattern.search(line) for line in rule.counter)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_rule_claims_the_line_of_another(rule: LogRule) -> None:
    others = [other for other in RULES if other is not rule]
    # A general rule speaks only where no other does, so it may match what they match.
    claimed = [other.id for other in others if rule.pattern.search(other.sample) and rule.weight != "general"]
    assert claimed == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_an_engine_that_serves_matches_no_rule(rule: LogRule) -> None:
    assert [line for line in SERVING if rule.pattern.search(line)] == []


@pytest.mark.parametrize("rule", [*RULES, *rules.conditions().values()], ids=lambda rule: rule.id)
def test_a_rule_says_what_to_do(rule: LogRule) -> None:
    assert rule.fix.endswith(".")
    assert not rule.means.endswith(".")
    assert all(1 <= number <= 61 for number in rule.failures)


def test_ids_are_unique() -> None:
    names = [rule.id for rule in RULES]
    assert len({*names, *rules.conditions()}) == len(names) + len(rules.conditions())


def test_waiting_for_the_ranks_and_diagnosing_know_the_same() -> None:
    assert [rule.id for rule in engine_log_rules.RULES] == [rule.id for rule in RULES]
    for rule in RULES:
        known = engine_log_rules.match(rule.sample)
        assert known is not None and known.id == rule.id


def test_every_file_of_rules_is_read() -> None:
    folder = Path(engine_log_rules.__file__).with_name("failure_rules")
    families = {path.stem for path in folder.glob("*.yml")} - {"conditions", "engine_log"}
    assert families == set(rules.FAMILIES) == set(engine_log_rules.FAMILIES)
    assert sum(len(yaml.safe_load((folder / f"{name}.yml").read_text())) for name in families) == len(RULES)


def test_no_line_shows_the_arguments_with_the_api_key() -> None:
    assert all("sesame" not in rules.shown(line) for line in SERVING)
