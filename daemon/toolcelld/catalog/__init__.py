"""Discovery: from directories of tool files to an immutable catalog of tools.

Nouns: `Source`, `ToolFile`, `Description`, `Catalog`. `CatalogRegistry` owns one `WatchedDirectory` for each directory
in use, and each of those owns the current catalog and its generation number.
Files are described by workers (`pool`), never by importing them here.
"""
