"""Collect the values of a skill that is being registered: given, kept, remembered or asked for; all, or a refusal.

Nothing is recorded and nothing is stored here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from omac.domain.credentials.credential import Credential
from omac.domain.credentials.value_sources import Field, Source, Wishes, source_of
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import Config, Secret, SidecarMeta
from omac.domain.skills.values import ValueRefused, check_config, check_secret
from omac.services.credentials.values import Values
from omac.tools.cli.values_file import read_values, shown_source
from omac.tools.terminal.prompts import ask_config, ask_secret
from omac.tools.terminal.render import report

SECRET_VARIABLE, CONFIG_VARIABLE = "OMAC_SECRET_", "OMAC_CONFIG_"

Declared = TypeVar("Declared", Secret, Config)
Value = TypeVar("Value", Hidden, str)


class ValueOptions(NamedTuple):
    """The flags by which a person says where values come from; `fields` are settings."""

    defaults: bool = False
    no_secrets: bool = False
    secrets_from: str | None = None
    reprompt_secrets: bool = False
    no_fields: bool = False
    fields_from: str | None = None
    reprompt_fields: bool = False
    no_input: bool = False

    def require_sense(self) -> None:
        """Raise Refusal (misuse) for flags that contradict each other."""
        for no, source, name in (
            (self.no_secrets, self.secrets_from, "secrets"),
            (self.no_fields, self.fields_from, "fields"),
        ):
            if no and source is not None:
                raise Refusal("misuse", f"--no-{name} and --{name}-from contradict each other")
        if self.secrets_from == self.fields_from == "-":
            raise Refusal("misuse", "the standard input can be read once: for --secrets-from or for --fields-from")


class CollectedValues(NamedTuple):
    """The values that the skill gets, and by name where each value comes from."""

    values: Values
    sources: dict[str, Source]

    @property
    def adopted(self) -> list[str]:
        return [name for name, source in self.sources.items() if source == "default"]


class ValueCollection(NamedTuple):
    """The values known before omac asks. `explicit` are the person's values, `stored` those given here before."""

    sidecar: SidecarMeta
    options: ValueOptions
    environment: Mapping[str, str]
    explicit: Values
    stored: Credential
    can_ask: bool

    def sources(self, remembered: Values) -> dict[str, Source]:
        return {field.name: self.source(field, remembered) for field in self.sidecar.fields}

    def collect(self, remembered: Values) -> CollectedValues:
        """All values, asked for where that is needed. Raises Refusal: value-refused, prompt-ended."""
        sources = self.sources(remembered)
        secrets = {
            secret.name: value
            for secret in self.sidecar.secrets
            if (value := self._value(secret, sources, self.explicit.secrets, remembered.secrets, ask_secret))
        }
        config = {
            field.name: text
            for field in self.sidecar.config
            if (text := self._value(field, sources, self.explicit.config, remembered.config, ask_config)) is not None
        }
        return CollectedValues(Values(secrets, config), sources)

    def _value(
        self,
        field: Declared,
        sources: Mapping[str, Source],
        explicit: Mapping[str, Value],
        remembered: Mapping[str, Value],
        ask: "Callable[..., Value | None]",
    ) -> Value | None:
        match sources[field.name]:
            case "given":
                return explicit[field.name]
            case "default":
                return remembered[field.name]
            case "ask" | "offer":
                return ask(field, instead=self._instead(field))
            case "keep" | "leave" | "missing":
                return None

    def source(self, field: Secret | Config, remembered: Values) -> Source:
        secret = isinstance(field, Secret)
        name, options = field.name, self.options
        own = self.sidecar.host_variable(field, self.environment) is not None
        known = Field(
            field.required,
            own or (isinstance(field, Config) and field.default is not None),
            name in (self.explicit.secrets if secret else self.explicit.config),
            self._is_stored(field),
            name in (remembered.secrets if secret else remembered.config),
        )
        secrets, config = (options.reprompt_secrets, options.no_secrets), (options.reprompt_fields, options.no_fields)
        again, exclude = secrets if secret else config
        return source_of(known, Wishes(options.defaults, again, exclude, self.can_ask))

    def _is_stored(self, field: Secret | Config) -> bool:
        """Return whether the field has a value here that the skill, as it is now, would accept."""
        if isinstance(field, Secret):
            return field.name in self.stored.secrets
        return field.name in self.stored.config and _is_good(field, self.stored.config[field.name])

    def _instead(self, field: Secret | Config) -> str | None:
        """Return what an empty answer means; None: an answer is required."""
        if self._is_stored(field):
            return "keeps " + (
                "the value it has" if isinstance(field, Secret) else self.stored.config[field.name] or "''"
            )
        if isinstance(field, Config) and field.default is not None:
            return "takes " + (field.default or "''")
        if variable := self.sidecar.host_variable(field, self.environment):
            return f"takes ${variable}, whenever it starts"
        return None if field.required else "leaves it out"


