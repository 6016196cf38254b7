"""The version of the distribution, as the package metadata has it. Reading the metadata takes 14 ms of each command."""

VERSION = "0.1.0"
