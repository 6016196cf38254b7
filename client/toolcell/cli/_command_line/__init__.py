"""What can be typed: `app` and `subcommands` declare the commands; `help`, `page` and `completion` tell of them."""
