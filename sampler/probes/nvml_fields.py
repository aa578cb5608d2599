"""NVML's numbered fields: many values of one device by one call, each with a return code of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .nvml_calls import BLANKS, SUCCESS, Calls

# Which member of the value's union is in use, by nvmlValueType_t.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Field(NamedTuple):
    """A field by NVML's number; `scope` is the NVLink of fields that exist per link."""

    number: int
    scope: int = 0


class Fields:
    """The numbered fields of one device."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls

    def read(self, group: str, wanted: Iterable[Field]) -> dict[Field, int | float]:
        """What there is now of `wanted`, by one call. Fields that the device cannot tell are not asked for again.

        `group` names the question: a driver that refuses all of it loses the other groups nothing.
        """
        calls = self._calls
        names = {field: _name(group, field) for field in wanted}
        asked = [field for field, name in names.items() if calls.due(name) and not calls.refused(name)]
        if not asked:
            return {}
        answers = calls.get(group, lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, asked))
        found: dict[Field, int | float] = {}
        for field, answer in zip(asked, answers or (), strict=False):
            if answer.nvmlReturn != SUCCESS:
                calls.failed(names[field], answer.nvmlReturn)
            elif 0 <= answer.valueType < len(_MEMBERS):
                calls.worked(names[field])
                value = getattr(answer.value, _MEMBERS[answer.valueType])
                if value not in BLANKS:
                    found[field] = value
        return found

    def refused(self, group: str, field: Field) -> bool:
        """Whether the device cannot tell a field, and is not asked for it any more."""
        return self._calls.refused(group) or self._calls.refused(_name(group, field))


def _name(group: str, field: Field) -> str:
    return f"{group} {field.number}/{field.scope}"
