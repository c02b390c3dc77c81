"""The fields of structs by their names, for people and for JSON: the journal stores many by their places."""

import msgspec


def named_fields(value: object) -> object:
    """Return a value with a mapping, from names to values, in place of each struct in it, however deep."""
    match value:
        case msgspec.Struct():
            return {name: named_fields(field) for name, field in msgspec.structs.asdict(value).items()}
        case list() | tuple():
            return [named_fields(each) for each in value]
        case dict():
            return {key: named_fields(each) for key, each in value.items()}
        case _:
            return value
