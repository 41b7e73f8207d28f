"""Rule schema, version 1: the contents of one rule file. Data only; meaning lives in ``advisor.engine``.

Every model is strict, frozen and refuses unknown keys, so that a typing error in a rule file is an error
with a line and never a rule with another meaning.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from advisor.model.facts import Level, Severity, Subject, Unit
from advisor.model.operands import Comparison, Items, Operand, Strict

Kind = Literal["symptom", "cause", "limit", "note", "question"]
Reply = Literal["yes", "partly", "no", "not_applicable"]
Lifecycle = Literal["preview", "stable", "deprecated", "removed"]

CODE_PATTERN = r"^[A-Z]{3,8}[0-9]{3}$"
_CAPTURE_RULES = "CAP"
FactName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Kebab = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Prose = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Short = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Param(Strict):
    """A named threshold: default, unit, and where the number comes from. A parameter that a symptom of
    the rule compares with may set that of the symptom, `CODE.name`."""

    default: Operand
    unit: Unit
    origin: Literal["seed", "peer", "measured"]
    source: str | None = None
    sets: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}\d{3}\.[a-z][a-z0-9_]*$")] | None = None


class FactCondition(Comparison):
    """``fact op operand``: unknown if the fact has no value, except for `known`, which asks just that."""

    fact: FactName


class WideCondition(FactCondition):
    """With `over` it is about the values of the fact here and in every narrower scope: `any` of them or
    `every` one. A capture without a value counts as unknown."""

    over: Literal["any", "every"] | None = None


class SymptomCondition(Strict):
    """True if the symptom fired: here or wider; with ``over: any``, here or narrower."""

    symptom: Kebab
    over: Literal["any"] | None = None


class CauseCondition(Strict):
    """The same for a cause or a note."""

    cause: Kebab
    over: Literal["any"] | None = None


class FactGuard(FactCondition):
    if_unknown: Literal["pass"] | None = None


class SymptomGuard(SymptomCondition):
    if_unknown: Literal["pass"] | None = None


class CauseGuard(CauseCondition):
    if_unknown: Literal["pass"] | None = None


def _which(value: Any) -> str | None:
    """The tag of a condition. Tags start with "=", which no key does, so they are easily left out."""
    for key in ("fact", "symptom", "cause"):
        if (key in value) if isinstance(value, dict) else hasattr(value, key):
            return f"={key}"
    return None


_KIND = Discriminator(
    _which,
    custom_error_type="condition",
    custom_error_message="a condition starts with one of `fact`, `symptom`, `cause`",
)
Condition = Annotated[
    Annotated[WideCondition, Tag("=fact")]
    | Annotated[SymptomCondition, Tag("=symptom")]
    | Annotated[CauseCondition, Tag("=cause")],
    _KIND,
]
Guard = Annotated[
    Annotated[FactGuard, Tag("=fact")]
    | Annotated[SymptomGuard, Tag("=symptom")]
    | Annotated[CauseGuard, Tag("=cause")],
    _KIND,
]
FlagOrFact = Annotated[
    Annotated[bool, Tag("=flag")] | Annotated[FactCondition, Tag("=fact")],
    Discriminator(lambda v: "=fact" if isinstance(v, dict | FactCondition) else "=flag"),
]
Conditions = Annotated[tuple[Condition, ...], Items, Field(min_length=1, max_length=8)]


class Answer(Strict):
    """The answer to a question, and what would record enough for a better one."""

    reply: Reply
    reason: Annotated[str, StringConstraints(max_length=4000)] = ""
    remedy: Prose | None = None


class All(Strict):
    """One branch: every condition holds. In a question it gives the answer."""

    all: Conditions
    answer: Answer | None = None


class Where(Comparison):
    """``field op operand`` on a row of an entity table."""

    field: Name

    @model_validator(mode="after")
    def _compares(self) -> Self:
        if self.op == "known":
            raise ValueError("`known` is for facts; a row without the field matches nothing")
        return self


class Join(Strict):
    """Rows of one entity table that lie in the scope of the rule (`on`) and satisfy `where`."""

    as_: Name = Field(alias="as", serialization_alias="as_")  # documents have always said `as_`
    entity: Name
    on: Annotated[
        tuple[Literal["rank", "device", "process", "phase", "operation"], ...],
        Items,
        Field(min_length=1, max_length=5),
    ]
    optional: bool = False
    where: Annotated[tuple[Where, ...], Items, Field(max_length=8)] = ()


class When(Strict):
    """``any`` of 1..6 branches; ``all`` alone is the short form of one branch."""

    any: Annotated[tuple[All, ...], Items, Field(min_length=1, max_length=6)] | None = None
    all: Conditions | None = None
    join: Annotated[tuple[Join, ...], Items, Field(max_length=4)] = ()

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.any is None) == (self.all is None):
            raise ValueError("give exactly one of `any` and `all`")
        names = [j.as_ for j in self.join]
        if len(set(names)) != len(names):
            raise ValueError("two joins have the same `as`; rename one")
        return self

    @property
    def branches(self) -> tuple[tuple[Condition, ...], ...]:
        """The disjunctive form, whichever way it was written."""
        return ((self.all or ()),) if self.any is None else tuple(b.all for b in self.any)


class OtherCause(Strict):
    """Another cause, where all of `when` holds."""

    cause: Kebab
    when: Annotated[tuple[FactCondition, ...], Items, Field(max_length=4)] = ()


class Then(Strict):
    """`explains`: symptoms folded in. `overrules` and, in places, `overrules_where`: causes then left
    out. `same_as`: of the two the one whose fix saves more remains; if they are equal, the other one.
    `one_for`: where the rule fires in several scopes with one value of this fact, that is one finding."""

    explains: Annotated[tuple[Kebab, ...], Items] = ()
    overrules: Annotated[tuple[Kebab, ...], Items] = ()
    overrules_where: Annotated[tuple[OtherCause, ...], Items, Field(max_length=12)] = ()
    same_as: Annotated[tuple[OtherCause, ...], Items, Field(max_length=4)] = ()
    one_for: FactName | None = None


class Requirement(Strict):
    """A cause whose fix comes before this rule's: while it is present, this fix fails or gains less."""

    cause: Kebab
    because: Prose


