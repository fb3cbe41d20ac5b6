"""Arguments that schemas of several families share."""

from meta.schema._dsl import Arg, Tensor

DY = Arg("dy", Tensor, doc="Gradient of the result.")
