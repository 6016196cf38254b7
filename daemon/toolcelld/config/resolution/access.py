"""What a tool may do: one value, `Access`, and the layers that it is the fold of. This is the order, the strongest last:

    _asking      the tool's file and its project: what they ask for
    _ceilings    [source.NAME] and the trust in the project: the most that they allow of that
    _granting    [defaults], the source, the profile, and the rules by name, [tool.PATTERN] and [tool.NAME]
    _insisting   the tool's file: a stronger sandbox, and no programs
    _LEAST       for the tool of a project that is not trusted
    enforced     [enforce] of root's file, over all of these

A value is one of the configuration's keys, but for two: `sandbox` is here `profile` and `enclosure`, and `network` a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from toolcelld.config.hosts import WHOLE, covered, network_entries
from toolcelld.config.load import Config
from toolcelld.config.project_file import ProjectFile
from toolcelld.config.resolution.layers import (
    ALLOWS,
    Layer,
    Origins,
    Says,
    Standing,
    enforced,
    fold,
    of,
    rules,
    said,
    table,
)
from toolcelld.config.schema import PROJECT, Declared, DefaultsSection, ProfileSection, SourceSection


@dataclass(frozen=True, slots=True)
class Access:
    """What a tool may do; by default nothing.

    Attributes:
        profile: The sandbox by the name that the configuration has for it: one of ours, or that of a [profile.NAME].
        enclosure: What that comes to.
        network: Entries of `toolcelld.config.hosts`, or `WHOLE`.
        secrets: Names.
        env: Names and patterns of variables.
        readable: Paths, in addition to those that every tool may read.
        writable: The same.
        programs: Whether it may start programs.
        listen: Whether it may accept connections, with the whole network.
        origins: The layer that each entry is from.
    """

    profile: str = ""
    enclosure: Literal["none", "baseline", "auto", "strict"] = "strict"
    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    programs: bool = False
    listen: bool = False
    origins: Origins = field(default_factory=dict[str, Mapping[Any, str]], compare=False, repr=False)

    @classmethod
    def of(cls, layers: Iterable[Layer]) -> Self:
        """Return what layers come to, the strongest last. Before the first, nothing is allowed."""
        nothing = {one.name: one.default for one in fields(cls) if one.name != "origins"}
        origins = fold([("default", nothing, True), *layers])
        values: dict[str, Any] = {
            name: tuple(entry for entry in origins[name] if entry != "")
            if isinstance(value, tuple)
            else next(iter(origins[name]))
            for name, value in nothing.items()
        }
        return cls(**values, origins=origins)

    def __bool__(self) -> bool:
        return bool(self.profile or self.network or self.secrets or self.env)

    @property
    def sandbox(self) -> str:
        """The sandbox as it would be written, also where a layer made it stronger."""
        return self.profile if self.origin("profile") == self.origin("enclosure") else self.enclosure

    def origin(self, name: str, entry: str = "") -> str:
        """Return the layer that an entry of a field is from; without an entry, the layers of all."""
        layers = self.origins[name]
        return layers.get(entry) or ", ".join(dict.fromkeys(layers.values()))

    def lacking(self, given: Access) -> Access:
        """Return what of the profile, the network, the secrets and the variables is not in another value."""
        return Access(
            profile="" if self.profile == given.profile else self.profile,
            network=tuple(host for host in self.network if not covered(host, given.network)),
            secrets=tuple(name for name in self.secrets if name not in given.secrets),
            env=tuple(name for name in self.env if name not in given.env),
        )


NOTHING: Final = Access()


def decide(
    config: Config,
    tool: str,
    file: Declared,
    source: str,
    project: ProjectFile,
    standing: Standing = Standing.FULL,
    most: Says = MappingProxyType({}),
) -> tuple[Access, Access, Access]:
    """Return what a tool may do, what it asks for, and what it could do if it were allowed all of that.

    The arguments are those of `settings.resolve`; `file` and `project` are what the file declares and the project asks for.
    """
    asks, own = _asking(config, file, source, project), _insisting(file)
    gives = _granting(config, tool, source, standing, most)
    least = [_LEAST] if standing is Standing.UNTRUSTED else []
    root = [*enforced(config)]
    access = Access.of([*asks, *_ceilings(config, source, most), *gives, *own, *least, *root])
    return access, Access.of(asks), Access.of([*asks, *gives, *own, *root])


def asked(config: Config, tool: str, file: Declared, source: str, project: ProjectFile) -> Access:
    """Return what a project's tool would get beyond the smallest cell if it were trusted; as `profile` a weaker sandbox."""
    asks = _asking(config, file, source, project)
    root = [*enforced(config)]
    full = Access.of([*asks, *_granting(config, tool, source, Standing.FULL, {}), *asks, *root])
    tight = Access.of([*_granting(config, tool, source, Standing.CHANGED, {}), *root])
    if full.profile in config.profiles:
        weaker = full.profile != tight.profile
    else:
        weaker = ALLOWS["enclosure"](full.enclosure) > ALLOWS["enclosure"](tight.enclosure)
    return replace(full.lacking(Access(env=tight.env)), profile=full.profile if weaker else "")


