"""The routes of the work that memory hangs on: intents, tasks, coordinators and grants."""

from dataclasses import replace

from ..http.bodies import WRITTEN
from ..http.protocol import Operation, Parameter
from ..memory.model.access import Role
from ..memory.model.intents import TaskStatus
from . import intent_bodies as b
from . import intent_models as m
from .intent_handlers import IntentHandlers
from .models import AgentEventObject
from .parameters import EVENTS, MUST_MATCH, PAGE, PREFIX, TAG

INTENTS, TASKS, COORDINATORS = (f"{PREFIX}/{it}" for it in ("intents", "tasks", "coordinators"))
INTENT, TASK = f"{INTENTS}/{{intent_id}}", f"{TASKS}/{{task_id}}"
COORDINATOR = f"{COORDINATORS}/{{coordinator_id}}"
ACL = f"{INTENT}/acl"
OF_TASK = replace(MUST_MATCH, help='The version that the task must have, such as "3".')


def operations(api: IntentHandlers) -> tuple[Operation, ...]:
    """Every operation about intents."""
    return (
        Operation(
            method="POST", path=INTENTS, name="openintent_create_intent", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Make an intent, which needs a key that may.",
            handler=api.create_intent, body=b.IntentBody, answer=m.IntentObject, headers=WRITTEN,
            refusals=(409,),
        ),
        Operation(
            method="GET", path=INTENT, name="openintent_get_intent", role=Role.READER,
            summary="One intent, for who takes part in it.",
            handler=api.get_intent, answer=m.IntentObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=TASKS, name="openintent_create_task", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Make a task of an intent, and assign it.",
            handler=api.create_task, body=b.TaskBody, answer=m.TaskObject,
            headers={**WRITTEN, **TAG}, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=TASK, name="openintent_get_task", role=Role.READER,
            summary="One task.",
            handler=api.get_task, answer=m.TaskObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="PATCH", path=TASK, name="openintent_update_task", role=Role.WRITER,
            summary="Assign a task, or report on it; its end archives its working memory.",
            handler=api.update_task, body=b.TaskChangeBody, answer=m.TaskObject,
            sends=(OF_TASK,), takes_key=True, headers={**WRITTEN, **TAG},
            refusals=(404, 409, 428),
        ),
        Operation(
            method="GET", path=f"{INTENT}/tasks", name="openintent_list_tasks", role=Role.READER,
            summary="The tasks of an intent, the first first.",
            handler=api.list_tasks, answer=m.TaskObject, is_list=True, refusals=(404,),
            query=(Parameter(name="status", help="Of this status alone.",
                             choices=tuple(TaskStatus)), *PAGE),
        ),
        Operation(
            method="POST", path=f"{INTENT}/events", name="openintent_log_event", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Add an event to the log of an intent.",
            handler=api.log_event, body=b.EventBody, answer=AgentEventObject, headers=WRITTEN,
            refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{INTENT}/events", name="openintent_list_events",
            role=Role.READER,
            summary="The log of an intent, newest first.",
            handler=api.list_events, answer=AgentEventObject, is_list=True, query=EVENTS,
            refusals=(404,),
        ),
        Operation(
            method="POST", path=COORDINATORS, name="openintent_create_coordinator", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Let an agent coordinate an intent, within guardrails.",
            handler=api.create_coordinator, body=b.CoordinatorBody, answer=m.CoordinatorObject,
            headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="GET", path=COORDINATOR, name="openintent_get_coordinator", role=Role.READER,
            summary="One coordinator.",
            handler=api.get_coordinator, answer=m.CoordinatorObject, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=COORDINATOR, name="openintent_delete_coordinator",
            role=Role.WRITER, takes_key=True,
            summary="Let an agent coordinate an intent no more.",
            handler=api.end_coordinator, answer=m.CoordinatorObject, refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{INTENT}/coordinators", name="openintent_list_coordinators",
            role=Role.READER,
            summary="The coordinators of an intent, ended ones too.",
            handler=api.list_coordinators, answer=m.CoordinatorObject, is_list=True,
            refusals=(404,),
        ),
        Operation(
            method="GET", path=ACL, name="openintent_get_access_list", role=Role.READER,
            summary="Who may read an intent beside those who work on it.",
            handler=api.get_access_list, answer=m.AccessList, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{ACL}/entries", name="openintent_create_grant", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Let an agent read an intent, its tasks, its log and their working memory.",
            handler=api.create_grant, body=b.GrantBody, answer=m.GrantObject, headers=WRITTEN,
            refusals=(404,),
        ),
        Operation(
            method="DELETE", path=f"{ACL}/entries/{{grant_id}}", name="openintent_delete_grant",
            role=Role.WRITER, takes_key=True,
            summary="Take a grant back.",
            handler=api.revoke_grant, answer=m.RevokedGrant, refusals=(404,),
        ),
    )  # fmt: skip
