"""HAProxy of Debian 12 as an image."""

from __future__ import annotations

from headfirst.control.images.debian import DebianRecipe

RECIPE = DebianRecipe(name="haproxy", tag="headfirst/haproxy:2.6.12", packages=("haproxy",))
