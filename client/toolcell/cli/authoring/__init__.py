"""The commands for those who write tools: `new` and `init` write an example, `tools` lists and checks, `dev` and `test` run."""
