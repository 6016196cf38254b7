"""What the commands share: options, connections, parsing of arguments, tables, messages, JSON output, exit codes."""
