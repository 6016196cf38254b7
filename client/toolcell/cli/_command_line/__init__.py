"""What can be typed: `app` and `subcommands` declare the commands; `help`, `man_page` and `completion` tell of them."""
