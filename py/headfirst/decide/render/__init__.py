"""A plan as files for docker run, Docker Compose, Slurm or Kubernetes. Pure; nothing is decided here."""
