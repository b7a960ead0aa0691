"""Moved."""
# ruff: noqa: PLC0414

from ..api import BODIES as BODIES
from ..api import LONGEST_BODY as LONGEST_BODY
from ..fields import CAMEL as CAMEL
from ..fields import AgentName as AgentName
from ..fields import ContentText as ContentText
from ..fields import EntryName as EntryName
from ..fields import Exact as Exact
from ..fields import MemoryRefText as MemoryRefText
from ..fields import Node as Node
from ..fields import OwnName as OwnName
from ..fields import Printable as Printable
from ..fields import RunName as RunName
from ..fields import Tags as Tags
from ..fields import Workflow as Workflow
from ..fields import Zoned as Zoned
