"""The storage service: classes of storage, volumes and datasets. A core and a writer of the log of its own."""
