"""From what a file declares and the configuration grants to the settings of one tool, with who decided each."""
