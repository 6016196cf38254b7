import os
import sys

print("the licence has expired", file=sys.stderr, flush=True)
os._exit(7)
