"""Measures a running service: shapes of requests, the load tool that sends them, and its figures."""
