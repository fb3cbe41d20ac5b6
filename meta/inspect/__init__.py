"""Descriptions of operators: every part with its `file:line`, and which parts are missing.

    print(meta.inspect.describe("softmax").gradient)
    print(meta.inspect.checklist("softmax")["torch"])

The command line prints them: `python -m meta op softmax`, `python -m meta ops --missing grad,second`.
"""

from meta.inspect.checklist import PARTS as PARTS
from meta.inspect.checklist import Part as Part
from meta.inspect.checklist import checklist as checklist
from meta.inspect.description import Description as Description
from meta.inspect.description import describe as describe
