"""Addresses in this machine's settings: which ones other machines reach."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """Whether the URL, or `host:port`, is on this machine's loopback."""
    host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
