"""Rule schema, version 1: the contents of one rule file. Data only; meaning lives in ``advisor.engine``.

Every model is strict, frozen and refuses unknown keys, so that a typing error in a rule file is an error
with a line and never a rule with another meaning.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import field, to_builtins

from advisor.model.facts import Level, Severity, Subject, Unit
from advisor.model.file_content import Constraint, OwnType
from advisor.model.operands import Comparison, Operand, Strict

Kind = Literal["symptom", "cause", "limit", "note", "question"]
Reply = Literal["yes", "partly", "no", "not_applicable"]
Origin = Literal["measured", "documented", "computed", "judged", "seed", "peer"]
Lifecycle = Literal["preview", "stable", "deprecated", "removed"]

CODE_PATTERN = r"^[A-Z]{3,8}[0-9]{3}$"
_CAPTURE_RULES = "CAP"
FactName = Annotated[str, Constraint(pattern=r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$")]
Name = Annotated[str, Constraint(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Kebab = Annotated[str, Constraint(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Prose = Annotated[str, Constraint(min_length=1, max_length=4000)]
Short = Annotated[str, Constraint(min_length=1, max_length=100)]


class Param(Strict, frozen=True, kw_only=True):
    """A named threshold: default, unit, and where the number comes from: `measured` on `captures` in which
    it lets the rule fire, `documented` by its `source` (before: `seed` or `peer`), `computed`, or `judged`.
    A parameter that a symptom of the rule compares with may set that of the symptom, `CODE.name`."""

    default: Operand
    unit: Unit
    origin: Origin
    source: str | None = None
    captures: Annotated[tuple[Prose, ...], Constraint(max_length=8)] = ()
    sets: Annotated[str, Constraint(pattern=r"^[A-Z]{3}\d{3}\.[a-z][a-z0-9_]*$")] | None = None


class Condition(OwnType):
    """A condition: about a fact, a symptom or a cause, which its first key tells."""

    __slots__ = ()


class Guard(OwnType):
    """The same in `unless`: with `if_unknown` it is no obstacle where its fact or outcome is unknown."""

    __slots__ = ()
    if_unknown: Literal["pass"] | None


class FactCondition(Comparison, frozen=True, kw_only=True):
    """``fact op operand``: unknown if the fact has no value, except for `known`, which asks just that."""

    fact: FactName


class WideCondition(FactCondition, Condition, frozen=True, kw_only=True):
    """With `over` it is about the values of the fact here and in every narrower scope: `any` of them or
    `every` one. A capture without a value counts as unknown."""

    over: Literal["any", "every"] | None = None


class SymptomCondition(Strict, Condition, frozen=True, kw_only=True):
    """True if the symptom fired: here or wider; with ``over: any``, here or narrower."""

    symptom: Kebab
    over: Literal["any"] | None = None


class CauseCondition(Strict, Condition, frozen=True, kw_only=True):
    """The same for a cause or a note."""

    cause: Kebab
    over: Literal["any"] | None = None


class FactGuard(FactCondition, Guard, frozen=True, kw_only=True):
    if_unknown: Literal["pass"] | None = None


class SymptomGuard(SymptomCondition, Guard, frozen=True, kw_only=True):
    if_unknown: Literal["pass"] | None = None


class CauseGuard(CauseCondition, Guard, frozen=True, kw_only=True):
    if_unknown: Literal["pass"] | None = None


Condition.kinds = {"fact": WideCondition, "symptom": SymptomCondition, "cause": CauseCondition}
Guard.kinds = {"fact": FactGuard, "symptom": SymptomGuard, "cause": CauseGuard}
AnyCondition = FactCondition | SymptomCondition | CauseCondition
FlagOrFact = bool | FactCondition
Conditions = Annotated[tuple[Condition, ...], Constraint(min_length=1, max_length=8)]


class Answer(Strict, frozen=True, kw_only=True):
    """The answer to a question, and what would record enough for a better one."""

    reply: Reply
    reason: Annotated[str, Constraint(max_length=4000)] = ""
    remedy: Prose | None = None


class All(Strict, frozen=True, kw_only=True):
    """One branch: every condition holds. In a question it gives the answer."""

    all: Conditions
    answer: Answer | None = None


class Where(Comparison, frozen=True, kw_only=True):
    """``field op operand`` on a row of an entity table."""

    field: Name

    def __post_init__(self) -> None:
        Comparison.__post_init__(self)
        if self.op == "known":
            raise ValueError("`known` is for facts; a row without the field matches nothing")


class Join(Strict, frozen=True, kw_only=True):
    """Rows of one entity table that lie in the scope of the rule (`on`) and satisfy `where`."""

    as_: Name = field(name="as")
    entity: Name
    on: Annotated[
        tuple[Literal["rank", "device", "process", "phase", "operation"], ...],
        Constraint(min_length=1, max_length=5),
    ]
    optional: bool = False
    where: Annotated[tuple[Where, ...], Constraint(max_length=8)] = ()


class When(Strict, frozen=True, kw_only=True):
    """``any`` of 1..6 branches; ``all`` alone is the short form of one branch."""

    any: Annotated[tuple[All, ...], Constraint(min_length=1, max_length=6)] | None = None
    all: Conditions | None = None
    join: Annotated[tuple[Join, ...], Constraint(max_length=4)] = ()

    def __post_init__(self) -> None:
        if (self.any is None) == (self.all is None):
            raise ValueError("give exactly one of `any` and `all`")
        names = [j.as_ for j in self.join]
        if len(set(names)) != len(names):
            raise ValueError("two joins have the same `as`; rename one")

    @property
    def branches(self) -> tuple[tuple[Condition, ...], ...]:
        """The disjunctive form, whichever way it was written."""
        return ((self.all or ()),) if self.any is None else tuple(b.all for b in self.any)


class OtherCause(Strict, frozen=True, kw_only=True):
    """Another cause, where all of `when` holds."""

    cause: Kebab
    when: Annotated[tuple[FactCondition, ...], Constraint(max_length=4)] = ()


class Then(Strict, frozen=True, kw_only=True):
    """`explains`: symptoms folded in. `overrules` and, in places, `overrules_where`: causes then left
    out. `same_as`: of the two the one whose fix saves more remains; if they are equal, the other one.
    `one_for`: where the rule fires in several scopes with one value of this fact, that is one finding."""

    explains: tuple[Kebab, ...] = ()
    overrules: tuple[Kebab, ...] = ()
    overrules_where: Annotated[tuple[OtherCause, ...], Constraint(max_length=12)] = ()
    same_as: Annotated[tuple[OtherCause, ...], Constraint(max_length=4)] = ()
    one_for: FactName | None = None


class Requirement(Strict, frozen=True, kw_only=True):
    """A cause whose fix comes before this rule's: while it is present, this fix fails or gains less."""

    cause: Kebab
    because: Prose


