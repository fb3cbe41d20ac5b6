"""Argument schemas of operators: names, types, defaults and documentation.

A schema is defined in the module of its family (`meta/schema/nn.py`) and may serve many operators. Argument checks,
normalisation, cache keys, printing, the generated public signatures and the reference documentation follow from it.
"""

from meta.schema._dsl import REQUIRED as REQUIRED
from meta.schema._dsl import Arg as Arg
from meta.schema._dsl import Bool as Bool
from meta.schema._dsl import Choice as Choice
from meta.schema._dsl import Device as Device
from meta.schema._dsl import DType as DType
from meta.schema._dsl import Float as Float
from meta.schema._dsl import Int as Int
from meta.schema._dsl import IntTuple as IntTuple
from meta.schema._dsl import Number as Number
from meta.schema._dsl import NumberOrSize as NumberOrSize
from meta.schema._dsl import Optional as Optional
from meta.schema._dsl import OptionalTensor as OptionalTensor
from meta.schema._dsl import Scalar as Scalar
from meta.schema._dsl import Schema as Schema
from meta.schema._dsl import Str as Str
from meta.schema._dsl import Tensor as Tensor
from meta.schema._dsl import TensorList as TensorList
