"""Irregular forms of common English words, each indexed and searched as its base form. Pure.

Regular forms need no list: the stemmer joins them. Left out are forms that are as often another
word (`left`, `saw`, `ground`, `spoke`, `halves`), a name (`drew`), or a plain word of
another language (`theses`); and `won`, of which `won't` is made.
"""

import re
import unicodedata

_VERBS = """
arise arose arisen, awake awoke awoken, beat beaten, become became, begin began begun, bend bent,
blow blew blown, break broke broken, breed bred, bring brought, build built, burn burnt,
buy bought, catch caught, choose chose chosen, cling clung, come came, creep crept, deal dealt,
dig dug, draw drawn, dream dreamt, drink drank drunk, drive drove driven, eat ate eaten,
feed fed, fight fought, find found, flee fled, fly flew flown, forbid forbade forbidden,
forget forgot forgotten, forgive forgave forgiven, freeze froze frozen, get got gotten,
give gave given, go went gone, grow grew grown, hang hung, hear heard, hold held, keep kept,
kneel knelt, know knew known, lean leant, leap leapt, learn learnt, lend lent, lose lost, make made,
meet met, mistake mistook mistaken, overcome overcame, override overrode overridden,
oversee oversaw overseen, overwrite overwrote overwritten, pay paid, rebuild rebuilt, rerun reran,
 rewrite rewrote rewritten, ride rode ridden, rise risen, run ran,
say said, seek sought, sell sold, send sent, shake shook shaken, shine shone,
show shown, shrink shrank shrunk, sing sang sung, sink sank sunk, sleep slept, slide slid,
speak spoken, spend spent, spill spilt, spin spun, stand stood, steal stole stolen,
stick stuck, sting stung, strike struck, swear swore sworn, sweep swept, swim swam swum,
swing swung, take took taken, teach taught, tear tore torn, tell told, think thought thoughts,
throw threw thrown, undergo underwent undergone, understand understood, undertake undertook
undertaken, undo undid undone, wake woke woken, wear wore worn, weave wove woven, weep wept,
withdraw withdrew withdrawn, withhold withheld, write wrote written
"""
_NOUNS = """
child children, man men, woman women, person people peoples, foot feet, tooth teeth, goose geese,
mouse mice, wife wives, knife knives,
wolf wolves, thief thieves, loaf loaves,
index indices, matrix matrices, vertex vertices, appendix appendices
"""

BASE_FORMS = {
    form: base
    for base, *forms in map(str.split, f"{_VERBS.strip()},{_NOUNS.strip()}".split(","))
    for form in forms
}
"""For each irregular form its base form, both in lower case."""
WITH_FORMS = frozenset(BASE_FORMS.values())


def base_form(word: str) -> str:
    """The base form of a case-folded word, accents ignored; the word itself if it has none."""
    plain = word if word.isascii() else _MARKS.sub("", unicodedata.normalize("NFD", word))
    return BASE_FORMS.get(plain, word)


_MARKS = re.compile("[\u0300-\u036f]")
