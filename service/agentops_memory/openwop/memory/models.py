"""What models of other nouns share."""

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

CAMEL = ConfigDict(alias_generator=to_camel)
