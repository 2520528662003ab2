"""Smoke tests of a running service: requests of the OpenAI client, each with a verdict and its reason."""
