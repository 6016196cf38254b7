"""What can be typed: `commands` declares the commands, and `app` has them all; `help`, `page` and `completion` tell of them."""
