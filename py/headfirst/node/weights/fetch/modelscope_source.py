"""A model on ModelScope, or on a mirror of it (MODELSCOPE_ENDPOINT), through the hub's own client.

The client's stream of one file is used, not `download_file`, which gives up a file after an hour however much
of it came. Settings and MODELSCOPE_API_TOKEN come from the environment, as the client reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import SOURCES
from modelscope_hub import AuthenticationError, HubApi, InvalidParameter, NotFoundError, PermissionDeniedError
from modelscope_hub.errors import APIError

from headfirst.common.errors import InputError
from headfirst.node.weights.fetch.hub_answers import bound_requests
from headfirst.node.weights.fetch.partial_file import FetchStoppedError, PartialFile
from headfirst.node.weights.fetch.source import Listing, RemoteFile, Source, checked_listing, client_failed
from headfirst.node.weights.files import CHUNK


class ModelScopeSource(Source):
    """One model at one revision: a branch or a tag; "" is the default branch, master."""

    def __init__(self, model: str, revision: str) -> None:
        self._model = model
        self._where = f"{model} on ModelScope"
        self._revision = revision or SOURCES["modelscope"].branch
        self._api = HubApi()
        bound_requests(self._api.legacy)

    def list(self) -> Listing:
        """The files of the revision. The hub names no commit, but each file's sha256, which pins as well."""
        with self._errors():
            entries = self._api.list_repo_files(self._model, "model", revision=self._revision)
        blobs = [(entry.path, entry.size, entry.sha256 or None) for entry in entries if not entry.is_dir]
        files = checked_listing("", blobs, self._where).files
        told = sorted((file.name, file.size, file.sha256) for file in files)
        return Listing(hashlib.sha256(repr(told).encode()).hexdigest(), files)

    def pull(self, file: RemoteFile, listing: Listing, part: PartialFile) -> None:
        """One stream, with a range where some of the file is there."""
        if part.whole:
            return
        headers = {"Accept-Encoding": "identity"}
        if part.size:
            headers["Range"] = f"bytes={part.size}-"
        with self._errors():
            try:
                response = self._api.legacy.download_stream(
                    self._model, "model", file.name, self._revision, headers=headers
                )
            except APIError as error:
                if error.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    part.restart()
                raise
            with response:
                sent = response.headers.get("Content-Range", "")
                if part.size and not sent.startswith(f"bytes {part.size}-"):
                    part.restart()  # files that are in git are sent whole, whatever was asked
                for chunk in response.iter_content(CHUNK):
                    part.write(chunk)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FetchStoppedError:
            raise
        except (AuthenticationError, PermissionDeniedError) as error:
            raise InputError(
                "this model is gated or private",
                where=self._where,
                hint="Request access on the model's page, then give a token in MODELSCOPE_API_TOKEN.",
            ) from error
        except (NotFoundError, InvalidParameter) as error:
            raise InputError(
                f"there is no such model, or it has no revision {self._revision}",
                where=self._where,
                hint="Check the name (owner/model) and model_revision.",
            ) from error
        except Exception as error:  # the client raises the errors of its HTTP library too
            raise client_failed(error, self._where) from error
