
#compdef toolcell

_toolcell_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _TOOLCELL_COMPLETE=complete_zsh toolcell)
}

compdef _toolcell_completion toolcell

