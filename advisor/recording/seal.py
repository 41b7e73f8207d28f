"""Which runs this user recorded: only what they started may be started again without being typed. A record
that came with a folder of someone else lacks the seal, which takes the key in the user's home folder."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from advisor.model.run import Run
from advisor.writing import rename

#: Bytes of the key.
_LENGTH = 32


def sealed(run: Run) -> Run:
    """The run with the seal of what would be started again; without one where the user has no home folder
    that can be written to."""
    key = _key() or _made()
    return run.replaced(seal=_seal(run, key) if key is not None else None)


def holds(run: Run) -> bool:
    """Whether this user recorded the run with this command, these options and these variables."""
    key = _key()
    return run.seal is not None and key is not None and hmac.compare_digest(run.seal, _seal(run, key))


def _seal(run: Run, key: bytes) -> str:
    started = (run.recorder, run.command, run.options, run.variables, run.request, run.at_most)
    return hmac.digest(key, json.dumps(started, sort_keys=True).encode(), "sha256").hex()


def key_path() -> Path:
    """Where the key lies: in the folder of programs' state (`XDG_STATE_HOME`). Raises RuntimeError where
    there is no home folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "advisor" / "key"


def _key() -> bytes | None:
    with suppress(OSError, RuntimeError):
        key = key_path().read_bytes()
        return key if len(key) == _LENGTH else None
    return None


def _made() -> bytes | None:
    """A new key, readable by its user only; that of another run which made it meanwhile."""
    with suppress(OSError, RuntimeError):
        path = key_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(prefix=".key.", dir=path.parent)  # readable by its user only
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_LENGTH))
            rename(Path(temporary), path, new=True)
        except OSError:  # FileExistsError: another run has made it
            os.unlink(temporary)
    return _key()
