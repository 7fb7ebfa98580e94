"""XIDs by NVML's event set: registered when the driver is opened, so that none is missed after that. What came before is
in the kernel's messages alone.

Not tried on a GPU yet; the calls are those of the NVML manual, played in the tests.
"""

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

from fairlead_agent.devices.facts import Xid
from fairlead_agent.devices.nvml_facts import asked

#: nvmlEventTypeXidCriticalError; a driver never changes it.
_XID = 8
#: At one look; the rest stays for the next.
XIDS_MAX = 256
#: What stands for "of no MIG instance".
_NO_INSTANCE = 0xFFFFFFFF


class XidEvents:
    """The XIDs of some GPUs, as they come."""

    def __init__(self, nvml: Any, handles: Sequence[Any], uuids: Sequence[str]) -> None:
        """A GPU or driver that cannot tell of XIDs tells of none."""
        self._nvml = nvml
        # Not asked when one comes: a GPU that fell off the bus does not say its name any more.
        self._uuids = {_address(handle): uuid for handle, uuid in zip(handles, uuids, strict=True)}
        self._set = asked(nvml, None, lambda: nvml.nvmlEventSetCreate())
        if self._set is not None:
            for handle in handles:
                asked(nvml, None, lambda handle=handle: nvml.nvmlDeviceRegisterEvents(handle, _XID, self._set))

    def take(self) -> list[Xid]:
        """Those since the last look."""
        found: list[Xid] = []
        while self._set is not None and len(found) < XIDS_MAX:
            event = asked(self._nvml, None, lambda: self._nvml.nvmlEventSetWait_v2(self._set, 0))
            if event is None:  # by a time-out: there is none
                break
            uuid = self._uuids.get(_address(event.device), "")
            if uuid and int(event.eventType) == _XID:
                instance = int(event.gpuInstanceId)
                found.append(
                    Xid(
                        uuid=uuid,
                        code=int(event.eventData),
                        gpu_instance=None if instance == _NO_INSTANCE else instance,
                    )
                )
        return found

    def close(self) -> None:
        """No more of them."""
        if self._set is not None:
            with contextlib.suppress(self._nvml.NVMLError, AttributeError):
                self._nvml.nvmlEventSetFree(self._set)
            self._set = None


def _address(handle: Any) -> Any:
    """What two handles of one GPU have in common: where they point to."""
    return ctypes.cast(handle, ctypes.c_void_p).value if isinstance(handle, ctypes._Pointer) else handle  # noqa: SLF001
