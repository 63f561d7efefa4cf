"""Every option of the model, with a sound file around it, so that each can be given a wrong value."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from coldiron.inventory.model import ClusterFile

Key = str | int
Path = tuple[Key, ...]

# A name, and what a block needs beside the option that is looked at.
NAMES: dict[str, str] = {
    "feeds": "A",
    "rooms": "hall1",
    "networks": "cluster",
    "fabrics": "compute",
    "overrides": "login01",
    "addresses": "storage",
    "prices": "qm9700",
}
_SMALL = {"cores_per_socket": 8, "memory_gib": 64}
NEEDED: dict[str, dict[str, Any]] = {
    "Network": {"subnet": "10.99.0.0/24"},
    "Feed": {"volts": 230, "amps": 32},
    "Pdu": {"name": "a", "volts": 230, "amps": 32},
    "Circuit": {"name": "b1", "amps": 16},
    "Ups": {"watts": 1000},
    "RackGroup": {"name": "r01"},
    "Fabric": {"link_layer": "infiniband", "gbit_per_s": 400},
    "SwitchGroup": {"name": "leaf01", "model": "qm9700", "function": "leaf", "networks": ["cluster"]},
    "Plug": {"cages": "1-4", "to": "login01"},
    "Hardware": {**_SMALL},
    "Bmc": {"address": "10.99.1.2"},
    "Disk": {"use": "system", "size_gb": 960},
    "Gpus": {"type": "h100", "count": 4},
    "MigLayout": {"profiles": ["1g.10gb"]},
    "PortGroup": {"count": 2, "gbit_per_s": 25},
    "Slot": {"position": 1},
}
FILE: dict[str, Any] = {
    "plugin": "coldiron.cluster.cluster",
    "name": "hopper",
    "domain": "hopper.internal",
    "networks": {"cluster": {"subnet": "10.99.0.0/24"}},
    "nodes": [
        {"name": "login01", "kind": "login", "address": "10.99.0.2", "hardware": {**_SMALL}},
        {"name": "head01", "kind": "head", "address": "10.99.0.1"},
        {"name": "cpu01", "kind": "cpu", "address": "10.99.0.3", "hardware": {**_SMALL}},
    ],
}


def inner(annotation: Any) -> Any:
    """``annotation`` without None and Annotated."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            annotation = next(one for one in get_args(annotation) if one is not type(None))
        else:
            return annotation


def block_of(annotation: Any) -> tuple[type[BaseModel] | None, tuple[Key, ...]]:
    """The block that ``annotation`` holds, and the keys between: none, a list's, or a name."""
    annotation = inner(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ()
    if get_origin(annotation) is list:
        found, more = block_of(get_args(annotation)[0])
        return found, (0, *more)
    if get_origin(annotation) is dict:
        found, more = block_of(get_args(annotation)[1])
        return found, ("", *more)
    return None, ()


def options(model: type[BaseModel] = ClusterFile, path: Path = ()) -> Iterator[Path]:
    """The path of every option of ``model``, and of those inside it."""
    for name, field in model.model_fields.items():
        here = (*path, name)
        yield here
        block, between = block_of(field.annotation)
        if block is not None:
            yield from options(block, (*here, *(NAMES[name] if key == "" else key for key in between)))


def with_value(path: Path, value: Any) -> dict[str, Any]:
    """A sound file in which the option at ``path`` is ``value``."""
    data = copy.deepcopy(FILE)
    model: type[BaseModel] = ClusterFile
    here: Any = data
    for position, key in enumerate(path[:-1]):
        following = path[position + 1]
        if isinstance(here, dict) and isinstance(key, str) and key in model.model_fields:
            block, between = block_of(model.model_fields[key].annotation)
            assert block is not None
            model = block
            if between == (0,):
                here.setdefault(key, [copy.deepcopy(NEEDED.get(model.__name__, {}))])
            elif between == ("",):
                here.setdefault(key, {following: copy.deepcopy(NEEDED.get(model.__name__, {}))})
            else:
                here.setdefault(key, copy.deepcopy(NEEDED.get(model.__name__, {})))
        here = here[key]
    here[path[-1]] = value
    return data
