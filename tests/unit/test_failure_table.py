"""The table of all failures says what the rules say, and every failure is in it."""

from __future__ import annotations

import re
from pathlib import Path

import failure_table as table
import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import check_findings, check_rules, comm_rules

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "diagnose.md").read_text()


def test_a_rule_that_the_page_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = check_rules.RULES[0]
    monkeypatch.setattr(check_rules, "RULES", [*check_rules.RULES, *[_with(rule, "new-rule", 40)]])
    assert "| 40 |" in PAGE
    assert re.search(r"^\| 40 \|.*`new-rule`", table.written(PAGE), re.MULTILINE)


def _with(rule: check_rules.CheckRule, id: str, number: int) -> check_rules.CheckRule:
    return check_rules.CheckRule(**{**vars(rule), "id": id, "failures": (number,)})


def test_a_rule_that_is_no_more() -> None:
    page = PAGE.replace("`same-node-rank`", "`same-node-rank`, `gone`")
    assert table.written(page) == PAGE


@pytest.mark.parametrize(
    ("pattern", "instead", "says"),
    [
        (r"^\| 7 \|.*\n", "", ", not 1 to "),
        (r"^(\| 7 \|.*\n)", r"\1\1", ", not 1 to "),
        (r"^\| 40 \| (.*) \| \| \| .* \|$", r"| 40 | \1 | | | |", "failure 40 is neither"),
    ],
)
def test_a_page_that_only_a_person_can_mend(pattern: str, instead: str, says: str) -> None:
    page = re.sub(pattern, instead, PAGE, flags=re.MULTILINE)
    assert page != PAGE
    (problem,) = table.problems(page)
    assert says in problem


def test_a_rule_about_a_failure_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_findings, "COMPARED", {"odd": (999,)})
    assert any("[999]" in problem for problem in table.problems(PAGE))


def test_what_compares_hosts_is_what_the_table_knows() -> None:
    facts = {name: {"hostname": "one", "architecture": name} for name in ("a", "b")}
    found = check_findings.compare(facts, dict.fromkeys(facts, "10.0.0.1"))
    assert {one["id"] for one in found} == check_findings.COMPARED.keys()


def test_what_traffic_tells_is_what_the_table_knows() -> None:
    source = Path(comm_rules.__file__).read_text().split("Hosts = ", 1)[1]
    assert set(re.findall(r'"(comm-[a-z-]+)"', source)) == comm_rules.RULES.keys()