class ImpactSpec(Strict):
    """The fact for the share of the step that the cause holds (`otherwise`: where a capture lacks it), and
    its part of the budget; `also` are further parts whose time the rule is about."""

    fact: FactName
    otherwise: FactName | None = None
    part: str
    also: Annotated[tuple[str, ...], Items] = ()

    @property
    def facts(self) -> tuple[str, ...]:
        """Both, the preferred one first."""
        return (self.fact,) if self.otherwise is None else (self.fact, self.otherwise)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.part, *self.also


class SeverityLevel(Strict):
    at: Finite
    severity: Severity


class SeveritySpec(Strict):
    """By the global table or `levels` of the impact, at most `cap`; by a share of slow steps, `tail`, if
    more. Without an estimate at most medium, unless all that the cause holds is `lost`. What the analysis
    has set `aside`, so that no other finding counts it, is never high, and behind all others above info."""

    cap: Severity | None = None
    lost: FlagOrFact = False
    aside: FlagOrFact = False
    tail: FactName | None = None
    levels: Annotated[tuple[SeverityLevel, ...], Items, Field(max_length=4)] = ()

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        marks = [level.at for level in self.levels]
        if marks != sorted(set(marks)):
            raise ValueError("`levels` must rise strictly in `at`; reorder them")
        return self


class ConfidenceSpec(Strict):
    """`base` is how often the advice is judged to hold once the rule fired, `right` and `wrong` in how
    many captures with a known answer it did and did not; `method`, how the facts were measured."""

    method: Literal["measured", "inferred", "assumed"]
    base: Annotated[float, Field(ge=0.0, le=1.0)]
    right: Annotated[int, Field(ge=0)] = 0
    wrong: Annotated[int, Field(ge=0)] = 0


class Doubt(Strict):
    """What a capture cannot show, so that the finding states it: where all of `when` holds, `factor`
    multiplies the confidence, the severity is at most `cap`, and `text` follows the message."""

    when: Annotated[tuple[FactCondition, ...], Items, Field(min_length=1, max_length=4)]
    factor: Annotated[float, Field(gt=0.0, le=1.0)]
    cap: Severity | None = None
    text: Prose


class GainSpec(Strict):
    """The what-if that estimates the gain, if `applies_when` holds, else the next one, `otherwise`."""

    what_if: Name
    params: dict[str, Operand] = Field(default_factory=dict)
    measure: Literal["latency", "throughput"] = "latency"
    per: Literal["step", "token", "item"] = "step"
    applies_when: Annotated[tuple[FactCondition, ...], Items, Field(max_length=4)] = ()
    otherwise: GainSpec | None = None

    @property
    def choices(self) -> tuple[GainSpec, ...]:
        """The what-ifs in the order of preference."""
        return (self, *(self.otherwise.choices if self.otherwise else ()))


