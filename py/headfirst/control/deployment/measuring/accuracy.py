"""`deploy test --accuracy`: how many questions a service answers right. Changes nothing on the hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from headfirst import __version__
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.accuracy import asking
from headfirst.control.accuracy import questions as data
from headfirst.control.accuracy.asking import Limits
from headfirst.control.accuracy.endpoint import KEY_HINT, Address, chosen_model
from headfirst.control.accuracy.questions import Question
from headfirst.control.accuracy.result import FILE, JOURNAL, Accuracy, Endpoint, ExamAnswer, Journal, Setup
from headfirst.control.bench.result import BenchSubject
from headfirst.control.deployment.measuring.bench import new_folder
from headfirst.control.deployment.measuring.chat_service import chat_service
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.service import open_api
from headfirst.control.evalscope import environment, process
from headfirst.control.paths import state_dir
from headfirst.control.smoke.answers import FailedCase, ListedModel, RefusedRequest
from headfirst.control.smoke.api import Api, ServiceTarget
from headfirst.decide.engines.base import RequestDialect

# Of an answer; a model that thinks first needs more. No more than half of the context.
_USUAL_TOKENS = 2048
_TOKENS_WITH_REASONING = 16384
_NO_KEY = "EMPTY"  # of clients of a service without keys; the client needs a text


class ExamWatcher:
    """Follows a run; this one shows nothing."""

    def note(self, text: str) -> None:
        """Something that a person should read."""

    def started(self, questions: int, answered: int) -> None:
        """So many questions, of which an earlier, interrupted run has answered some."""

    def answered(self, answer: ExamAnswer) -> None:
        """One of them has ended."""


@dataclass(frozen=True)
class Exam:
    """What is asked: the questions of a file or folder. `max_tokens`, None: what suits the model."""

    path: Path
    questions: Sequence[Question]
    max_tokens: int | None
    concurrency: int
    timeout_s: float


@dataclass(frozen=True)
class ExamOutcome:
    """A run, and where it was written."""

    result: Accuracy
    folder: Path


@dataclass(frozen=True)
class AskedService:
    """A service that is ready to be asked."""

    subject: BenchSubject | Endpoint
    model: str  # its name in the API
    url: str
    key: str
    limits: Limits
    python: Path

    def measure(self, exam: Exam, folder: Path | None, watcher: ExamWatcher) -> ExamOutcome:
        """Ask, and write the answers into `folder` or, without one, into a new folder of the state.

        A run that was interrupted in `folder` continues. HeadfirstError: no question has an answer.
        """
        begun = datetime.now(UTC)
        setup = Setup(
            headfirst=__version__,
            tool=environment.version(),
            subject=self.subject,
            data=exam.path.name,
            questions=data.digest(exam.questions),
            max_tokens=self.limits.max_tokens,
        )
        where = folder or new_folder("accuracy", self.subject.names, begun)
        where.mkdir(parents=True, exist_ok=True)
        log = state_dir("logs") / f"{self.subject.names[0]}-accuracy-{begun:%Y%m%d-%H%M%S}.log"
        with (
            process.running(self.python, "questions", self.url, self.key, log) as tool,
            closing(Journal(where, setup)) as journal,
        ):

            def answered(answer: ExamAnswer) -> None:
                journal.add(answer)
                watcher.answered(answer)

            answered_ids = {answer.question for answer in journal.answers}
            watcher.started(len(exam.questions), len(answered_ids))
            unanswered = [question for question in exam.questions if question.id not in answered_ids]
            try:
                asking.ask(tool, self.model, unanswered, self.limits, answered)
            except BaseException:
                watcher.note(f"{len(journal.answers):,} answers are kept. Continue with: -o {where}")
                raise
        by_question = {answer.question: answer for answer in journal.answers}
        answers = [by_question[question.id] for question in exam.questions]
        if all(answer.error for answer in answers):
            raise HeadfirstError(
                f"{self.model} answered no question: {answers[0].error}",
                hint=f"Output of the tool: {log}",
            )
        log.unlink(missing_ok=True)  # after a failure it stays
        result = Accuracy(date=begun.isoformat(timespec="seconds"), setup=setup, answers=answers)
        result.write(where)
        return ExamOutcome(result, where)


def measure(
    options: RunOptions,
    exam: Exam,
    folder: Path | None,
    watcher: ExamWatcher,
    against: RunOptions | Address | None,
) -> tuple[ExamOutcome, Accuracy | None]:
    """Ask the service that `options.service` names, after that of `against`, which keeps a run of its own."""
    with ExitStack() as stack:
        # Both before the first question, which may be hours before the last.
        service = stack.enter_context(opened(options, exam, watcher))
        if isinstance(against, Address):
            compared_service: AskedService | None = at_address(against, exam, service, watcher)
        else:
            compared_service = stack.enter_context(opened(against, exam, watcher)) if against else None
        earlier = compared_service.measure(exam, None, watcher).result if compared_service else None
        return service.measure(exam, folder, watcher), earlier


@contextmanager
def opened(options: RunOptions, exam: Exam, watcher: ExamWatcher) -> Iterator[AskedService]:
    """The service through a tunnel. NotReadyError: it does not answer."""
    service = chat_service(options, watcher.note, "`deploy test --accuracy` asks chat models.")
    target = service.target
    with (
        open_api(service.cluster, options.service) as (url, key),
        Api(url, key, target, exam.timeout_s) as api,
    ):
        api.require_ready(service.readiness)
        usual = _TOKENS_WITH_REASONING if target.dialect.reasoning_parser else _USUAL_TOKENS
        tokens = exam.max_tokens or _fitting(_listed(api), target.model, usual)
        limits = Limits(tokens, exam.concurrency, exam.timeout_s)
        yield AskedService(service.subject, target.model, url, key, limits, service.python)


def at_address(address: Address, exam: Exam, service: AskedService, watcher: ExamWatcher) -> AskedService:
    """A service that Headfirst did not deploy, with the limits of `service`.

    NotReadyError: it does not answer. InputError: it refuses the key, or the model is not clear.
    """
    if address.warning:
        watcher.note(address.warning)
    key = address.key or _NO_KEY
    with Api(
        address.url, key, ServiceTarget("", "chat", "", RequestDialect(None, None)), exam.timeout_s
    ) as api:
        try:
            listed = api.models().data
        except FailedCase as error:
            raise _unanswered(address, error) from None
    model = chosen_model(address, [model.id for model in listed])
    tokens = exam.max_tokens or _fitting(listed, model, service.limits.max_tokens)
    limits = replace(service.limits, max_tokens=tokens)
    return AskedService(
        Endpoint(url=address.url, model=model), model, address.url, key, limits, service.python
    )


def _unanswered(api: Address, error: FailedCase) -> HeadfirstError:
    """Why GET /v1/models has no list of models, with the next step."""
    if isinstance(error, RefusedRequest) and error.status in (401, 403):
        return InputError(f"the key is refused: {error.what}", where=api.url, hint=KEY_HINT)
    return NotReadyError(
        error.what,
        where=api.url,
        hint=f"{api.url}/v1/models must list the models, as OpenAI's API does. Check the address.",
    )


def is_run(path: Path) -> bool:
    """Whether it is a recorded run; another path is an inventory."""
    return path.suffix == ".json" or any((path / name).is_file() for name in (FILE, JOURNAL))


def _listed(api: Api) -> list[ListedModel]:
    try:
        return api.models().data
    except FailedCase as error:
        raise HeadfirstError(f"the service does not answer: {error.what}") from None


def _fitting(listed: Sequence[ListedModel], model: str, tokens: int) -> int:
    """At most half of the context, so that the other half has room for the question."""
    context = next((served_model.max_model_len for served_model in listed if served_model.id == model), None)
    return min(tokens, context // 2) if context else tokens
