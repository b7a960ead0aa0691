"""What the contracts demand, sentence by sentence, each tied to its tests."""

from collections.abc import Callable
from typing import TypeVar

from .anthropic_requirements import ANTHROPIC
from .lifecycle_requirements import LIFECYCLE
from .openintent_requirements import OPENINTENT
from .openwop_requirements import OPENWOP
from .store_requirements import STORE_REQUIREMENTS

Test = TypeVar("Test", bound=Callable[..., object])


def requirement(*names: str) -> Callable[[Test], Test]:
    """Marks a test of these requirements; a name that is not listed is an error."""
    for name in names:
        REQUIREMENTS[name]

    def marked(test: Test) -> Test:
        return test

    return marked


AGENTOPS = {
    # Common rules
    "agentops:json:any-content-type": "JSON is read whatever the Content-Type says.",
    "agentops:json:null-is-absent": "null is the same as absent, also in PATCH.",
    "agentops:json:unknown-fields": "Unknown fields are ignored.",
    "agentops:json:numbers-for-strings": "Numbers for strings are 400.",
    "agentops:json:malformed": "Malformed JSON is 400 with a sentence that begins `invalid JSON`.",
    "agentops:json:absent-values": "Optional fields without a value are absent.",
    "agentops:json:empty-lists": "Empty lists are [], never null.",
    "agentops:text:replacement": "Lone surrogates and bytes that are no UTF-8 become U+FFFD.",
    "agentops:text:nul": "NUL in stored text becomes U+FFFD.",
    "agentops:parameters:first-counts": "The first of repeated parameters counts.",
    "agentops:parameters:empty-is-unset": "An empty parameter is an unset one.",
    "agentops:parameters:row-counts": "What is no number of rows is the default; at most 1,000.",
    "agentops:times:whole-seconds": "Times are rendered as whole seconds.",
    "agentops:times:order-kept": "The order inside one second is kept; ties break by id.",
    "agentops:projects:folded": "Project names are folded on every read and every write.",
    "agentops:names:visible": "A new name has no invisible or bidirectional control character.",
    "agentops:names:known-go-on": "A name that is stored goes on, whatever characters it has.",
    "agentops:limits:characters": "Texts have limits, counted in characters.",
    "agentops:validation:every-fault": "Validation names every fault in one answer.",
    "agentops:answers:two-mebibytes": "Answers stay under 2 MiB and say what they left out.",
    "agentops:paging:before-id": "before_id reads on past the rows of one list.",
    # Keys
    "agentops:keys:basic": "A key counts as the password of HTTP Basic, whoever the user is.",
    "agentops:keys:no-challenge": "No answer asks a browser for a user and a password.",
    "agentops:keys:two": "Two headers that bring different keys are 400.",
    # Sessions
    "agentops:sessions:start": "POST /sessions answers 201 with the session.",
    "agentops:sessions:start-twice": "The same id again: 201 with the stored row, unchanged.",
    "agentops:sessions:of-another-project": "A write that names a session of another project "
    "says so in a header, to those who may know that project.",
    "agentops:sessions:any-id": "A session id may hold any character (a new one any visible one).",
    "agentops:sessions:last-transcript": "The last transcript wins.",
    "agentops:sessions:end-is-repeatable": "The same messages give the same bytes.",
    "agentops:sessions:end-without-messages": "An end without messages keeps summary and count.",
    "agentops:sessions:late-end": "The end of an unknown session is stored.",
    "agentops:messages:append": "POST /sessions/{id}/messages is 204; the session's count grows.",
    "agentops:messages:law": "An end without messages says what one with all of them would.",
    "agentops:messages:last-transcript": "An end with messages begins anew with these.",
    "agentops:messages:unknown": "What is told of an unknown session opens it; nothing is lost.",
    "agentops:messages:redacted": "Secrets stay out of what is told, and are counted.",
    "agentops:messages:faults": "A message is read, and refused, as an end does it.",
    "agentops:messages:once": "What is told under a key counts once.",
    "agentops:messages:access": "Only a writer of the session's project may tell.",
    "agentops:messages:idle": "A session of which nothing is told for so long ends by itself.",
    "agentops:sessions:recent": "Sessions are listed newest first by their start.",
    "agentops:summary:format": "The summary has one form, byte-exact.",
    "agentops:summary:cut": "Each shown message is cut to 200 code points.",
    "agentops:summary:empty": "No messages: an empty summary, which no context shows.",
    # Observations
    "agentops:observations:save": "A save answers id, action and both counts.",
    "agentops:observations:session-created": "A session that does not exist is created.",
    "agentops:observations:recent": "Observations are listed newest first and in full.",
    "agentops:observations:get": "200, 404, and 400 for a non-number.",
    "agentops:observations:history": "Revisions are listed newest first; the newest 100 are kept.",
    "agentops:observations:restore": "A revision is brought back as a new one.",
    "agentops:observations:delete-answer": "A deletion is 204, or JSON where that is set.",
    "agentops:observations:patch": "PATCH changes the parts given, within the same limits.",
    "agentops:observations:patch-counts": "A change adds 1 to revision_count; no change adds none.",
    "agentops:observations:delete": "DELETE is 204, repeated and hard after soft too.",
    "agentops:observations:delete-keeps-index": "DELETE never harms the index.",
    # Saving
    "agentops:save:topic-key": "A live row with the same topic key, project and scope is replaced.",
    "agentops:save:topic-key-unchanged": "revision_count + 1 also when nothing changed.",
    "agentops:save:hash": "The same words within the window are one row, seen once more.",
    "agentops:save:hash-normalized": "The hash is SHA-256 of lower case and single spaces.",
    "agentops:save:window-edge": "The window compares instants; 0 turns it off.",
    "agentops:save:races": "Racing saves of one thing end as one row with exact counts.",
    # Reading
    "agentops:context:summaries": "Up to 3 newest non-empty summaries of the project.",
    "agentops:context:query": "Any of the words may match.",
    "agentops:context:backfill": "Backfilled with the newest not yet listed.",
    "agentops:context:cut": "Each content is cut to 300 code points.",
    "agentops:types:excluded": "exclude_type leaves memories of these types out, whatever finds "
    "them.",
    "agentops:search:hits": "Hits come best first, with a negative rank; lower is better.",
    "agentops:search:no-query": "No q: [].",
    "agentops:search:topic-keys": "Topic keys that hold a query with / come first, rank -1000.",
    "agentops:timeline:order": "Neighbours of the same project in the order of their saves.",
    "agentops:timeline:refusals": "observation_id is required (400); an unknown one is 404.",
    "agentops:stats": "Totals of the project or of all; projects are always all.",
    "agentops:global:visibility": "Who sees global memories, endpoint by endpoint.",
    # The whole
    "agentops:import:no-export": "A document that is no export is 400, named as what it is.",
    "agentops:import:dry-run": "With dry_run=true an import changes nothing and tells its plan.",
    # Known faults of the original
    "agentops:fault:long-prompts": "Long prompts match although not all of their words occur.",
    "agentops:fault:window-to-midnight": "The window does not reach back to midnight.",
    "agentops:fault:folded-on-write-only": "Projects are folded on reads as well.",
    "agentops:fault:global-unread": "Global memories are read from other projects.",
    "agentops:fault:lost-summary": "Ending an unknown session keeps the summary.",
    "agentops:fault:large-transcript": "Transcripts over 1 MiB are accepted.",
    "agentops:fault:repeated-deletes": "Repeated deletes leave the full-text totals intact.",
    "agentops:fault:racing-saves": "Racing saves never make two rows.",
    "agentops:fault:patch-missing": "PATCH of a missing id is 404.",
    "agentops:fault:nul-in-query": "A NUL in a query is no fault.",
    "agentops:fault:timeline-same-second": "The timeline keeps neighbours of the same second.",
}

REQUIREMENTS = AGENTOPS | STORE_REQUIREMENTS | ANTHROPIC | LIFECYCLE | OPENINTENT | OPENWOP
