"""Would a change make the engine compute or keep values in a dtype that the card's sheet calls absent? Asked of every
reader's changes, so that none proposes what another warns of."""

from __future__ import annotations

from agents.research.dossier import Dossier
from agents.research.kv_cache import FLAG, KvFormatsError, read_formats
from agents.research.served import kv_dtype, plain_dtype
from contracts import Change, Lever

DTYPE = "dtype"


def absent_dtype(change: Change, dossier: Dossier) -> str | None:
    """The reason in words, or None: the card has it, or it is not known."""
    model, sheet = dossier.model, dossier.sheet
    if model is None or sheet is None or change.lever != Lever.ENGINE_FLAG:
        return None
    flags = {**dossier.spec.flags, change.key: change.after}
    where = f"configs/cards/{sheet.arch}.yaml"
    if change.key == DTYPE:
        name = plain_dtype(model, flags)
        return f"it leads to {name}, which {where} calls absent" if name in sheet.absent else None
    if change.key == FLAG:
        value = kv_dtype(model, flags)
        try:
            form = next((f for f in read_formats() if value in f.flags), None)
        except KvFormatsError:
            return None
        if form is not None and not form.runs_on(sheet):
            return f"it leads to a KV cache of {value}, which needs {' or '.join(form.needs)}: not native in {where}"
    return None
