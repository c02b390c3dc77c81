"""Every problem of an omac.yaml at once: the contract is asked again and again, without what it refused before.

`omac.domain.skills.contract` stops at the first problem, which is enough to keep a skill from running. An author wants
to see all of them.
"""

import copy
from typing import Any

from omac.domain.skills.contract import parse_meta
from omac.domain.skills.document import without_indices
from omac.domain.skills.document_error import PART
from omac.domain.skills.meta import Meta, MetaError

PROBLEMS_MAX = 50
STAND_INS: dict[str, Any] = {  # by field without its last index, for what must have a value: {} is the index
    "name": "omitted",
    "sidecar.command": ["omitted"],
    "sidecar.mount": "omitted",
    "sidecar.env_passthrough[]": "OMITTED_VARIABLE_{}",
    "sidecar.secrets[]": {"name": "OMITTED_SECRET_{}"},
    "sidecar.secrets.name": "OMITTED_SECRET_{}",
    "sidecar.config[]": {"name": "OMITTED_CONFIG_{}"},
    "sidecar.config.name": "OMITTED_CONFIG_{}",
    "sidecar.config.choices[]": "omitted-{}",
}


def problems_of(document: object) -> tuple[list[MetaError], Meta | None]:
    """Return each problem of a decoded omac.yaml in the order of the contract, and the Meta where there is none."""
    problems: list[MetaError] = []
    rest: Any = copy.deepcopy(document)
    tried: set[str] = set()
    while len(problems) < PROBLEMS_MAX:
        try:
            meta = parse_meta(rest)
        except MetaError as error:
            if error.field not in tried:
                problems.append(error)
            field = error.field
            while field in tried and field:
                field = _above(field)
            tried.add(field)
            if not field:
                break
            rest = _without(rest, field)
        else:
            return problems, None if problems else meta
    return problems, None


def _above(field: str) -> str:
    """Return the field that holds this one; "" for the whole document."""
    return field[: max(field.rfind("."), field.rfind("["), 0)]


def _without(document: Any, field: str) -> Any:
    """Return the document with a value in place of this field that the contract takes, or without the field."""
    parts = [key or int(index) for key, index in PART.findall(field)]
    numbers = [part for part in parts if isinstance(part, int)]
    kind = without_indices(field) + ("[]" if isinstance(parts[-1], int) else "")
    stand_in = _numbered(copy.deepcopy(STAND_INS.get(kind)), numbers[-1] if numbers else 0)
    if not isinstance(document, dict):
        return document
    holder: Any = document
    for part in parts[:-1]:
        holder = holder[part] if isinstance(part, int) else holder.get(part)
        if not isinstance(holder, dict | list):
            return document
    if stand_in is not None:
        holder[parts[-1]] = stand_in
    elif isinstance(holder, dict):
        holder.pop(parts[-1], None)
    elif len(holder) > 1:
        holder[parts[-1]] = holder[parts[-1] - 1]
    return document


def _numbered(value: Any, number: int) -> Any:
    match value:
        case str():
            return value.format(number)
        case dict():
            return {key: _numbered(item, number) for key, item in value.items()}
        case _:
            return value
