"""Names of the containers that serve: the plan gives them, the live verbs look for them."""

ENGINE = "headfirst-engine"
WEBUI = "headfirst-webui"
