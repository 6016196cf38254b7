"""The rules in force: the configuration, who is trusted, and what the host can give, as one value.

Whatever changes one of them makes a new regime, so whoever keeps what was decided under one
only has to compare two references.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcelld.config import Config
from toolcelld.grants import Grant
from toolcelld.limits import Settings, resolve
from toolcelld.outcome import Refusal, RefusalReason
from toolcelld.profiles import CONFIG_FILE, Project, Surroundings, Terms, describing, terms_of
from toolcelld.sources import ToolFile, project_directory
from toolcelld.trust import Trusts
from toolcelld.vault import Sealed

__all__ = ["Regime", "secret_missing"]


@dataclass(frozen=True, slots=True)
class Regime:
    """What decides on what terms a tool runs."""

    config: Config
    around: Surroundings
    trusts: Trusts = field(default_factory=Trusts)

    def terms(self, tool: str, file: ToolFile, settings: Settings, project: Project) -> Terms:
        """The terms for the calls of a tool. Raises `Refusal`."""
        may = self.trusts.may(self.config, file)
        if may is None and self.config.trust == "ask":
            raise Refusal(
                RefusalReason.UNTRUSTED,
                f'{tool} stands in a project that is not trusted, and trust = "ask".\n'
                f"  To see what its tools ask for, and to trust them: toolcell trust {project_directory(file)}",
            )
        terms = terms_of(tool, file, settings, may, project, self.around)
        if homeless := [name for name in terms.secrets if name not in self.config.secrets]:
            raise Refusal(
                RefusalReason.NEEDS_GRANT,
                f"{tool} may have the secret {homeless[0]}, but nothing says where it comes from.\n"
                f'  To say it, in {CONFIG_FILE}:\n    [secrets]\n    {homeless[0]} = {{ command = ["…"] }}',
            )
        return terms

    def terms_of_describing(self, file: ToolFile) -> Terms:
        """The terms for a look at a file's tools, by the settings of a tool that is called like the file.

        What it declares is not known yet, so it sees every secret that it might be given. Raises `Refusal`.
        """
        settings = resolve(self.config, file.stem, {}, file.source)
        return describing(file, settings, self.trusts.may(self.config, file), self.around)

    def sealed(self, terms: Terms, environment: Mapping[str, str], *, whole: bool = True) -> Sealed:
        """The secrets of these terms; those that nobody configured have no place, and are not there."""
        places = self.config.secrets
        known = tuple((name, places[name]) for name in terms.secrets if name in places)
        return Sealed(known, environment, whole)

    def may(self, file: ToolFile) -> Grant | None:
        """The most that a file gets of what it asks for; None where nobody trusts it."""
        return self.trusts.may(self.config, file)


def secret_missing(tool: str, why: str) -> Refusal:
    """The refusal of a call whose secret is granted and has a place, and could not be read there."""
    return Refusal(
        RefusalReason.NEEDS_GRANT,
        f"{tool} needs a secret that cannot be had: {why}\n"
        f"  Mend that, or say another place for it under [secrets] in {CONFIG_FILE}; it is read again at the next call.",
    )
