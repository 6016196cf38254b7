"""The commands for those who write tools: `new` writes an example, `tools` lists and checks, `dev` and `test` run."""
