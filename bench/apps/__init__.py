"""Rows about the app proxy: beside nginx, configurable-http-proxy and a bare splice."""