def in_words(access: Access) -> Iterator[str]:
    """Yield each thing that a tool may do, or lacks, as a person reads it."""
    if access.network:
        hosts = "" if WHOLE in access.network else f" to {', '.join(access.network)}"
        yield f"the network{hosts}"
    if access.secrets:
        yield f"the secret{'s' * (len(access.secrets) > 1)} {', '.join(access.secrets)}"
    if access.env:
        yield f"the variable{'s' * (len(access.env) > 1)} {', '.join(access.env)}"
    if access.profile:
        yield f'the sandbox "{access.profile}", by a rule with its name'


_ASKS: Final = ("network", "secrets", "env")
_TRUST: Final = "trust in the project"
_LEAST: Final[Layer] = (
    _TRUST,
    {
        **dict.fromkeys(("network", "secrets", "readable", "writable"), ()),
        "env": DefaultsSection.default().env,
        "listen": False,
    },
    False,
)
"""The most that the tool of a project may have that is not trusted."""


def _asking(config: Config, file: Declared, source: str, project: ProjectFile) -> list[Layer]:
    """List what a tool's file and its project ask for; of an MCP server the file is the table of its source."""
    is_server = config.sources.get(source, SourceSection.default()).mcp
    by_file = table("source", source) if is_server else "asked for by the file"
    asks = [(by_file, _read(said(file, _ASKS))), ("asked for by the project", _read(said(project, _ASKS)))]
    return [(whose, {key: value for key, value in says.items() if value}, True) for whose, says in asks]


def _ceilings(config: Config, source: str, most: Says) -> list[Layer]:
    """List what limits that: the table of its source, without which the user's own tool gets nothing, and trust."""
    section = config.sources.get(source, SourceSection.default())
    keys = ("network", "secrets")
    says = _read(said(section, keys) if source == PROJECT else of(section, keys))
    return [(table("source", source), says, False), (_TRUST, most, False)]


def _granting(config: Config, tool: str, source: str, standing: Standing, most: Says) -> list[Layer]:
    """List what the user's configuration gives a tool."""
    profiles, defaults = config.profiles, config.defaults
    section, keys = config.sources.get(source, SourceSection.default()), ("sandbox", "env")
    unsaid = {*keys} - defaults.model_fields_set
    layers: list[Layer] = [
        ("default", {"programs": True, **_read(of(defaults, unsaid), profiles)}, True),
        ("config [defaults]", _read(said(defaults, keys), profiles), True),
        (table("source", source), _read(said(section, keys), profiles), True),
    ]
    by_name = [(origin, _read(says, profiles)) for origin, says in rules(config, tool, ("sandbox", *_ASKS))]
    loosening = by_name if standing is Standing.FULL else ()
    name = Access.of([*layers, *((origin, says, True) for origin, says in loosening)]).profile
    if (profile := profiles.get(name)) is not None:
        of_profile = (*_ASKS, "readable", "writable", "programs", "listen")
        layers += _final(table("profile", name), _read(said(profile, of_profile)))
    for origin, says in by_name:
        if standing is Standing.FULL:
            layers += _final(origin, says)
        else:
            shown = tuple(name for name in says.get("env", ()) if name in most.get("env", ()))
            layers += [(origin, _tightening(says, profiles), False), (origin, {"env": shown}, True)]
    return layers


def _insisting(file: Declared) -> list[Layer]:
    """List what a tool's file does without, whatever it is given."""
    return [("file", _tightening(_read(said(file, ("sandbox", "programs")))), False)]


_NO_PROFILES: Final[Mapping[str, ProfileSection]] = {}


def _read(says: Says, profiles: Mapping[str, ProfileSection] = _NO_PROFILES) -> Says:
    """Return what a table says, by the fields of `Access`."""
    read = {**says}
    if "network" in read:
        read["network"] = network_entries(read["network"])
    if (name := read.pop("sandbox", None)) is not None:
        read |= {"profile": name, "enclosure": profiles[name].base if name in profiles else name}
    return read


def _final(origin: str, says: Says) -> list[Layer]:
    """List a layer whose network is the last word: it replaces what the layers before it allow."""
    emptied: list[Layer] = [(origin, {"network": ()}, False)] if "network" in says else []
    return [*emptied, (origin, says, True)]


def _tightening(says: Says, profiles: Mapping[str, ProfileSection] = _NO_PROFILES) -> Says:
    """Return the part of what a layer says that may take something away."""
    tight = {name: value for name, value in says.items() if name in ("enclosure", "network", "programs")}
    profile = profiles.get(says.get("profile", ""))
    return tight if profile is None or profile.programs else {**tight, "programs": False}