class ImpactSpec(Strict, frozen=True, kw_only=True):
    """The fact for the share of the step that the cause holds (`otherwise`: where a capture lacks it), and
    its part of the budget; `also` are further parts whose time the rule is about."""

    fact: FactName
    otherwise: FactName | None = None
    part: str
    also: tuple[str, ...] = ()

    @property
    def facts(self) -> tuple[str, ...]:
        """Both, the preferred one first."""
        return (self.fact,) if self.otherwise is None else (self.fact, self.otherwise)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.part, *self.also


class SeverityLevel(Strict, frozen=True, kw_only=True):
    at: float
    severity: Severity


class SeveritySpec(Strict, frozen=True, kw_only=True):
    """By the global table or `levels` of the impact, at most `cap`; by a share of slow steps, `tail`, if
    more. Without an estimate at most medium, unless all that the cause holds is `lost`. What the analysis
    has set `aside`, so that no other finding counts it, is never high, and behind all others above info."""

    cap: Severity | None = None
    lost: FlagOrFact = False
    aside: FlagOrFact = False
    tail: FactName | None = None
    levels: Annotated[tuple[SeverityLevel, ...], Constraint(max_length=4)] = ()

    def __post_init__(self) -> None:
        marks = [level.at for level in self.levels]
        if marks != sorted(set(marks)):
            raise ValueError("`levels` must rise strictly in `at`; reorder them")


