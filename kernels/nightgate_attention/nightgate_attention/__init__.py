"""Two levers of vLLM's attention that have no setting upstream, as a general plugin.

NIGHTGATE_ATTENTION_PRIORITY="TRITON_ATTN,ROCM_ATTN": these back ends are tried first, in this order; the platform's own
list follows (order.py). NIGHTGATE_ATTENTION_CLASS="TRITON_ATTN=package.module:Class": this class stands for that name
(classes.py). With neither set nothing is imported and nothing is touched.

Where the installed vLLM is not made as expected, the plugin says so in one line and raises: an engine that starts
without the change would be measured as if it had it. Names and places were read in vLLM 0.30.0, 0.32.0 and 0.33.0; on
an AMD card it has not run.
"""

from __future__ import annotations

import os

from .words import CLASS, PRIORITY


def register() -> None:
    """Entry point of the group vllm.general_plugins; vLLM calls it once in each of its processes."""
    priority, own = (os.environ.get(name, "").strip() for name in (PRIORITY, CLASS))
    if priority:
        from .order import put_first

        put_first(priority)
    if own:
        from .classes import put_in

        put_in(own)
