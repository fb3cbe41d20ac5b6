"""Dropout of elements and of whole channels."""

from __future__ import annotations

import meta
from meta import random
from meta._generated.methods import Tensor
from meta.errors import ArgumentError, value_text
from meta.model.model import Model


class Dropout(Model):
    """Zeroes each element with probability p in train mode and scales the others by 1 / (1 - p) (N. Srivastava et al.,
    "Dropout", 2014). Raises ArgumentError for p outside of 0 to 1."""

    def build(self, p: float = 0.5) -> None:
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(type(self).__name__, f"p is {value_text(p)}", "a probability from 0 to 1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return meta.dropout(x, random.next_key(x.device), self.p)[0] if self.p else x

    def forward_infer(self, x: Tensor) -> Tensor:
        return x


class Dropout1d(Dropout):
    """Zeroes whole channels of (n, c, l) with probability p in train mode and scales the others by 1 / (1 - p) (J.
    Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2015)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.dropout1d(x, random.next_key(x.device), self.p) if self.p else x


class Dropout2d(Dropout):
    """Zeroes whole channels of (n, c, h, w); see Dropout1d."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.dropout2d(x, random.next_key(x.device), self.p) if self.p else x


class Dropout3d(Dropout):
    """Zeroes whole channels of (n, c, d, h, w); see Dropout1d."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.dropout3d(x, random.next_key(x.device), self.p) if self.p else x


class AlphaDropout(Dropout):
    """Sets each element to the limit of SELU with probability p in train mode, then scales and shifts so that mean 0
    and variance 1 stay (G. Klambauer et al., "Self-Normalizing Neural Networks", 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.alpha_dropout(x, random.next_key(x.device), self.p)


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels of (n, c, ...)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.feature_alpha_dropout(x, random.next_key(x.device), self.p)
