"""TE computes, and the functions on TE expressions, that several operator families share."""
