"""Documents of the HTTP API, CloudEvents, and the contracts as JSON Schema and AsyncAPI."""
