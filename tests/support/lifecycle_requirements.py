"""What the life of a memory demands, rule by rule."""

LIFECYCLE = {
    # Fields
    "life:fields:unset": "A field that is not set is in no answer.",
    "life:fields:instants": "Instants need a zone, and are told with their fraction.",
    "life:fields:ttl": "A ttl counts from the save, and is refused beside an end.",
    "life:fields:null": "null in a PATCH takes an end or a review away; in a save it is absent.",
    "life:fields:bad": "A wrong value is 400, says which, and stores nothing.",
    "life:fields:change": "A PATCH of a field is a revision; one without effect is none.",
    "life:fields:upsert": "By topic key what is given is set, and supersedes is added to.",
    "life:fields:duplicate": "Of two ends of a duplicate the later holds, and none is the latest.",
    # LC-1
    "life:1:live": "What has expired is in no list, search, context, count and no timeline.",
    "life:1:dedup": "A save of the same words as an expired memory makes a new one.",
    "life:1:key": "An expired memory holds no topic key, still shows it, and comes back with it.",
    "life:1:key-taken": "One that comes back to a taken key is 409.",
    "life:1:read": "An expired memory and its history are still read, changed and confirmed.",
    # LC-2
    "life:2:exact": "Expiry holds at its microsecond, without a sweep.",
    "life:2:swept": "The sweep takes what has expired out of the index, in steps.",
    "life:2:back": "A memory whose end is moved is back in the index at once.",
    "life:2:clock": "What is marked and not expired, as the clock went back, is put in again.",
    # LC-3
    "life:3:kept": "It is erased its time after the later of its end and its last change.",
    "life:3:for-ever": "With 0 it is kept for ever.",
    # LC-4
    "life:4:first": "Pinned memories open a context in the order of pinning, without a match.",
    "life:4:half": "They take at most half of the limit, rounded up; the rest is ranked.",
    "life:4:filters": "The filters of a context hold for pins.",
    "life:4:bound": "A twenty-first pin is 409 and names the limit, also by a restore or an end.",
    "life:4:global": "A global pin opens the contexts of all projects.",
    "life:4:explain": "explain says `pinned`, and why_not `pins`.",
    # LC-5
    "life:5:hidden": "What a live memory supersedes is in no context and no search.",
    "life:5:told": "superseded=true finds it; lists and reads tell by which.",
    "life:5:back": "It is back when the newer one is deleted, expires or is erased.",
    "life:5:chain": "One that is superseded itself still supersedes.",
    "life:5:explain": "explain names what was superseded, why_not by which.",
    # LC-6
    "life:6:circle": "A circle, or itself, is 409; nothing of the save is stored.",
    "life:6:through": "Links of deleted and expired memories count for circles.",
    "life:6:unknown": "Ids that are unknown, deleted or of other projects are one 404.",
    "life:6:scopes": "A global memory supersedes global ones alone, and nothing else one: 409.",
    "life:6:race": "Of two saves that close a circle together, one loses.",
    # LC-7
    "life:7:date": "A review is due when its date has passed, until it is confirmed or changed.",
    "life:7:period": "A type with a period is due when that has passed since it was seen.",
    # LC-8
    "life:8:confirm": "A confirmation says when, leaves no revision, and is a writer's.",
    # LC-9
    "life:9:alike": "similar= tells look-alikes by a score that needs no statistics.",
    "life:9:not": "Neither itself, nor what it supersedes, nor what is unlike is told.",
    "life:9:again": "Under an idempotency key the look-alikes are those that were kept.",
    # LC-10
    "life:10:reasons": "GET /review tells reasons, newest first, in pages.",
    "life:10:pairs": "A pair is told until one supersedes the other or is confirmed.",
    "life:10:access": "A pair is told when the caller may read both.",
    # LC-11
    "life:11:save": "mem_save tells look-alikes and takes ttl, pinned and supersedes.",
    # LC-12
    "life:12:ages": "ages=true tells ages and how many were superseded; without it nothing.",
    "life:12:shown": "The runtime kit tells ages behind the titles when it is asked.",
    "life:12:words": "Words for ages round down.",
    # Transfer
    "life:transfer:carried": "An export has a memory's life, and an import takes it.",
    "life:transfer:live": "An export has nothing that is expired, nor a link to it.",
    "life:transfer:matched": "A row that matches is left alone, and so are its links.",
    "life:transfer:refused": "A supersession that may not be is told, and the rest is stored.",
    "life:transfer:pins": "The bound of pins refuses no import and no merge; their order stays.",
    "life:transfer:merged": "Of two at one key, the memory that stays keeps its life and links.",
    "life:transfer:redacted": "A scan reaches what has expired, and the key that it has left.",
    "life:transfer:keys": "What has expired holds no key against an import, nor takes one by it.",
    "life:transfer:later": "A later state brings its life to the memory at its key.",
    "life:transfer:confirmed": "What has expired keeps the key that it has left to others.",
    "life:revisions:text": "A revision without a text reads as the next newer one with its own.",
}
