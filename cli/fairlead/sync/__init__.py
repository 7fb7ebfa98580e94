"""Directories that go with jobs: what of a directory is sent, and sending what the cluster does not have."""
