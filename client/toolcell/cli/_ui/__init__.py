"""What the commands share: options, connections, parsing of arguments, tables, messages, escaping streams, JSON output, exit codes."""