class ConfidenceSpec(Strict, frozen=True, kw_only=True):
    """`base` is how often the advice is judged to hold once the rule fired, `right` and `wrong` in how
    many captures with a known answer it did and did not; `method`, how the facts were measured."""

    method: Literal["measured", "inferred", "assumed"]
    base: Annotated[float, Constraint(ge=0.0, le=1.0)]
    right: Annotated[int, Constraint(ge=0)] = 0
    wrong: Annotated[int, Constraint(ge=0)] = 0


class Scene(Strict, frozen=True, kw_only=True):
    """A test that makes a capture with the cause in it, in which the rule fires, and its `partner` without
    the cause, in which the rule is judged and quiet. Both by their pytest ids; a test may make both."""

    cause: Prose
    partner: Prose


class ShownBy(Strict, frozen=True, kw_only=True):
    """Where the cause is known and the rule fires: captures that are labelled with it, and scenes."""

    captures: Annotated[tuple[Prose, ...], Constraint(max_length=8)] = ()
    scenes: Annotated[tuple[Scene, ...], Constraint(max_length=4)] = ()

    def __post_init__(self) -> None:
        if not self.captures and not self.scenes:
            raise ValueError("name a capture or a scene, or leave `shown_by` out")


class Doubt(Strict, frozen=True, kw_only=True):
    """What a capture cannot show, so that the finding states it: where all of `when` holds, `factor`
    multiplies the confidence, the severity is at most `cap`, and `text` follows the message."""

    when: Annotated[tuple[FactCondition, ...], Constraint(min_length=1, max_length=4)]
    factor: Annotated[float, Constraint(gt=0.0, le=1.0)]
    cap: Severity | None = None
    text: Prose


class GainSpec(Strict, frozen=True, kw_only=True):
    """The what-if that estimates the gain, if `applies_when` holds, else the next one, `otherwise`."""

    what_if: Name
    params: dict[str, Operand] = field(default_factory=dict)
    measure: Literal["latency", "throughput"] = "latency"
    per: Literal["step", "token", "item"] = "step"
    applies_when: Annotated[tuple[FactCondition, ...], Constraint(max_length=4)] = ()
    otherwise: GainSpec | None = None

    @property
    def choices(self) -> tuple[GainSpec, ...]:
        """The what-ifs in the order of preference."""
        return (self, *(self.otherwise.choices if self.otherwise else ()))


class VerifySpec(Strict, frozen=True, kw_only=True):
    fact: FactName
    expect: Literal["decrease", "increase", "present", "absent"]


class Action(Strict, frozen=True, kw_only=True):
    """`id` is the key by which serving engines list the options that carry the action out. Shown where all
    of `applies_when` holds, and where that is not known only if `if_unknown` has words for it: "If
    `if_unknown`: `action`". `provided` has words for what has to hold and no capture shows."""

    id: Kebab
    action: Prose
    effort: Literal["low", "medium", "high"]
    applies_when: Annotated[tuple[FactCondition, ...], Constraint(max_length=6)] = ()
    if_unknown: Short | None = None
    provided: Short | None = None


class Recommendation(Action, frozen=True, kw_only=True):
    """`gain`: what this action by itself would gain, where it is a part of what the rule's own fix does."""

    verify: VerifySpec | None = None
    gain: GainSpec | None = None


class Alternative(Action, frozen=True, kw_only=True):
    gain: GainSpec | None = None


class Docs(Strict, frozen=True, kw_only=True):
    """The one text behind ``advisor explain``, the documentation page and SARIF help."""

    what: Prose
    why: Prose
    harmless_when: Prose
    fix: Prose | None = None
    verify: Prose | None = None
    references: tuple[str, ...] = ()


