"""A model on Hugging Face, or on a mirror of it (HF_ENDPOINT), through the hub's own client.

The client's function for one HTTP download is used, not `hf_hub_download`, which in version 2
throws away what a killed process left. Settings and HF_TOKEN come from the environment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported at run time
from huggingface_hub.utils._http import default_client_factory
from huggingface_hub.utils.tqdm import disable_progress_bars

from headfirst.common.errors import InputError
from headfirst.common.untrusted import hex_digest, without_password
from headfirst.node.weights.fetch.hub_answers import bound_httpx
from headfirst.node.weights.fetch.partial_file import FetchStoppedError, PartialFile, WrongBytesError
from headfirst.node.weights.fetch.source import Listing, RemoteFile, Source, checked_listing, client_failed

if TYPE_CHECKING:
    from headfirst.node.weights.fetch.xet import XetStore

log = logging.getLogger(__name__)

_CHUNK = 1024 * 1024
"""Bytes at a time; the client's own 10 MiB cost 20 MiB more memory for each file, and page faults."""


class HuggingFaceSource(Source):
    """One model at one revision: a branch, a tag or a commit; "" is the default branch."""

    def __init__(self, model: str, revision: str) -> None:
        self._model = model
        self._where = f"{model} on Hugging Face"
        self._revision = revision
        self._xet = _xet_store()
        disable_progress_bars()
        set_client_factory(lambda: bound_httpx(default_client_factory()))
        constants.DOWNLOAD_CHUNK_SIZE = _CHUNK
        for handler in logging.getLogger("huggingface_hub").handlers:
            handler.addFilter(_without_password)

    def list(self) -> Listing:
        """The files of the commit that the revision names now."""
        with self._errors():
            info = HfApi().model_info(
                self._model,
                revision=self._revision or None,
                files_metadata=True,
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,  # the client's own is none
            )
        entries = [
            (item.rfilename, item.size, item.lfs.sha256 if item.lfs else None) for item in info.siblings or []
        ]
        commit = hex_digest(info.sha, what="the commit", where=self._where, digits=40)
        return checked_listing(commit, entries, self._where)

    def pull(self, file: RemoteFile, listing: Listing, part: PartialFile) -> None:
        """Over Xet where the hub offers it (mirrors seldom do), else over HTTP with a range."""
        url = hf_hub_url(self._model, file.name, revision=listing.pinned)
        with self._errors():
            if self._xet and file.sha256 and not part.whole and self._pulled_by_xet(self._xet, url, part):
                return
            headers = build_hf_headers(headers={"Accept-Encoding": "identity"})
            try:
                http_get(
                    url, cast(Any, part), resume_size=part.size, headers=headers, expected_size=file.size
                )
            except HfHubHTTPError as error:
                if error.response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    part.restart()
                raise

    def _pulled_by_xet(self, xet: XetStore, url: str, part: PartialFile) -> bool:
        """Whether Xet brought the file. Where its servers cannot be used all the rest comes over HTTP."""
        metadata = get_hf_file_metadata(url)
        if metadata.xet_file_data is None:
            return False
        try:
            xet.pull(metadata.xet_file_data.file_hash, metadata.xet_file_data.refresh_route, part)
        except (FetchStoppedError, WrongBytesError):
            raise
        except Exception as error:  # RuntimeError and others, as the Rust library raises them
            log.warning("Xet storage cannot be used, HTTP instead: %s", without_password(str(error)))
            self.note = "over HTTP, since Xet storage does not answer (HF_HUB_DISABLE_XET=1 does not ask it)"
            self._xet = None
            return False
        return True

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FetchStoppedError:
            raise
        except GatedRepoError as error:
            raise InputError(
                "this model is gated: its owner approves each account",
                where=self._where,
                hint="Accept the terms on the model's page, then give a token of that account in HF_TOKEN.",
            ) from error
        except (RepositoryNotFoundError, HFValidationError) as error:
            raise InputError(
                "there is no such model, or it is private",
                where=self._where,
                hint="Check the name (owner/model); for a private model give a token in HF_TOKEN.",
            ) from error
        except RevisionNotFoundError as error:
            raise InputError(
                f"it has no revision {self._revision}",
                where=self._where,
                hint="Check model_revision: a branch, a tag or a commit.",
            ) from error
        except Exception as error:  # the client raises the errors of whichever HTTP library it uses
            raise client_failed(error, self._where) from error


def _without_password(record: logging.LogRecord) -> bool:
    """The client logs the addresses of a mirror that it tries again."""
    record.msg, record.args = without_password(record.getMessage()), None
    return True


def _xet_store() -> XetStore | None:
    if constants.HF_HUB_DISABLE_XET:
        return None
    try:
        from headfirst.node.weights.fetch.xet import XetStore
    except ImportError:  # there is no hf_xet for this processor, or an older one
        return None
    return XetStore()
