"""Private data in a text, and its replacements: paths, hosts, users, secrets, environments.

A path keeps the part that identifies a program, file or library (its last part if that is one, and the
parts after ``site-packages``), so that a redacted capture is still diagnosed alike.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

MARK = "redacted"

#: Names of variables and options that hold a secret; `tokens` and `num_tokens` are counts.
SECRET_NAME = re.compile(
    r"(?i)(?:^|[^a-z]|auth|access|bearer|refresh|session)token(?![a-z])|secret|passw|passphrase|api[_-]?key"
    r"|(?:access|account|client|licen[cs]e|private|signing)[_-]?key|credential|[_-](?:pass|pwd)$"
    r"|(?:^|[_-])auth$"
)
#: Names among these whose every value is a secret; behind the others words and counts may follow.
_ALWAYS_SECRET = re.compile(
    r"(?i)(?:secret|credential)(?!s)|passw|passphrase|key|(?:pass|pwd|(?:api|access|hub|lab)_token)$"
)
#: Placeholders for a secret, which are none.
_NO_SECRET = frozenset({"none", "null", "true", "false", "yes", "no", "unset", MARK})
#: Variables that name a person or a machine.
IDENTITY_NAME = re.compile(
    r"^(?:HOST|HOSTNAME|USER|USERNAME|LOGNAME|SUDO_USER|MAIL|SLURM\w*_(?:USER|NODELIST|NODENAME"
    r"|ACCOUNT)|SLURMD_NODENAME|PBS_O_(?:HOST|LOGNAME)|GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL)"
    r"|POD_NAME|NODE_NAME|MASTER_ADDR|COMPUTERNAME|USERDOMAIN)$"
)
#: Common values in these places, which identify no person.
_COMMON = """
root user users admin ubuntu debian centos ec2-user runner nobody guest home local localhost vm
localdomain host hostname docker container default python python3 cli nvidia cuda gpu test tmp work
workspace data app jenkins none unknown redacted linux x86_64 aarch64 true false yes no
vllm sglang pytorch torch triton tritonserver tensorrt trtllm dynamo ray jax huggingface conda mamba mambauser
jovyan coder vscode codespace azureuser opc rocky fedora sagemaker-user appuser nonroot node slurm git oracle
"""
COMMON = frozenset(_COMMON.split()) | {"local (cli)"}  # what nsys calls the machine that it runs on
#: Keys by the prefixes of their issuers, as gitleaks lists them: https://github.com/gitleaks/gitleaks.
#: Words that begin alike (`hf_hub_download`) have no such long part.
_KNOWN_SECRET = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:hf_|api_org_|gh[oprsu]_|npm_|r8_|gsk_|xai-|pplx-|rpa_|lin_api_|ntn_|NRAK-|LTAI"
    r"|fw_(?=[A-Za-z]{0,60}\d)|secret_(?=[A-Za-z]{0,60}\d))[A-Za-z0-9]{16,}\w*"
    r"|(?:[sr]k_(?:live|test|prod)_|sk-(?=(?:proj|svcacct|admin|ant)-[\w-]{32}|[A-Za-z_-]{0,200}\d)|nvapi-"
    r"|github_pat_|dckr_pat_|xox[a-z]-|xapp-|gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-)[\w-]{8,}"
    r"|(?:pypi-AgE|wandb_v1_|lsv2_(?:pt|sk)_|pcsk_|tskey-|hv[bsr]\.|GOCSPX-|ya29\.|AIza|ATATT3|gl(?:sa|c)_"
    r"|GR1348941|AGE-SECRET-KEY-1|dp\.[cps]t\.|do[opr]_v1_|SG\.[\w-]{16,40}\.)[\w=-]{16,}"
    r"|(?:A[KS]IA|ABIA|ACCA)[0-9A-Z]{12,}|(?:dapi|SK|local-|shp(?:at|ca|pa|ss)_|pul-)[0-9a-f]{32,}(?:-\d)?"
    r"|[\w~.]{3}\dQ~[\w~.-]{30,}|[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{20,}"
    r"|\$(?:apr1|argon2\w{1,2}|[1-7]|2[abxy]|y)\$[\w./$=,+-]{16,}|AAAA[BCE]3Nza[\w/+=-]{20,}"
    r"|\d{8,10}:AA[\w-]{30,}|[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}|hooks\.slack\.com/\S+)"
)
#: Words with dots, each looked at once; a part of a JSON Web Token begins with `eyJ`.
_DOTTED = re.compile(r"(?<![\w-])[\w-]{13,}+(?:\.[\w-]*+)+")
_JWT = re.compile(r"(?<![A-Za-z0-9])eyJ[\w-]{10}")
_ASSIGNED = re.compile(
    r"(?P<name>(?:\$env:)?[\w-]{3,64})(?P<sign>\\?[\"']?\s?[=:]\s?)(?![=:])"
    r"(?P<value>\\?\"[^\"\n]{1,2000}\"|\\?'[^'\n]{1,2000}'|[^\s,;\"']+)"
)
_URL = re.compile(r"\b(?P<scheme>[a-z][a-z0-9+-]{1,15})://[^\s\"'<>\0]+", re.I)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]++@(?:(?:[\w-]++\.)+[A-Za-z]{2,}|(?:\d{1,3}\.){3}\d{1,3})\b")
_IPV4 = re.compile(
    r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
    r"(?![\w.])|(?<![\w-])ip(?:-\d{1,3}){4}(?![\w-])"
)
#: The id of a GPU, or of a part of one, as nvidia-smi and CUDA_VISIBLE_DEVICES write it.
_GPU = re.compile(r"\b((?:GPU|MIG)-)([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\b")
#: Credentials behind the word that announces them: of headers, options and queries, of .netrc.
_ANNOUNCED = re.compile(
    r"(?i)(?P<head>\bauthorization\\?[\"']?\s?[:=]\s?\\?[\"']?(?:[a-z][\w-]{1,20}\s+)?(?=[^\s\"',;]{4})"
    r"|\b(?:bearer|basic)\s+(?=[\w.~+/-]{8})"
    r"|(?<![\w-])--?[\w-]{0,40}(?:passw(?:or)?d|passphrase|pass(?=[ \t=]+\S{4})|token|secret|api-?key"
    r"|credentials?)(?:[ \t]+|=)"
    r"|\b(?:login|sshpass|mysql\w{0,10}|twine)\b[^\n;|&]{0,80}?\s-p[ =]?"
    r"|\b(?:curl|wget)\b[^\n;|&]{0,200}?\s(?:-u|--user)[ =]?[^\s:]{1,64}:"
    r"|\bsmbclient\b[^\n;|&]{0,200}?\s-U[ =]?[^\s%]{1,64}%|\bFernet\(b?[\"']?"
    r")[^\s'\">)]+"
)
#: Other values in known places: entries of .netrc, cookies, signed queries, users and hosts of commands.
_PLACED = tuple(
    (re.compile(rf"(?i){pattern}"), replaced)
    for pattern, replaced in (
        (r"\b(login\s+)\S+(\s+password\s+)\S+", rf"\1{MARK}\2{MARK}"),
        (r"\b((?:set-)?cookie\\?[\"']?\s?:\s?)[^\r\n\"']+", rf"\1{MARK}"),
        (r"([?&](?:sig(?:nature)?|key|awsaccesskeyid|x-(?:amz|goog)-[a-z-]{1,30})=)[^\s'\"&]+", rf"\1{MARK}"),
        (r"\b((?:ssh|scp|sftp|rsync)\b[^\n;|&]{0,120}?\s)[\w.-]{1,64}@[\w.-]+", rf"\1{MARK}"),
        (r"(?<![\w.@-])[\w.-]{1,64}@[\w.-]{1,253}(?=:[~/])", MARK),
        # pg:PASSWORD@host: a user or a database with a password, and no scheme before it.
        (r"(?<![\w.:+-])([a-z][\w.+-]{1,40}:)[^\s:@/\"'<>()]{3,200}@[\w.-]+", rf"\1{MARK}"),
        (
            r"(\b(?:sudo|runuser)\s-u\s?|\bsu\s-\s|\bchown\s(?:-R\s)?|\s--uid=|\buid=\d+\()[\w.-]+",
            rf"\1{MARK}",
        ),
        (r"(BasicAuth\()[^\s)]{1,200}[^)]{1,200}", rf"\1{MARK}"),
        (r"(jdbc:oracle:\w{1,9}:)[^\s@]{1,200}(?=@)", rf"\1{MARK}"),
        (r"\b(Linux )[\w.-]+(?= \d+\.\d+\.\d)", rf"\1{MARK}"),
    )
)
_PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.S,
)
#: Keys without a name: hexadecimal, and random letters and digits (see `_random`).
_HEX_KEY = re.compile(r"(?<![\w-])(?:[0-9a-f]{32,}|[0-9A-F]{32,})(?![\w-])")
_BASE64 = re.compile(r"(?<![\w/+.-])[A-Za-z0-9+/]{36,}={0,2}(?![\w/+.-])")
#: Hosts by their full name. Modules of Python have dots too: short endings need a digit or a dash.
_FQDN = re.compile(
    r"(?i)(?<![\w.@/-])(?=[a-z0-9.-]{5,253}(?![\w.-]))"
    r"(?:(?:[a-z0-9-]{1,63}\.)+(?:com|org|edu|gov|mil|internal|corp|intranet|example|lan|(?<=cluster\.)local)"
    r"|(?=[a-z0-9.]*-)[a-z0-9][a-z0-9-]*\.(?:[a-z0-9-]+\.)+(?:net|io|ai|cloud|local|dev|svc|[a-z]{2}))"
    r"(?![\w.-])"
)
_IPV6 = re.compile(
    r"(?i)(?<![\w:])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"
    r"|(?=[0-9a-f:]*\d)(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6})(?![\w:])"
)
#: Sizes and versions look alike with dashes and dots, so these forms need a letter.
_MAC = re.compile(
    r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])"
    r"|(?<![\w.-])(?=[0-9.-]{0,13}[A-Fa-f])(?:(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}"
    r"|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4})(?![\w.-])"
)

_PART = r"[^\s/\\\"'`,;:|<>()\[\]{}=&?*\0]+"
#: Folders may have blanks in their names if another folder follows; the last part may not.
_FOLDER = rf"(?:{_PART}(?: {_PART}){{0,3}}[/\\]{{1,2}})"
_ENDINGS = (
    "py|pyc|so|sh|json|ya?ml|txt|log|bin|sqlite|nsys-rep|qdrep|qdstrm|cu|cpp|cc|c|h|rs|toml|cfg"
    "|ini|conf|pth?|safetensors|onnx|engine|plan|gguf|csv|exe|dll|ipynb|jar|[jt]s|html|md"
)
_PATH = re.compile(
    rf"(?<![\w/\\.~>-])(?:~\w*|[A-Za-z]:|\\|(?<!:)/)?[/\\]{{1,2}}{_FOLDER}+(?:{_PART})?"  # from the root
    rf"|^(?:~\w*)?/{_PART}/?$"
    rf"|(?<![^\s\"'`,;:|()\[\]{{}}=&?*\0])(?:\.\.?/)?(?:{_PART}/)+{_PART}\.(?:{_ENDINGS})(?![\w/])"
    rf"|(?<![\w/\\.~<>-])\.\.?/{_FOLDER}+(?:{_PART})?"
)
#: From here on a path is the same on every machine.
_PACKAGE = re.compile(r"(?:^|[/\\])((?:(?:site|dist)-packages|python\d(?:\.\d+)*)[/\\].+)$")
_BUILD = re.compile(r"(?:^|[/\\])((?:debug|release)[/\\][^/\\]+)$")
_FILE = re.compile(rf"\.(?:{_ENDINGS})(?:\.[\d.]+)?$|[/\\]s?bin[/\\][^/\\]+$|[/\\]\[[^/\\]+$")
_HOME = re.compile(r"(?:[A-Za-z]:)?[/\\](?:home|Users)[/\\][^/\\]+[/\\]?$")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_.%()]*=")
_PRIVATE_KEY = re.compile(
    r"(?i)^(?:.*env(?:ironment)?(?:variables?)?|host(?:name)?|user(?:name)?|login|cwd|pwd|home"
    r"|working_?dir(?:ectory)?|.*(?:ipaddress|macaddress))$"
)


class Scrubber:
    """Removes private data anywhere, and the private words found in this capture."""

    def __init__(
        self, words: Iterable[str] = (), secrets: Iterable[str] = (), gpus: Iterable[str] = ()
    ) -> None:
        """`words` name people and machines, `secrets` are values of variables, `gpus` ids of GPUs."""
        self.secrets = tuple(sorted(filter(_is_secret, set(secrets)), key=len, reverse=True))
        self.words = tuple(sorted({w for w in words if is_identifying(w)}, key=len, reverse=True))
        self._words = _any_word(self.words)
        self._secrets = _any_of(self.secrets)
        self._gpus = _any_of(tuple(sorted(set(gpus))))
        self.text = lru_cache(maxsize=1 << 16)(self._text)
        self.name = lru_cache(maxsize=1 << 16)(self._name)
        self.program = lru_cache(maxsize=1 << 16)(self._program)

    def _text(self, text: str) -> str:
        """A text of any kind."""
        if is_environment(text):
            return ""
        if text[:1] in ("{", "["):
            document = self._document(text)
            if document is not None:
                return document
        return self._plain(text)

    def _name(self, text: str) -> str:
        """The name of a kernel or call: a word in it is not a person."""
        if is_environment(text):
            return MARK  # a kernel has a name
        text = _EMAIL.sub(MARK, credentials(self._without_secrets(text)))
        return _paths(_MAC.sub(MARK, _IPV4.sub(MARK, _IPV6.sub(MARK, _FQDN.sub(MARK, text)))))

    def _program(self, text: str) -> str:
        """The path of a program or library: its last part identifies it."""
        return "" if is_environment(text) else self._plain(text, program=True)

    def names_someone(self, text: str) -> int | None:
        """Where a text holds the name of a person or machine of this capture."""
        found = self._words.search(text) if self._words else None
        return None if found is None else found.start()

    def _plain(self, text: str, program: bool = False) -> str:
        text = credentials(self._without_secrets(text))
        text = _BASE64.sub(_random, text)
        text = _paths(_EMAIL.sub(MARK, text), program)
        text = _MAC.sub(MARK, _IPV4.sub(MARK, _IPV6.sub(MARK, _FQDN.sub(MARK, text))))
        return self._words.sub(MARK, text) if self._words else text

    def _without_secrets(self, text: str) -> str:
        text = self._secrets.sub(MARK, text) if self._secrets else text
        text = self._gpus.sub(lambda m: other_gpu(m[0]), text) if self._gpus else text
        return _GPU.sub(lambda m: f"{m[1]}{other_gpu(m[2])}", text)

    def _document(self, text: str) -> str | None:
        """JSON with its values redacted; None if it is not JSON."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return None
        clean = self._value(document)
        return text if clean == document else json.dumps(clean, ensure_ascii=False)

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._plain(k): MARK if _is_private(k, v) else self._value(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._value(v) for v in value]
        return self._text(value) if isinstance(value, str) else value