def explicit_values(sidecar: SidecarMeta, options: ValueOptions, environment: Mapping[str, str]) -> Values:
    """Return the values that the person gives with the command, checked; files come before the environment. Raises
    Refusal."""
    secrets = _named(sidecar.secrets, SECRET_VARIABLE, options.secrets_from, "secret", environment)
    config = _named(sidecar.config, CONFIG_VARIABLE, options.fields_from, "setting", environment)
    problems: list[ValueRefused] = []
    values = Values(_checked(secrets, check_secret, problems), _checked(config, check_config, problems))
    if problems:
        refuse(problems)
    return values


def usable(sidecar: SidecarMeta, remembered: Values) -> Values:
    """Return those of the saved defaults that the skill as it is now accepts; report the others."""
    problems: list[ValueRefused] = []
    hidden = [(field, remembered.secrets[field.name]) for field in sidecar.secrets if field.name in remembered.secrets]
    secrets = _checked([(field, value.reveal()) for field, value in hidden], check_secret, problems)
    config = [(field, remembered.config[field.name]) for field in sidecar.config if field.name in remembered.config]
    values = Values(secrets, _checked(config, check_config, problems))
    for problem in problems:
        report(f"{problem.name}: the saved default cannot be used: it {problem.problem}")
    return values


def refuse(problems: Sequence[ValueRefused]) -> None:
    """Tell every problem. Raises Refusal (value-refused)."""
    for problem in problems:
        report(f"refused: {problem}")
    names = tuple(dict.fromkeys(problem.name for problem in problems))
    raise Refusal("value-refused", f"{', '.join(names)}: refused; nothing was recorded", missing=names)


def _named(
    declared: Sequence[Declared], prefix: str, source: str | None, kind: str, environment: Mapping[str, str]
) -> list[tuple[Declared, str]]:
    """The declared values that were given, and their texts."""
    fields = {field.name: field for field in declared}
    texts: dict[str, str] = {}
    for variable, text in environment.items():
        name = variable.removeprefix(prefix)
        if name == variable or not text:
            continue
        if name in fields:
            texts[name] = text
        else:  # it may be meant for another skill
            report(f"{variable} is in the environment, and no {kind} {name} is declared: ignored")
    if source is not None:
        values = read_values(source, secret=kind == "secret")
        if undeclared := [name for name in values if name not in fields]:
            names = ", ".join(fields) or "none"
            message = (
                f"{', '.join(undeclared)} in {shown_source(source)}: no such {kind} is declared; declared are: {names}"
            )
            raise Refusal("value-refused", f"{message}; nothing was recorded", missing=undeclared)
        texts |= values
    return [(fields[name], text) for name, text in texts.items()]


def _checked(
    texts: Sequence[tuple[Declared, str]], check: Callable[[Declared, str], Value], problems: list[ValueRefused]
) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for field, text in texts:
        try:
            values[field.name] = check(field, text)
        except ValueRefused as refused:
            problems.append(ValueRefused(refused.name, refused.problem))
    return values


def _is_good(field: Config, text: str) -> bool:
    try:
        check_config(field, text)
    except ValueRefused:
        return False
    return True
