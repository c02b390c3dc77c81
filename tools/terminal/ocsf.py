"""Events as the Open Cybersecurity Schema Framework has them, version 1.8.0: what a program did is Process Activity
(1007), all else API Activity (6003). The schemas of both lie in `ocsf_schema`, with their licence.

An event is one object, which `unmapped` has as it was recorded. One of several accesses is an object for each, with the
fields of that one: of 256 that each had all, one record would be megabytes. The end of an access names what its
beginning named, where both are exported. An event without content has no object: a class of its own would have to
invent when it was.
"""

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from omac.domain.access.access import (
    AccessAborted,
    AccessBatchAborted,
    AccessBatchCompleted,
    AccessBatchRequested,
    AccessCompleted,
    AccessRefused,
    AccessRequested,
    accesses_of,
    number_of,
    position_of,
)
from omac.domain.access.control import ControlCalled, ControlRefused
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import StreamId, key_of
from omac.domain.kernel.run import RunStarted
from omac.domain.sandbox.launch import Denied, Launched, LaunchExited, LaunchRequested
from omac.domain.sidecars import sidecar
from omac.domain.skills.registration import Drifted
from omac.journal.bundle import LeafContent
from omac.tools.terminal.version import VERSION

SCHEMA_VERSION = "1.8.0"
API_ACTIVITY, PROCESS_ACTIVITY = 6003, 1007
CLASSES = {API_ACTIVITY: "API Activity", PROCESS_ACTIVITY: "Process Activity"}
CATEGORIES = {6: "Application Activity", 1: "System Activity"}
OF_PROCESSES = ("run", "sandbox", "sidecar")
UNKNOWN, OTHER = 0, 99
LAUNCH, TERMINATE = 1, 2
CREATE, READ, UPDATE, DELETE = 1, 2, 3, 4
OF_METHODS = {
    "POST": CREATE,
    "GET": READ,
    "HEAD": READ,
    "OPTIONS": READ,
    "PUT": UPDATE,
    "PATCH": UPDATE,
    "DELETE": DELETE,
}
METHODS = {*OF_METHODS, "TRACE", "CONNECT"}
OF_WORDS = {  # the last word of a kind
    **dict.fromkeys(("adopted", "admitted", "approved", "created", "mirrored", "mounted", "registered"), CREATE),
    **dict.fromkeys(("activated", "appeared", "signed", "written"), CREATE),
    **dict.fromkeys(("changed", "drifted", "stubbed"), UPDATE),
    **dict.fromkeys(("deactivated", "deregistered", "erased", "purged", "removed", "revoked", "unmounted"), DELETE),
    **dict.fromkeys(("vanished",), DELETE),
}
OF_PROCESS_WORDS = {"started": LAUNCH, "launched": LAUNCH, "exited": TERMINATE, "stopped": TERMINATE}
NAMES = {
    API_ACTIVITY: {CREATE: "Create", READ: "Read", UPDATE: "Update", DELETE: "Delete"},
    PROCESS_ACTIVITY: {LAUNCH: "Launch", TERMINATE: "Terminate"},
}
SUCCESS, FAILURE = 1, 2
FAILED = (  # the last word of a kind, as of sidecar.gave-up
    "aborted", "contested", "delayed", "denied", "drifted", "failed", "refused", "stubbed", "unhealthy", "up",
)  # fmt: skip
INFORMATIONAL, LOW, MEDIUM, HIGH = 1, 2, 3, 4
SEVERITIES = {"contested": HIGH, "denied": MEDIUM, "drifted": MEDIUM, "refused": MEDIUM}  # of what failed, else LOW
APPLICATIONS = {"person": "omac command line", "bridge": "omac bridge", "agent": "coding agent", "omac": "omac"}
ERROR_MIN = 400


class OcsfObjects:
    """The objects of the events of one journal, which are given in order."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._begun: dict[int, AccessRequested] = {}  # accesses that have not ended, by id

    def of(self, content: LeafContent, event: Event, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the objects of an event; `record` is what it says."""
        if isinstance(event, AccessBatchRequested | AccessBatchCompleted | AccessBatchAborted):
            for number, (access, of_one) in enumerate(accesses_of(content.position, event)):
                fields = msgspec.structs.asdict(of_one) | {"number": number_of(access)}
                yield self._object(content, of_one, record | {"event": fields}, access, f".{number}")
        else:
            access = event.request if isinstance(event, AccessCompleted | AccessAborted) else content.position
            yield self._object(content, event, record, access)

    def _object(
        self, content: LeafContent, event: Event, record: dict[str, Any], access: int, place: str = ""
    ) -> dict[str, Any]:
        word = content.kind.replace(".", "-").rpartition("-")[2]
        is_process = content.kind.partition(".")[0] in OF_PROCESSES and content.kind != "sandbox.inspected"
        begun = self._begun_by(access, event)
        if is_process:
            class_uid, activity = PROCESS_ACTIVITY, OF_PROCESS_WORDS.get(word, OTHER)
            own = _process_activity(content, event)
        else:
            class_uid, activity = API_ACTIVITY, _activity(event, begun, word)
            own = _api_activity(content, event, begun, access)
        category = class_uid // 1_000
        failed = _has_failed(event, word)
        return {
            "class_uid": class_uid, "class_name": CLASSES[class_uid],
            "category_uid": category, "category_name": CATEGORIES[category],
            "activity_id": activity, "activity_name": NAMES[class_uid].get(activity, content.kind),
            "type_uid": class_uid * 100 + activity,
            "severity_id": SEVERITIES.get(word, LOW) if failed else INFORMATIONAL,
            "status_id": UNKNOWN if word == "requested" else FAILURE if failed else SUCCESS,
            "time": (content.at if content.happened is None else content.happened) // 1_000_000,
            "message": content.kind, "metadata": self._metadata(content, place), "actor": _actor(content, event, begun),
            **own, "unmapped": record,
        }  # fmt: skip

    def _begun_by(self, access: int, event: Event) -> AccessRequested | None:
        if isinstance(event, AccessRequested):
            self._begun[access] = event
            return event
        if isinstance(event, AccessCompleted | AccessAborted):
            return self._begun.pop(access, None)
        return None

    def _metadata(self, content: LeafContent, place: str) -> dict[str, Any]:
        product = {"name": "omac", "vendor_name": "omac", "version": VERSION}
        metadata = {
            "version": SCHEMA_VERSION, "product": product, "uid": f"{self._journal}/{content.position}{place}",
            "sequence": content.position, "event_code": content.kind, "log_name": self._journal,
            "logged_time": content.at // 1_000_000,
        }  # fmt: skip
        return metadata if content.correlation is None else metadata | {"correlation_uid": content.correlation}


