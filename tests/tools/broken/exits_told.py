import sys

if True:
    print("TOKEN is required", file=sys.stderr)
    sys.exit(1)