def _is_private(key: str, value: Any) -> bool:
    """Whether a key of JSON says that its value, unless it is empty, is private as a whole."""
    if isinstance(value, str) and value and SECRET_NAME.search(key):
        return True
    return isinstance(value, str | list | dict) and bool(value and _PRIVATE_KEY.match(key))


def other_gpu(serial: str) -> str:
    """The substitute of a GPU's id: as long, the same in every capture of that GPU, and not reversible."""
    digest = iter(hashlib.sha256(serial.lower().encode("utf-8", "surrogateescape")).hexdigest() * 2)
    return "".join(next(digest) if c.isalnum() else c for c in serial)


def is_identifying(word: str) -> bool:
    """Whether a word can name one person or machine: long enough, and not on every machine."""
    return len(word) >= 3 and word.lower() not in COMMON and not word.isdigit()


def _is_secret(value: str) -> bool:
    """Whether a value can be searched for everywhere: not a plain short word, such as `enabled`."""
    return len(value) >= 10 or (len(value) >= 6 and not value.isalpha())


def is_environment(text: str) -> bool:
    """Variables one after the other, as exports keep whole environments in one string."""
    for separator in ("\0", "\n", ";"):
        if text.count(separator) >= 2:
            parts = [p for p in text.split(separator) if p.strip()]
            named = sum(bool(_VARIABLE.match(p.strip())) for p in parts)
            if named >= 3 and named >= 0.6 * len(parts):
                return True
    return False


