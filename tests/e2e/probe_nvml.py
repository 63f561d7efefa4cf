"""Runs on a node: calls every function of NVML that programs there look for, each in a process of its own.

Prints a JSON object: for each name the answer's number, "missing", or the signal that ended the call.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from pathlib import Path

# What wants the result of another call, not a device.
NEEDS = {
    "nvmlEventSetFree", "nvmlEventSetWait", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents", "nvmlShutdown",
    "nvmlErrorString", "nvmlInternalGetExportTable",
}  # fmt: skip
ROOM = 1 << 16
# A number comes before the room for the answer.
COUNTED = {"nvmlDeviceGetCpuAffinity", "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetFieldValues"}


def called(path: Path) -> set[str]:
    """The functions that a program or module names."""
    return {name.decode() for name in re.findall(rb"nvml[A-Z][A-Za-z0-9_]+", path.read_bytes())}


def call(library: ctypes.CDLL, name: str, device: ctypes.c_void_p) -> str | int:
    """Call a function with a device and room for answers, and say how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        room = [ctypes.create_string_buffer(ROOM) for _ in range(4)]
        arguments = [device, *room] if name.startswith("nvmlDevice") else room
        if name in COUNTED:
            arguments = [device, 1, *room]
        os.write(writer, str(getattr(library, name)(*arguments)).encode())
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    answer = os.read(reader, 64).decode()
    os.close(reader)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else int(answer)


def main(programs: list[str]) -> None:
    """Ask for all that these programs name."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    assert library.nvmlInit_v2() == 0
    device = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    found: dict[str, str | int] = {}
    for name in sorted(set().union(*(called(Path(program)) for program in programs))):
        if not hasattr(library, name):
            found[name] = "missing"
        elif name not in NEEDS:
            found[name] = call(library, name, device)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
