"""How a libtorrent session is set for a chain of nodes on a LAN. libtorrent's settings_pack has the names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import ip_network
from typing import Any

import libtorrent as lt

_MIB = 1024 * 1024

# Nobody is looked for: the plan says who there is.
_NO_DISCOVERY = {
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "enable_ip_notifier": False,
    "allow_multiple_connections_per_ip": True,
    "listen_system_port_fallback": False,
    "max_retry_port_bind": 0,
}

# The info-hash is a secret, and stands in the first message after the key exchange: everything is encrypted.
# RC4 hides it, and what it lets in, from who listens; that the payload is right its hashes prove.
_SECRET_HANDSHAKE = {
    "in_enc_policy": int(lt.enc_policy.pe_forced),
    "out_enc_policy": int(lt.enc_policy.pe_forced),
    "allowed_enc_level": int(lt.enc_level.pe_rc4),
    "prefer_rc4": True,
}

# uTP yields to all other traffic and costs five times the CPU; DSCP 1 asks switches to do the same to TCP.
_PLAIN_TCP = {
    "enable_outgoing_utp": False,
    "enable_incoming_utp": False,
    "mixed_mode_algorithm": int(lt.bandwidth_mixed_algo_t.prefer_tcp),
    "peer_dscp": 0,
    "rate_limit_ip_overhead": False,
}

# Neighbours come back within seconds after a restart, and on a slow link nobody is given up early.
_PATIENT = {
    "min_reconnect_time": 0,  # the tick is pause enough: only a few files are connected ahead of their turn
    "max_failcount": 1 << 30,
    "smooth_connects": False,
    "listen_queue_size": 1000,  # a neighbour connects for all its files at once
    "connection_speed": 200,
    "connections_limit": 10_000,
    "torrent_connect_boost": 255,  # so often what is resumed connects at once, not at the next full second
    "unchoke_slots_limit": -1,
    "close_redundant_connections": False,
    "handshake_timeout": 30,
    "peer_timeout": 120,
    "request_timeout": 120,
}

_LONG_QUEUES = {
    "send_buffer_low_watermark": 1 * _MIB,
    "send_buffer_watermark": 4 * _MIB,
    "send_buffer_watermark_factor": 150,
    "send_not_sent_low_watermark": 512 * 1024,
    "max_out_request_queue": 1500,
    "max_allowed_in_request_queue": 4000,
    "aio_threads": 4,
    "tick_interval": 100,
}


def make_session(address: str, port: int, peers: Iterable[str]) -> lt.session:
    """A session that will listen on address:port and speak to `peers` only, by that address."""
    settings: Any = {  # the wheel's type of it is no class at run time
        **_NO_DISCOVERY,
        **_SECRET_HANDSHAKE,
        **_PLAIN_TCP,
        **_PATIENT,
        **_LONG_QUEUES,
        "listen_interfaces": f"{address}:{port}",
        "outgoing_interfaces": address,
        "alert_mask": lt.alert_category.error
        | lt.alert_category.status
        | lt.alert_category.storage
        | lt.alert_category.peer,
        "alert_queue_size": 100_000,
        "user_agent": "headfirst",
    }
    parameters = lt.session_params(settings)
    parameters.disk_io_constructor = "pread_disk_io_constructor"
    parameters.ip_filter = admit(peers)
    return lt.session(parameters)


def admit(peers: Iterable[str], but: Collection[str] = ()) -> lt.ip_filter:
    """A filter that lets in `peers`, without those in `but`, and nobody else."""
    rules = lt.ip_filter()
    for everybody in (ip_network("0.0.0.0/0"), ip_network("::/0")):
        rules.add_rule(str(everybody[0]), str(everybody[-1]), 1)
    for peer in peers:
        if peer not in but:
            rules.add_rule(peer, peer, 0)
    return rules
