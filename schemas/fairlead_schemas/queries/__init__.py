"""Questions to the explainer and telemetry, and their answers. Never stored."""
