"""Live and past views of the log, and queries to the explainer and to telemetry."""