def _has_failed(event: Event, word: str) -> bool:
    """Return whether an event says that something failed, or was kept from happening, as the audit has it."""
    match event:
        case AccessCompleted(status=status):
            return status >= ERROR_MIN
        case Drifted(accepted_by=run) if run:
            return False
        case _:
            return word in FAILED


def _actor(content: LeafContent, event: Event, begun: AccessRequested | None) -> dict[str, Any]:
    session = getattr(begun or event, "session", None)
    named = {"session": {"uid": session}} if isinstance(session, str) and session else {}
    return {"app_name": APPLICATIONS.get(content.actor, content.actor), **named}


def _activity(event: Event, begun: AccessRequested | None, word: str) -> int:
    of = begun or event
    if isinstance(of, AccessRequested | AccessRefused):
        return OF_METHODS.get(of.method, OTHER)
    return OF_WORDS.get(word, OTHER)


def _api_activity(content: LeafContent, event: Event, begun: AccessRequested | None, access: int) -> dict[str, Any]:
    of = begun or event
    fields: dict[str, Any] = {"src_endpoint": {"svc_name": APPLICATIONS.get(content.actor, content.actor)}}
    api: dict[str, Any] = {"operation": content.kind, "service": {"name": "omac"}}
    if isinstance(of, AccessRequested | AccessRefused):
        api = {"operation": of.method, "service": {"name": of.skill or of.mount or "unknown"}}
        method = {"http_method": of.method} if of.method in METHODS else {}
        fields |= {"http_request": {**method, "url": {"path": of.path}}}
    elif isinstance(of, ControlCalled | ControlRefused):
        api = {"operation": of.action or "unknown", "service": {"name": "omac control plane"}}
    if isinstance(event, AccessCompleted | AccessAborted):
        api["request"] = {"uid": _uid(access)}
        if event.duration_us is not None:
            fields["duration"] = event.duration_us // 1_000
    elif isinstance(event, AccessRequested):
        api["request"] = {"uid": _uid(access)}
    if isinstance(event, AccessCompleted | AccessAborted | AccessRefused) and event.status is not None:
        fields |= {"http_response": {"code": event.status}, "status_code": str(event.status)}
    if isinstance(reason := getattr(event, "reason", None), str) and reason:
        fields["status_detail"] = reason
    if isinstance(event, AccessRefused | ControlRefused | GuardDenied):
        fields["count"] = event.count
    return fields | {"api": api, "resources": _resources(content, of)}


def _uid(access: int) -> str:
    """Return what a request and its end are known by: the position of the request, and its number among others."""
    number = number_of(access)
    return f"{position_of(access)}.{number}" if number else str(position_of(access))


def _resources(content: LeafContent, event: Event) -> list[dict[str, Any]]:
    """Return the resources of an event: its stream, and the things that it names."""
    named = (("skill", "skill"), ("dir", "directory"), ("workdir", "directory"), ("name", "name"))
    texts = [(kind, getattr(event, field, None)) for field, kind in named]
    stream = {"uid": content.stream, "type": content.stream.partition("/")[0]}
    return [stream, *({"name": text, "type": kind} for kind, text in texts if isinstance(text, str) and text)]


def _process_activity(content: LeafContent, event: Event) -> dict[str, Any]:
    key = key_of(StreamId(content.stream))
    process: dict[str, Any] = {"uid": content.stream, "name": key.name or "omac"}
    fields: dict[str, Any] = {}
    match event:
        case RunStarted() | Launched():
            process["pid"] = event.pid
        case LaunchRequested() | Denied():
            process |= {"cmd_line": shlex.join(event.argv), "working_directory": event.workdir}
        case LaunchExited(status=status) if status is not None:
            fields["exit_code"] = status
        case sidecar.Started():
            process["pid"] = event.birth.pid
        case sidecar.SpawnRequested():
            process |= {"cmd_line": shlex.join(event.spec.command), "working_directory": event.spec.source}
        case sidecar.Exited(exit=sidecar.Exit(code=int() as code)):
            fields["exit_code"] = code
        case _:
            pass
    if isinstance(reason := getattr(event, "reason", None), str) and reason:
        fields["status_detail"] = reason
    return fields | {"process": process, "device": {"type_id": UNKNOWN, "uid": key.host}}
