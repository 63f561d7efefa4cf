"""Every option of every block of a cluster.yml, found by walking the model, and files with one of them wrong."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from coldiron.inventory import values
from coldiron.inventory.model import ClusterFile
from coldiron.inventory.source import KeyPath

SOUND: dict[str, Any] = {
    "plugin": "coldiron.cluster.cluster",
    "name": "hopper",
    "domain": "hopper.internal",
    "networks": {"cluster": {"subnet": "10.99.0.0/24"}},
    "nodes": [{"name": "head01", "kind": "head", "address": "10.99.0.1"}],
}


@dataclass(frozen=True)
class Option:
    """One key: ``path`` leads to it, ``block`` is the class that has it."""

    path: KeyPath
    block: type[BaseModel]
    field: FieldInfo

    @property
    def name(self) -> str:
        """The path as a test's name."""
        return ".".join(map(str, self.path))


def parts(annotation: object) -> Iterator[object]:
    """``annotation`` with all that it is made of."""
    yield annotation
    for inner in getattr(annotation, "__metadata__", ()) if get_origin(annotation) is Annotated else ():
        yield inner
    for inner in get_args(annotation):
        yield from parts(inner)


def bare(annotation: object) -> object:
    """``annotation`` without None and what it is annotated with."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType):
            annotation = next(one for one in get_args(annotation) if one is not type(None))
        else:
            return annotation


def block_of(annotation: object) -> type[BaseModel] | None:
    """The block that ``annotation`` is, or holds a list or mapping of."""
    inner = bare(annotation)
    if get_origin(inner) in (list, dict):
        inner = bare(get_args(inner)[-1])
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def options(block: type[BaseModel] = ClusterFile, path: KeyPath = ()) -> Iterator[Option]:
    """Every option of ``block`` and of the blocks within."""
    for name, field in block.model_fields.items():
        yield Option((*path, name), block, field)
        inner = block_of(field.annotation)
        if inner is not None:
            yield from options(inner, (*path, name, *step(field)))


def step(field: FieldInfo) -> KeyPath:
    """From a field to the block that it holds: nothing, the first item, or a key."""
    origin = get_origin(bare(field.annotation))
    if origin is list:
        return (0,)
    if origin is dict:
        return (next(iter((field.examples or [{"cluster": None}])[0])),)
    return ()


def sample(block: type[BaseModel]) -> dict[str, Any]:
    """What must stand in ``block``, and nothing else."""
    return {
        name: copy.deepcopy(field.examples[0]) if field.examples else sample(bare(field.annotation))
        for name, field in block.model_fields.items()
        if field.is_required()
    }


def with_value(path: KeyPath, value: object) -> dict[str, Any]:
    """A sound file but for ``value`` at ``path``; the blocks on the way hold what they must."""
    data: Any = copy.deepcopy(SOUND)
    root = data
    annotation: object = ClusterFile
    for here in path[:-1]:
        inner = bare(annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            field = inner.model_fields[str(here)]
            annotation = field.annotation
            new: Any = {}
            if get_origin(bare(annotation)) is list:
                new = []
            elif (block := block_of(annotation)) is not None and get_origin(bare(annotation)) is not dict:
                new = sample(block)
            data = data.setdefault(here, new)
        else:
            annotation = get_args(inner)[-1]
            block = block_of(annotation)
            if isinstance(data, list):
                if not data:
                    data.append(sample(block) if block else None)
                data = data[int(here)]
            else:
                data = data.setdefault(here, sample(block) if block else {})
        assert data is not None, path
    if isinstance(data, list):
        data[:] = [value]
    else:
        data[path[-1]] = value
    return root  # type: ignore[no-any-return]


def bounds(field: FieldInfo) -> list[float]:
    """Numbers just beyond each bound of a number's field; nothing where it is no number."""
    found: list[float] = []
    if bare(field.annotation) not in (int, float):
        return []
    for mark in [*field.metadata, *parts(field.annotation)]:
        if isinstance(mark, Ge):
            found.append(float(mark.ge) - 1)
        elif isinstance(mark, Gt):
            found.append(float(mark.gt))
        elif isinstance(mark, Le):
            found.append(float(mark.le) + 1)
    return found


def choices(field: FieldInfo) -> tuple[object, ...]:
    """The choices of a field that has some."""
    inner = bare(field.annotation)
    return get_args(inner) if get_origin(inner) is Literal else ()


def is_text(field: FieldInfo) -> bool:
    """Whether the field takes one text that YAML could have made a number of."""
    marks = [*field.metadata, *parts(field.annotation)]
    return bare(field.annotation) is str and any(
        isinstance(mark, BeforeValidator) and mark.func is values._text for mark in marks
    )
