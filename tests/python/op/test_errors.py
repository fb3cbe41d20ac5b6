"""Invalid calls raise the documented class, with the operator, the expected value and the user's line."""

import pytest

from meta.op.registry import get
from meta.testing.call import OperatorCall
from meta.testing.samples import ErrorCase
from tests.python.op.samples import errors


@pytest.mark.parametrize("case", errors(), ids=repr)
def test_error(case: ErrorCase) -> None:
    args, kwargs = case.numpy()
    call = OperatorCall(get(case.op), args, kwargs).to_meta()
    with pytest.raises(case.error) as caught:
        call.run()
    text = str(caught.value)
    assert case.match in text
    assert text.startswith(f"[{case.op}] "), "the operator comes first"
    assert "; " in text, "what is allowed comes after what was wrong"
    assert __file__ in text.rsplit(" (at ", 1)[-1], "the user's line comes last"