class VerifySpec(Strict):
    fact: FactName
    expect: Literal["decrease", "increase", "present", "absent"]


class Action(Strict):
    """`id` is the key by which serving engines list the options that carry the action out. Shown where all
    of `applies_when` holds, and where that is not known only if `if_unknown` has words for it: "If
    `if_unknown`: `action`". `provided` has words for what has to hold and no capture shows."""

    id: Kebab
    action: Prose
    effort: Literal["low", "medium", "high"]
    applies_when: Annotated[tuple[FactCondition, ...], Items, Field(max_length=6)] = ()
    if_unknown: Short | None = None
    provided: Short | None = None


class Recommendation(Action):
    """`gain`: what this action by itself would gain, where it is a part of what the rule's own fix does."""

    verify: VerifySpec | None = None
    gain: GainSpec | None = None


class Alternative(Action):
    gain: GainSpec | None = None


class Docs(Strict):
    """The one text behind ``advisor explain``, the documentation page and SARIF help."""

    what: Prose
    why: Prose
    harmless_when: Prose
    fix: Prose | None = None
    verify: Prose | None = None
    references: Annotated[tuple[str, ...], Items] = ()


class Needs(Strict):
    """The capture option that supplies the facts of the rule."""

    flag: str


class RuleSpec(Strict):
    """One file, one code, one cause. A quiet rule is in order only where what it `looks_at` is there: where
    one of these holds, or it names none."""

    schema_: Literal[1] = Field(alias="schema")
    code: Annotated[str, StringConstraints(pattern=CODE_PATTERN)]
    cause: Kebab
    title: Short
    kind: Kind
    scope: Level
    subject: Subject = "trace"
    lifecycle: Lifecycle
    invalidates: FlagOrFact = False
    withholds: FlagOrFact = False
    withholds_health: FlagOrFact = False
    params: dict[Name, Param] = Field(default_factory=dict)
    when: When
    otherwise: Answer | None = None
    unless: Annotated[tuple[Guard, ...], Items, Field(max_length=8)] = ()
    then: Then = Then()
    requires: Annotated[tuple[Requirement, ...], Items, Field(max_length=12)] = ()
    looks_at: Annotated[tuple[FactCondition, ...], Items, Field(max_length=6)] = ()
    impact: ImpactSpec | None = None
    severity: SeveritySpec = SeveritySpec()
    confidence: ConfidenceSpec
    doubts: Annotated[tuple[Doubt, ...], Items, Field(max_length=8)] = ()
    gain: GainSpec | None = None
    message: Prose
    healthy: Prose | None = None
    evidence: Annotated[tuple[str, ...], Items, Field(max_length=8)] = ()
    recommendations: Annotated[tuple[Recommendation, ...], Items, Field(max_length=16)] = ()
    alternatives: Annotated[tuple[Alternative, ...], Items, Field(max_length=8)] = ()
    docs: Docs
    needs: Needs | None = None

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers of a question: one a branch, of which the first that holds counts, then `otherwise`."""
        given = (*(b.answer for b in self.when.any or ()), self.otherwise)
        return tuple(a for a in given if a is not None)

    @model_validator(mode="after")
    def _one_answer_a_branch(self) -> Self:
        asked = self.kind == "question"
        last = asked and (self.otherwise is not None or self.subject == "recording")
        wanted = len(self.when.any or ()) + last if asked else 0
        if len(self.answers) != wanted or (asked and not wanted):
            raise ValueError(
                "a question has an `answer` in each branch of `any`, and `otherwise`"
                if asked
                else "`answer` and `otherwise` belong to questions; remove them"
            )
        if self.subject == "recording" and not all(a.reason for a in self.answers):
            raise ValueError("an answer about a recording has a `reason`")
        word = "not_applicable" if self.subject == "recording" else "partly"
        if any(a.reply == word for a in self.answers):
            raise ValueError(f"a question of subject {self.subject} is never answered {word}")
        return self

    @model_validator(mode="after")
    def _no_finding(self) -> Self:
        """Questions, and the symptoms that they refer to, produce no findings."""
        if (self.kind == "question") != (self.subject == "checklist") and self.subject != "recording":
            raise ValueError("a question has `subject: recording` or `subject: checklist`, as only it has")
        if self.subject == "recording" and self.kind not in ("question", "symptom"):
            raise ValueError("`subject: recording` is for questions and symptoms")
        return self


def judges_capture(code: str) -> bool:
    """Whether a rule judges the capture itself: its findings stand even if the rows cannot be believed."""
    return code.startswith(_CAPTURE_RULES)
