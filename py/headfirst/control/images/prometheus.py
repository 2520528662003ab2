"""Prometheus and its exporter of hosts, of Debian 12, as one image."""

from __future__ import annotations

from headfirst.control.images.debian import DebianRecipe

RECIPE = DebianRecipe(
    name="prometheus",
    tag="headfirst/prometheus:2.42.0",
    packages=("prometheus", "prometheus-node-exporter"),
    left_out=("/usr/bin/promtool", "/usr/share/javascript/moment-timezone/data/*"),
    user="65534:65534",  # nobody, as in the projects' own images
)