class Needs(Strict, frozen=True, kw_only=True):
    """The capture option that supplies the facts of the rule."""

    flag: str


class RuleSpec(Strict, frozen=True, kw_only=True):
    """One file, one code, one cause. A quiet rule is in order only where what it `looks_at` is there: where
    one of these holds, or it names none. A rule that is `shown_by` nothing yet is a `preview`."""

    schema_: Literal[1] = field(name="schema")
    code: Annotated[str, Constraint(pattern=CODE_PATTERN)]
    cause: Kebab
    title: Short
    kind: Kind
    scope: Level
    subject: Subject = "trace"
    lifecycle: Lifecycle
    invalidates: FlagOrFact = False
    withholds: FlagOrFact = False
    withholds_health: FlagOrFact = False
    params: dict[Name, Param] = field(default_factory=dict)
    when: When
    otherwise: Answer | None = None
    unless: Annotated[tuple[Guard, ...], Constraint(max_length=8)] = ()
    then: Then = Then()
    requires: Annotated[tuple[Requirement, ...], Constraint(max_length=12)] = ()
    looks_at: Annotated[tuple[FactCondition, ...], Constraint(max_length=6)] = ()
    impact: ImpactSpec | None = None
    severity: SeveritySpec = SeveritySpec()
    confidence: ConfidenceSpec
    shown_by: ShownBy | None = None
    doubts: Annotated[tuple[Doubt, ...], Constraint(max_length=8)] = ()
    gain: GainSpec | None = None
    message: Prose
    healthy: Prose | None = None
    evidence: Annotated[tuple[str, ...], Constraint(max_length=8)] = ()
    recommendations: Annotated[tuple[Recommendation, ...], Constraint(max_length=16)] = ()
    alternatives: Annotated[tuple[Alternative, ...], Constraint(max_length=8)] = ()
    docs: Docs
    needs: Needs | None = None

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers of a question: one a branch, of which the first that holds counts, then `otherwise`."""
        return _answers(self)

    def _declared(self) -> Any:
        """As documents have always shown it: with `as_` for the `as` of a join."""
        plain = to_builtins(self)
        joins = plain["when"]["join"]
        plain["when"]["join"] = [{"as_" if k == "as" else k: v for k, v in j.items()} for j in joins]
        return plain

    def __post_init__(self) -> None:
        _one_answer_a_branch(self)
        _no_finding(self)


def _answers(rule: RuleSpec) -> tuple[Answer, ...]:
    given = (*(b.answer for b in rule.when.any or ()), rule.otherwise)
    return tuple(a for a in given if a is not None)


def _one_answer_a_branch(rule: RuleSpec) -> None:
    asked, answers = rule.kind == "question", _answers(rule)
    last = asked and (rule.otherwise is not None or rule.subject == "recording")
    wanted = len(rule.when.any or ()) + last if asked else 0
    if len(answers) != wanted or (asked and not wanted):
        raise ValueError(
            "a question has an `answer` in each branch of `any`, and `otherwise`"
            if asked
            else "`answer` and `otherwise` belong to questions; remove them"
        )
    if rule.subject == "recording" and not all(a.reason for a in answers):
        raise ValueError("an answer about a recording has a `reason`")
    word = "not_applicable" if rule.subject == "recording" else "partly"
    if any(a.reply == word for a in answers):
        raise ValueError(f"a question of subject {rule.subject} is never answered {word}")


def _no_finding(rule: RuleSpec) -> None:
    """Questions, and the symptoms that they refer to, produce no findings."""
    if (rule.kind == "question") != (rule.subject == "checklist") and rule.subject != "recording":
        raise ValueError("a question has `subject: recording` or `subject: checklist`, as only it has")
    if rule.subject == "recording" and rule.kind not in ("question", "symptom"):
        raise ValueError("`subject: recording` is for questions and symptoms")


def judges_capture(code: str) -> bool:
    """Whether a rule judges the capture itself: its findings stand even if the rows cannot be believed."""
    return code.startswith(_CAPTURE_RULES)
