"""The way of a request from the socket to its route: web server, guard, fast path, application, OpenAPI."""
