"""A host that ends its output and never sends an exit status keeps no command waiting."""

from __future__ import annotations

import socket
from threading import Thread

import paramiko
import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.live.ssh_access import ssh as connections
from headfirst.decide.cluster.login import HostAccess


class _Silent(paramiko.ServerInterface):
    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        Thread(target=channel.shutdown_write, daemon=True).start()
        return True


def test_an_exit_status_is_awaited_no_longer_than_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    server, client = paramiko.Transport(theirs), paramiko.SSHClient()
    server.add_server_key(paramiko.ECDSAKey.generate())
    Thread(target=server.start_server, kwargs={"server": _Silent()}, daemon=True).start()
    client._transport = paramiko.Transport(ours)
    try:
        client._transport.start_client()
        client._transport.auth_none("operator")
        monkeypatch.setattr(connections, "_connect", lambda *_: client)
        with (
            pytest.raises(NotReadyError, match="no exit status within 1 s"),
            connections.ssh(HostAccess("node1", "node1")) as connection,
        ):
            connections.run(connection, "true", timeout=1)
    finally:
        client.close()
        server.close()
