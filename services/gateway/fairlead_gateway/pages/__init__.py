"""Pages for browsers: the files of `web/`, and the HTML that they start from."""
