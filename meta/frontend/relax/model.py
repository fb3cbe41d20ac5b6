"""A network in Relax as a meta Model: run, trained, saved."""

from __future__ import annotations

from meta.frontend.relay.model import RelayModel


class RelaxModel(RelayModel):
    """A network read by `meta.frontend.relax.load`, called with the inputs that are not parameters, in order.

    Its arrays are copies of the parameters, by their names in Relax (`model.state_dict()`). Moving means and variances
    of batch normalisations are buffers.

    In train mode batch normalisations use the statistics of the batch and move their running statistics by `momentum`.
    With momentum 0, and in infer mode, they use the running statistics. Dropout is the identity in both modes.
    """

    subject = "relax"
