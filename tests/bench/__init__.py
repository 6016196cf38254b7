"""What calls cost, beside other ways to run the same function: `make bench`.

`contenders` has the ways, each in processes of its own; `measures` times them in turn, `report` compares the medians with
the bounds, and `picture` draws them. `limits` and `environments` measure what has no contender.
"""
