"""The app proxy: the road from a browser to what a session serves on its node, one origin for each app and attempt."""
