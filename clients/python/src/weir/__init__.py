"""weir: may this go through?

    from weir import Weir, detect

    weir = Weir.connect("redis://127.0.0.1:6380")          # the service `weir serve`
    weir = Weir.open(rules="rules.yaml", cells="cells")    # or in this process

    @detect(weir, "ocr", key="user_id")
    def submit_ocr_task(user_id: str, image_url: str) -> str: ...

A call that is too frequent raises TooFrequent, which has the verdict. Costs that are known only later are held:

    async with weir.reserve(event="llm", key=user, costs={"tokens": 4000}, ttl=60) as hold:
        await hold.settle(costs={"tokens": (await ask_model()).usage.total_tokens})
"""

from ._asgi import WeirASGI
from ._base import Weir
from ._detect import detect
from ._hold import AsyncHold, Hold, Reservation
from ._verdict import TooFrequent, Verdict, WeirError
from ._wsgi import WeirWSGI

__all__ = [
    "AsyncHold",
    "Hold",
    "Reservation",
    "TooFrequent",
    "Verdict",
    "Weir",
    "WeirASGI",
    "WeirError",
    "WeirWSGI",
    "detect",
]