def variables(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of an environment in one string, or of a single ``NAME="value"``."""
    separator = next((s for s in ("\0", "\n", ";") if is_environment(text) and s in text), None)
    for part in text.split(separator) if separator else [text]:
        name, sign, value = part.strip().partition("=")
        if sign:
            yield name, value.strip('"')


def path_users(text: str) -> Iterator[str]:
    """Users whose home folder is part of a path."""
    if "/" in text or "\\" in text:
        for match in re.finditer(r"(?:/home/|/Users/|[A-Za-z]:\\{1,2}Users\\{1,2})([\w.-]+)", text):
            yield match[1]


def credentials(text: str) -> str:
    """The text without secrets recognisable by their shape or name."""
    text = _KNOWN_SECRET.sub(MARK, _DOTTED.sub(_token, _PEM.sub(MARK, text)))
    text = _ANNOUNCED.sub(rf"\g<head>{MARK}", text)
    for pattern, replaced in _PLACED:
        text = pattern.sub(replaced, text)
    text = _URL.sub(lambda m: f"{m['scheme']}://{MARK}", _ASSIGNED.sub(_assigned, text))
    return _HEX_KEY.sub(MARK, text)


def _token(match: re.Match[str]) -> str:
    """Without the JSON Web Token in it, from its first letter on."""
    found = _JWT.search(match[0], 0, match[0].rindex("."))
    return match[0] if found is None else f"{match[0][: found.start()]}{MARK}"


def _random(match: re.Match[str]) -> str:
    """A long word of both cases and digits is a key; paths and names have separators or one case."""
    word = match[0]
    kinds = (str.isupper, str.islower, str.isdigit)
    return MARK if all(sum(map(kind, word)) >= 4 for kind in kinds) else word


def _assigned(match: re.Match[str]) -> str:
    """A name of a secret with its value; after `token` and `auth` only likely keys."""
    name, value = match["name"], match["value"]
    inside = value.strip("\\\"'")
    if IDENTITY_NAME.match(name) and is_identifying(inside):
        return f"{name}{match['sign']}{MARK}"
    folder = inside[:1] in ("/", "~", ".") or inside[1:2] == ":"
    named = SECRET_NAME.search(name) or (name.lower() == "pwd" and not folder)
    if not named or inside.lower() in _NO_SECRET:
        return match[0]
    mixed = len(inside) >= 8 and any(map(str.isdigit, inside)) and any(map(str.isalpha, inside))
    if not (mixed or _ALWAYS_SECRET.search(name) or re.search(r"[A-Za-z]{16}", inside)):
        return match[0]
    return f"{name}{match['sign']}{value.replace(inside, MARK)}"


def _paths(text: str, program: bool = False) -> str:
    if "/" not in text and "\\" not in text:
        return text
    return _PATH.sub(lambda m: _path(m[0], program), text)


def _path(path: str, program: bool) -> str:
    """The path without its folders, except folders that identify a package or build. A last part without an
    ending may be a folder, so it stays only where programs live."""
    from_root = path[:1] in ("/", "~", "\\") or path[1:2] == ":"
    start = f"/{MARK}" if from_root else MARK
    kept = _PACKAGE.search(path) or _BUILD.search(path)
    last = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    if path in (f"./{last}", last, f"{start}/{last}"):
        return path  # no folder in it
    if kept:
        return f"{start}/{kept[1]}"
    if _HOME.match(path) or not (program or _FILE.search(path)):
        return start
    return f"{start}/{last}"


def _any_word(words: tuple[str, ...]) -> re.Pattern[str] | None:
    """The words where they stand alone. One of six signs, or with a digit or dash, may also be part of a
    name (`zoelind_run`); a short one may be part of another word there (`max_tokens`)."""
    long = [w for w in words if len(w) >= 6 or not w.isalpha()]
    short = [w for w in words if w not in long]
    parts = ("|".join(map(re.escape, each)) for each in (long, short))
    forms = [form.format(part) for form, part in zip(("{}", "(?<!_)(?:{})(?!_)"), parts, strict=True) if part]
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(forms)})(?![A-Za-z0-9])") if forms else None


def _any_of(texts: tuple[str, ...], before: str = "", after: str = "") -> re.Pattern[str] | None:
    if not texts:
        return None
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, texts))}){after}")
