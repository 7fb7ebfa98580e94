"""Job files from YAML, Kubernetes Jobs, Slurm scripts and command-line options."""
