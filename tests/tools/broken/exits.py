import sys

sys.exit("nothing to do here")
