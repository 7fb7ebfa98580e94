"""The view of queues: settings, and counts that the view of jobs keeps up to date."""

from fairlead_gateway.views.rows import QueueRow
from fairlead_schemas.events import QueueConfigured


class QueuesView:
    """Rows by path."""

    def __init__(self) -> None:
        self.rows: dict[str, QueueRow] = {}
        self.handlers = {QueueConfigured: self._configured}

    def of(self, path: str) -> QueueRow:
        """The row of a queue, made when first named."""
        row = self.rows.get(path)
        if row is None:
            row = self.rows[path] = QueueRow(path, states={})
        return row

    def _configured(self, event: QueueConfigured, _seq: int, _at_ns: int) -> None:
        self.of(event.path).gpu_quota_milli = event.gpu_quota_milli
