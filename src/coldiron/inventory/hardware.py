"""What a machine is made of: what cluster.yml says, and the catalog where that is silent. None is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coldiron.catalog.model import Gpu, Server
from coldiron.inventory.model import Gpus, Hardware, PortGroup, PowerSupplies, Slot

# The catalog's name of a field, where it is not the same.
_OTHER_NAMES = {"draw_watts": "draw_max_watts"}
_OWN_WAY = {"gpus", "supplies", "ports", "slots", "storage"}


@dataclass(frozen=True, eq=False)
class Build:
    """One kind of machine, shared by all nodes that are alike.

    ``hardware`` holds what cluster.yml says and, where it is silent, what the catalog says. ``server`` and ``gpu`` are
    the catalog's entries, None where cluster.yml names none.
    """

    hardware: Hardware
    server: Server | None = None
    gpu: Gpu | None = None

    @property
    def gpu_count(self) -> int:
        """GPUs in the machine; 0 where there are none."""
        return self.hardware.gpus.count if self.hardware.gpus else 0

    @property
    def sockets(self) -> int:
        """Processor sockets; 1 where nobody says."""
        return self.hardware.sockets or 1

    @property
    def cores(self) -> int | None:
        """Cores of all sockets."""
        return self.hardware.cores_per_socket * self.sockets if self.hardware.cores_per_socket else None

    @property
    def threads(self) -> int | None:
        """Hardware threads of all cores."""
        return self.cores * (self.hardware.threads_per_core or 1) if self.cores else None

    @property
    def supplies(self) -> PowerSupplies:
        """Its power supplies; all None where nobody says."""
        return self.hardware.supplies or PowerSupplies()

    @property
    def height_u(self) -> int | None:
        """Whole units of a rack that it takes."""
        height = self.hardware.height_u
        return None if height is None else int(-(-height // 1))


def merge(written: Hardware | None, server: Server | None, gpus: Mapping[str, Gpu]) -> Build:
    """The machine that ``written`` and the catalog's ``server`` make; ``gpus`` are the catalog's."""
    hardware = written or Hardware()
    update: dict[str, Any] = {}
    if server is not None:
        for name in Hardware.model_fields:
            if name not in _OWN_WAY and getattr(hardware, name) is None:
                value = getattr(server, _OTHER_NAMES.get(name, name))
                if value is not None:
                    update[name] = value
        update |= _own_way(hardware, server)
    if update:
        hardware = hardware.model_copy(update=update)
    model = hardware.gpus.model if hardware.gpus else None
    return Build(hardware, server, gpus.get(model) if model else None)


def _own_way(hardware: Hardware, server: Server) -> dict[str, Any]:
    update: dict[str, Any] = {}
    if hardware.gpus is None:
        if server.gpu and server.gpu_count:
            update["gpus"] = Gpus(model=server.gpu, count=server.gpu_count)
    elif hardware.gpus.model is None and server.gpu:
        update["gpus"] = hardware.gpus.model_copy(update={"model": server.gpu})
    own = hardware.supplies or PowerSupplies()
    update["supplies"] = own.model_copy(
        update={
            name: getattr(server.supplies, name)
            for name in PowerSupplies.model_fields
            if getattr(own, name) is None
        }
    )
    if hardware.ports is None and server.ports is not None:
        update["ports"] = [
            PortGroup(count=port.count, gbit_per_s=port.gbit_per_s, nic=port.nic, cage=port.cage)
            for port in server.ports
            if port.count
        ]
    if hardware.slots is None and server.slots is not None:
        update["slots"] = [Slot(position=slot.position, lanes=slot.lanes) for slot in server.slots]
    return update


def gres_type(gpus: Gpus) -> str:
    """What Slurm's GRES calls these GPUs: what is written, else the model's name with underscores."""
    if gpus.type:
        return gpus.type
    return (gpus.model or "gpu").replace("-", "_").replace(".", "_")[:32]
