"""The results of a run: counted, as JSON and as JUnit's XML."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from pydantic import BaseModel, ConfigDict, computed_field

from headfirst.control.smoke.verdict import Result


class Report(BaseModel):
    """One run on one service; it has passed when no case failed."""

    model_config = ConfigDict(frozen=True)

    service: str
    engine: str
    task: str
    seconds: float
    results: list[Result]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Whether no case failed."""
        return not self.counts["failed"]

    @property
    def counts(self) -> Counter[str]:
        """Cases by verdict."""
        return Counter(result.verdict for result in self.results)


def write_junit(report: Report, path: Path) -> None:
    """Write the XML that CI systems read; a case that is not supported is a skipped one."""
    counts = report.counts
    suite = ElementTree.Element(
        "testsuite",
        name=f"deploy test {report.service}",
        tests=str(len(report.results)),
        failures=str(counts["failed"]),
        errors="0",
        skipped=str(counts["not supported"]),
        time=f"{report.seconds:.3f}",
    )
    for result in report.results:
        group, _, name = result.case.partition(".")
        entry = ElementTree.SubElement(
            suite, "testcase", classname=group, name=name, time=f"{result.seconds:.3f}"
        )
        if result.verdict == "failed":
            ElementTree.SubElement(entry, "failure", message=result.why)
        elif result.verdict == "not supported":
            ElementTree.SubElement(entry, "skipped", message=result.why)
        else:
            ElementTree.SubElement(entry, "system-out").text = result.why
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
